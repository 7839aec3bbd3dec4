"""What is wanted of a design, in words: quantities, and limits of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.checkpoints import load_pretrained
from pennpde.files import read_regular
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.models.flow_physics import PlaneFlowPhysics
from pennpde.penn import STEADY, Predictor
from pennpde.prediction import predict
from pennpde.quantities import Quantity, SolvedFlow, parse
from pennpde.study.optimisation.adjoint import Measure
from pennpde.study.optimisation.flows import Fields
from pennpde.study.optimisation.measures import FlowRate, Force, Imbalance, MeanPressure, Misfit, PressureDrop, Probe
from pennpde.study.optimisation.search import Limit

_NUMBER = r"[-+]?[\d.]+(?:e[-+]?\d+)?"
_LIMIT = re.compile(
    rf"^(?P<what>.+?)\s+(?:(?:<=?|below)\s*(?P<most>{_NUMBER})|(?:>=?|above)\s*(?P<least>{_NUMBER})"
    rf"|between\s+(?P<low>{_NUMBER})\s+and\s+(?P<high>{_NUMBER}))\s*(?P<percent>%?)$"
)
_SPLIT = re.compile(rf"^flow split\s+(?P<patches>.+?)\s+within\s+(?P<percent>{_NUMBER})\s*%$")


@dataclass(frozen=True)
class Times:
    """A quantity times a number: its negative is what is maximised."""

    measure: Measure
    factor: float

    def __call__(self, fields: Fields) -> Tensor:
        return self.factor * self.measure(fields)


@dataclass(frozen=True)
class Squared:
    """A root mean square as a search wants it: the square is smooth where the root is zero."""

    measure: Measure

    def __call__(self, fields: Fields) -> Tensor:
        return self.measure(fields).square()


@dataclass(frozen=True)
class Predicted:
    """Any quantity, of a whole prediction: it has no gradient."""

    quantity: Quantity

    def __call__(self, fields: Fields) -> Tensor:
        model = load_pretrained("flow")
        assert isinstance(model, Predictor)
        levels = CoarseMarch.levels
        model.set_level(levels[min(fields.flow.family.splits, len(levels) - 1)])
        time = fields.flow.family.time
        outcome = predict(model, fields.flow.case, times=time, steady=time is None)
        return torch.tensor(self.quantity.of(outcome).values[-1], dtype=torch.float64)


def searched(measure: Measure) -> Measure:
    """The quantity in the form in which it is minimised."""
    return Squared(measure) if isinstance(measure, Imbalance | Misfit) else measure


def parse_measure(text: str, case: Case) -> Measure:
    """A quantity of `penn predict --quantity`, or `flow imbalance PATCH PATCH ...`, or `misfit FILE.csv`.

    Args:
        text: Its words.
        case: Any of the designs, whose patches are named.
    """
    words = text.split()
    if words[:1] == ["misfit"]:
        return read_misfit(Path(text.split(maxsplit=1)[-1]))
    if words[:2] == ["flow", "imbalance"]:
        names = parse("flow split " + " ".join(words[2:]))
        names.check(case)
        return Imbalance(names.arguments)
    quantity = parse(text)
    quantity.check(case)
    found = _with_gradient(quantity, case)
    density = quantity.options.get("density", (1.0,))[0]
    return Predicted(quantity) if found is None else found if density == 1.0 else Times(found, density)


def _with_gradient(quantity: Quantity, case: Case) -> Measure | None:
    """The quantity as a function of the state, where there is one that does not change with the design."""
    options, (patch, *others) = quantity.options, quantity.arguments or ("",)
    match quantity.kind.name:
        case "pressure drop" | "total pressure drop" as name:
            return PressureDrop(patch, *others, total=name.startswith("total"))
        case "mean pressure":
            return MeanPressure(patch)
        case "loss coefficient" if "speed" in options:
            return Times(PressureDrop(patch, *others, total=True), 2.0 / options["speed"][0] ** 2)
        case "flow rate":
            return FlowRate(patch)
        case "flow split":
            return FlowRate(patch, quantity.arguments)
        case "force x":
            return Force(patch, (1.0, 0.0))
        case "force y":
            return Force(patch, (0.0, 1.0))
        case "drag" | "lift" | "drag coefficient" | "lift coefficient" as name:
            units = PlaneFlowPhysics().units(case)
            flow = SolvedFlow(case, (STEADY,), {}, {}, units.length, units.speed)
            along = quantity.directions(flow)["lift" in name]
            force = Force(patch, (float(along[0]), float(along[1])))
            if "coefficient" not in name:
                return force
            if options.keys() >= {"speed", "length"}:
                return Times(force, 2.0 / (options["speed"][0] ** 2 * options["length"][0]))
        case "probe u" | "probe v" | "probe p" as name:
            return Probe(name[-1], (float(patch), float(others[0])))
    return None


def parse_limits(text: str, case: Case) -> list[tuple[str, Measure, Limit]]:
    """A constraint from its words, `flow split a b within 5 %` or a quantity `< 0.3`, `> 0.3`, `between 1 and 2`.

    Returns:
        The words of each quantity that it limits, the quantity and its limit.
    """
    if found := _SPLIT.match(text):
        split = parse("flow split " + found["patches"])
        split.check(case)
        names, off = split.arguments, float(found["percent"]) / 100.0
        equal = 1.0 / len(names)
        limit = Limit(equal * (1 - off), equal * (1 + off))
        return [(f"{text}, {each}", FlowRate(each, names), limit) for each in names]
    if not (found := _LIMIT.match(text)):
        raise ValueError(
            f"{text!r} is no constraint; write QUANTITY < 0.3, QUANTITY > 0.3, QUANTITY between 1 and 2, or "
            '"flow split A B within 5 %".'
        )
    one = 0.01 if found["percent"] else 1.0
    low, high = found["least"] or found["low"], found["most"] or found["high"]
    limit = Limit(-math.inf if low is None else one * float(low), math.inf if high is None else one * float(high))
    return [(text, parse_measure(found["what"], case), limit)]


def read_misfit(path: Path) -> Misfit:
    """Measured velocities: a CSV file with the columns x, y, u and v."""
    lines = [line.split(",") for line in read_regular(path).decode("utf-8-sig").splitlines() if line.strip()]
    try:
        rows = np.array([[float(item) for item in line] for line in lines[1:]])
    except ValueError:
        rows = np.zeros((0, 0))
    header = [each.strip() for each in lines[0]] if lines else []
    if header != ["x", "y", "u", "v"] or rows.ndim != 2 or not rows.size:
        raise ValueError(f"{path} has no measured velocities: its first line is x,y,u,v, the others have four numbers.")
    return Misfit(rows[:, :2], rows[:, 2:])
