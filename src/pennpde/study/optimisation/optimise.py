"""The best design of a flow: what varies, what is wanted, and what came out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from pennpde.case import Case
from pennpde.files import plain, write_atomically
from pennpde.mesh import Mesh
from pennpde.prediction import Outcome, predict
from pennpde.study import Study
from pennpde.study.changes import changed
from pennpde.study.morphing import Handle, morphed_case
from pennpde.study.optimisation.adjoint import Measure, value_of
from pennpde.study.optimisation.evolution import evolve
from pennpde.study.optimisation.flows import Family
from pennpde.study.optimisation.goals import Predicted, Times, parse_limits, parse_measure, searched
from pennpde.study.optimisation.search import Found, Limit, Step, descend
from pennpde.study.optimisation.trials import BROKEN, CaseAt, Designs
from pennpde.study.variables import Variable


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best design that a search has found.

    Attributes:
        objective: The words of what is minimised or maximised.
        sign: -1 where it is maximised.
        limits: Of the constraints, by their words.
        found: The search.
        before: The quantities of the first design by their words, with what the size of the cells adds to them.
        after: Those of the best one.
        finer: The objective of both on cells half as large; None where one of them has no steady flow there.
        seconds: All together.
    """

    objective: str
    sign: float
    limits: Mapping[str, Limit]
    found: Found
    before: Mapping[str, tuple[float, float]]
    after: Mapping[str, tuple[float, float]]
    finer: tuple[float, float] | None
    seconds: float

    @property
    def values(self) -> dict[str, float]:
        """The numbers of the best design."""
        return self.found.best.values

    @property
    def case(self) -> Case:
        return self.found.best.case

    @property
    def reason(self) -> str:
        """Why the search ended."""
        return self.found.reason

    @property
    def gain(self) -> float:
        """By how much the objective is better than at the start."""
        return self.sign * (self.before[self.objective][0] - self.after[self.objective][0])

    @property
    def expected_error(self) -> float:
        """Of the gain: what it changes by on cells half as large, else the change of the error of the cells' size."""
        if self.finer is not None:
            return abs(self.gain - self.sign * (self.finer[0] - self.finer[1]))
        return abs(self.before[self.objective][1] - self.after[self.objective][1])

    @property
    def missed(self) -> list[str]:
        """The constraints that the best design does not keep."""
        return [words for words, limit in self.limits.items() if limit.missed(self.after[words][0]) > 2e-3]

    def __repr__(self) -> str:
        first, best = self.before[self.objective][0], self.after[self.objective][0]
        return (
            f"Optimum({self.objective}: {first:.4g} -> {best:.4g}, expected error of the gain "
            f"{self.expected_error:.2g}; {self.found.trials} flows, {self.seconds:.1f} s)"
        )

    def predict(self, **how: Any) -> Outcome:
        """The flow of the best design with its certificate, as `penn.predict` gives it."""
        time = self.found.best.answer.flow.family.time
        return predict("flow", self.case, times=time, steady=time is None, **how)

    def as_dict(self) -> dict[str, Any]:
        return {
            "objective": self.objective,
            "sense": "minimise" if self.sign > 0 else "maximise",
            "constraints": list(self.limits),
            "missed": self.missed,
            "start": self.found.first.values,
            "values": self.values,
            "before": {name: {"value": value, "error": error} for name, (value, error) in self.before.items()},
            "after": {name: {"value": value, "error": error} for name, (value, error) in self.after.items()},
            "on_finer_cells": self.finer,
            "gain": self.gain,
            "expected_error_of_gain": self.expected_error,
            "reason": self.reason,
            "flows": self.found.trials,
            "broken": self.found.broken,
            "seconds": round(self.seconds, 3),
            "history": [
                {"flows": step.trials, **step.trial.values, "objective": step.objective} for step in self.found.steps
            ],
        }

    def save(self, folder: str | Path) -> Path:
        """Write `optimum.json` and the mesh of the best design with its flow, `best.vtu`."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        write_atomically(target / "optimum.json", json.dumps(plain(self.as_dict()), indent=1).encode() + b"\n")
        self.predict().save(target / "best.vtu")
        return target


def optimise(
    source: Study | Case | Mesh | str | Path | Callable[..., Case | Mesh],
    vary: Mapping[str, str | Sequence[float] | Variable] | None = None,
    minimise: str | Measure | None = None,
    subject_to: str | Sequence[str] = (),
    *,
    maximise: str | Measure | None = None,
    morph: Mapping[str, Handle | Mapping[str, Any]] | None = None,
    problem: Mapping[str, Any] | str | Path | None = None,
    mesher: str | None = None,
    start: Mapping[str, float] | None = None,
    level: str = "standard",
    time: float | None = None,
    gradients: bool | None = None,
    most: int | None = None,
    watch: Callable[[Step], None] = lambda _: None,
) -> Optimum:
    """The best design of a flow, steady or at a time.

    Args:
        source: A study, or what one starts from: a case, the folder of an OpenFOAM case or template, a mesh or its
            file (with `problem`), or a function that returns a case, whose arguments are numbers that vary.
        vary: By the name of a parameter, a prescribed value (`inlet.u`) or a number of the shape: the ends of a range,
            (1e-3, 1e-2), "1e-3:1e-2" or "1e-3:1e-2:log"; or a list of numbers to choose from. Of a study its own.
        minimise: The quantity, such as "total pressure drop inlet outlet".
        subject_to: Constraints, such as "flow split a b within 5 %" or "drag body < 0.3".
        maximise: A quantity, in place of `minimise`.
        morph: Control points that move the mesh, by the names of variables.
        problem: As for `Study`.
        mesher: Likewise.
        start: The first design, as far as it is given; else parameters are those of the case, control points where they
            are, and other numbers in the middle of their ranges.
        level: Of accuracy, whose cells are solved on: "fast", "standard" or "fine".
        time: When the quantities are taken, from the start on; None: of the steady state.
        gradients: Whether gradients are used; None: wherever the cells stay the same and no variable has choices.
        most: Flows that are solved; None: 60, without gradients 200.
        watch: Is told every better design.
    """
    began = perf_counter()
    if (minimise is None) == (maximise is None):
        raise ValueError("Give one quantity to minimise or to maximise.")
    variables, case_at, base = _variants(source, vary, morph or {}, problem=problem, mesher=mesher)
    if not variables:
        raise ValueError('Nothing varies; say what does, as in vary={"inlet.u": (0.5, 2.0)}.')
    values = _first(base, variables, start)
    first = case_at(values)
    if unknown := [each.text for each in first.remarks if each.other_physics]:
        raise ValueError(f"Physics of the case are not computed, so its best design is not known. {' '.join(unknown)}")
    wanted = maximise if minimise is None else minimise
    assert wanted is not None
    measure = parse_measure(wanted, first) if isinstance(wanted, str) else wanted
    objective = wanted if isinstance(wanted, str) else type(wanted).__name__.lower()
    sign, best = (1.0, searched(measure)) if maximise is None else (-1.0, Times(searched(measure), -1.0))
    texts = [subject_to] if isinstance(subject_to, str) else subject_to
    limited = [each for text in texts for each in parse_limits(text, first)]
    limits = {words: limit for words, _, limit in limited}
    measures = [each for _, each, _ in limited]
    designs = Designs(variables, case_at, Family.of(first, level, time), [best, *measures])
    without = _without_gradients(designs, values) if gradients is not False else ""
    if gradients and without:
        raise ValueError(f"There are no gradients: {without}. Leave out gradients=True.")
    gradients = gradients is not False and not without
    look = descend if gradients else evolve
    found = look(designs, designs.position(values), list(limits.values()), most=most, watch=watch)
    shown = replace(designs, measures=[measure, *measures])
    before, after = (
        dict(zip([objective, *limits], zip(each.numbers.tolist(), each.errors.tolist(), strict=True), strict=True))
        for each in (replace(each, designs=shown) for each in (found.first, found.best))
    )
    finer = _on_finer_cells(shown, found)
    return Optimum(
        objective=objective,
        sign=sign,
        limits=limits,
        found=found,
        before=before,
        after=after,
        finer=finer,
        seconds=perf_counter() - began,
    )


def pareto(
    source: Any, vary: Mapping[str, Any] | None, minimise: Sequence[str], *, number: int = 7, **how: Any
) -> list[Optimum]:
    """The Pareto front of two quantities: the best of the first for bounds of the second, from its own best design on.

    Args:
        source: As for `optimise`.
        vary: Likewise.
        minimise: The two quantities.
        number: Of points of the front, ends included.
        how: Further arguments of `optimise`.
    """
    if len(minimise) != 2:
        raise ValueError(f"A front is drawn of two quantities, not of {len(minimise)}; make others constraints.")
    one, other = minimise
    kept = how.pop("subject_to", ())
    kept = [kept] if isinstance(kept, str) else list(kept)
    ends = [optimise(source, vary, each, kept, **how) for each in (one, other)]

    def second(optimum: Optimum) -> float:
        return value_of(optimum.found.best.answer, parse_measure(other, optimum.case))

    high, low = (second(each) for each in ends)
    front, how["start"] = [ends[0]], ends[0].values
    for bound in np.linspace(high, low, number)[1:-1]:
        found = optimise(source, vary, one, [*kept, f"{other} < {float(bound):.12g}"], **how)
        if not found.missed:
            front.append(found)
            how["start"] = found.values
    return [*front, ends[1]]


def _variants(
    source: Any, vary: Mapping[str, Any] | None, morph: Mapping[str, Any], **how: Any
) -> tuple[list[Variable], CaseAt, Case | None]:
    """What varies, the function that makes cases, and the case that it starts from, where there is one."""
    if isinstance(source, Study):
        return list(source.variables), source.case_of, None
    given = {name: _range(name, each) for name, each in (vary or {}).items()}
    if not isinstance(source, Case):
        study = Study(source, given, morph=morph, **how)
        return list(study.variables), study.case_of, None
    return list(given.values()), variants(source, given, morph), source


def _range(name: str, given: Any) -> Variable:
    if isinstance(given, tuple) and len(given) == 2:
        return Variable.of(name, f"{given[0]!r}:{given[1]!r}")
    return Variable.of(name, given)


def variants(case: Case, names: Collection[str], morph: Mapping[str, Any]) -> CaseAt:
    """The function from numbers to cases on one mesh, maybe moved by control points."""
    exact = case.to(torch.float64)  # differences of numbers in single precision are rounding errors
    handles = {name: Handle.of(name, given) for name, given in morph.items()}
    if idle := sorted(handles.keys() - set(names)):
        raise ValueError(
            f"The control points {idle} have no range; say how far they move: vary={{{idle[0]!r}: (-1, 1)}}."
        )

    def made(values: Mapping[str, float]) -> Case:
        others = {name: value for name, value in values.items() if name not in handles}
        return changed(morphed_case(exact, handles, values), others)

    return made


def _first(case: Case | None, variables: Sequence[Variable], start: Mapping[str, float] | None) -> dict[str, float]:
    """The values of the first design: those that are given, those of the case, the middle of the range."""
    found = {}
    for each in variables:
        own = None if case is None else case.parameters.get(each.name)
        if start and each.name in start:
            found[each.name] = float(start[each.name])
        elif own is not None and each.low <= float(own) <= each.high:
            found[each.name] = float(own)
        else:
            found[each.name] = each.at(0.0) if each.choices else (0.0 if each.low <= 0 <= each.high else each.at(0.5))
    if start and (unknown := sorted(start.keys() - found.keys())):
        raise ValueError(f"The search starts with {unknown}, which do not vary; variables are {sorted(found)}.")
    return found


def _without_gradients(designs: Designs, values: Mapping[str, float]) -> str:
    """Why there are no gradients; empty where there are."""
    if chosen := [each.name for each in designs.variables if each.choices]:
        return f"{', '.join(chosen)} has numbers to choose from, not a range"
    if any(isinstance(getattr(each, "measure", each), Predicted) for each in designs.measures):
        return "a quantity is known of whole predictions only"
    position = designs.position(values)
    own = designs.case(position).mesh.connectivity
    for place, end in product(range(len(position)), (0.0, 1.0)):
        moved = position.copy()
        moved[place] = end
        with suppress(*BROKEN):
            if not np.array_equal(designs.case(moved).mesh.connectivity, own):
                return "shapes are meshed again, and on other cells the flow changes by jumps"
    return ""


def _on_finer_cells(designs: Designs, found: Found) -> tuple[float, float] | None:
    family = replace(designs.family, splits=designs.family.splits + 1)
    finer = replace(designs, family=family, measures=designs.measures[:1])
    try:
        one, other = (float(finer.trial(each.position).numbers[0]) for each in (found.first, found.best))
    except BROKEN:
        return None
    return one, other
