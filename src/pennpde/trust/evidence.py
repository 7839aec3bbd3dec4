"""Evidence: what can be measured on a prediction without a reference solution and says how wrong it may be.

Numbers of any equation (how rough the fields are on their mesh, normal derivatives, growth of the solver's residual,
how far the case lies outside of the training range) and those that the equation adds (`Physics.clues`); and by unknown
a field of where the error is likely to be. All in the network's units, so the user's units do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde import metrics
from pennpde.case import Case
from pennpde.operators import Operators
from pennpde.penn import Prediction, Predictor
from pennpde.penn.equation import OUTFLOW, Clue
from pennpde.trust.calibration import BEYOND, COARSER_SOLUTION, FROM_TRAINING, KIND
from pennpde.trust.certificate import Certificate, describe_mesh

NOT_FINITE = "values that are not finite"
"""The only clue of fields that have such values."""
_LARGEST_LOGARITHM = 6.0
_FINER = "a finer mesh"
_LARGE = 0.02
"""Of the difference between two solutions. Of several values this one predicts errors of families left out best."""
_SMOOTHED = 3
"""Averages over neighbours of the local measure: an error spreads, and second derivatives are noisy."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was measured on the fields at one time.

    Attributes:
        clues: The numbers.
        local: By unknown, a measure of the error at each point of the mesh on which was predicted; only its shape
            counts.
    """

    clues: tuple[Clue, ...]
    local: Mapping[str, Float[Tensor, " points"]] = field(default_factory=dict)

    @property
    def numbers(self) -> dict[str, float]:
        return {each.name: each.value for each in self.clues}


def gather(
    case: Case,
    prediction: Prediction,
    times: Sequence[float],
    certificate: Certificate,
    model: Predictor,
    prepared: Case | None = None,
    coarse: Mapping[str, Tensor] | None = None,
    operators: Operators | None = None,
) -> tuple[Evidence, ...]:
    """Measure a prediction, at each of its times.

    Args:
        case: What the network saw, in its units.
        prediction: What came out, likewise.
        times: Of its fields, in these units.
        certificate: Of the prediction.
        model: What it and its equation add.
        prepared: The case in the network's precision, on its device, with what was computed for it; by default `case`.
        coarse: The fields of a coarser solution of the same problem; None where there is none.
        operators: Plain ones of the mesh, where they are known already.
    """
    prepared = case if prepared is None else prepared
    operators = operators or Operators.on(case.mesh, singular="pseudoinverse")
    of_case = [*_of_case(case, certificate), *model.clues(prepared)]
    free = model.equation.free_levels(case)
    found = []
    for place, time in enumerate(times):
        now = at_place(prediction.fields, place, case)
        if not all(bool(torch.isfinite(values).all()) for values in now.values()):
            found.append(Evidence((Clue(NOT_FINITE, _LARGEST_LOGARITHM),)))
            continue
        missed = {name: _interpolation_error(values, case, operators) for name, values in now.items()}
        # t / (1 + t): a steady state is at infinity.
        clues = [*of_case, Clue("time", 1.0 if math.isinf(time) else time / (1.0 + time), worse=False)]
        if kind := model.equation.kind(case, time):
            clues.append(Clue(KIND + kind, 1.0, worse=False))
        for name, values in now.items():
            size, volumes = _deviation(values, case), case.mesh.point_volumes
            rough = metrics.root_mean_square(missed[name], volumes) / size
            clues.append(Clue.of_size(f"roughness of {name}", rough, remedy=_FINER))
            start = case.initial[name].detach().cpu().to(values)
            departed = metrics.root_mean_square(values - start, volumes)
            clues.append(Clue.of_size(f"departure of {name} from the start", departed / size, worse=False))
        through = {} if prediction.outflow is None else {OUTFLOW: prediction.outflow.reshape(-1, len(times))[:, place]}
        clues += model.equation.clues(case.at(time) if case.changes_with_time else case, now | through, operators)
        shapes = missed | dict(model.equation.error_shape(case, now, operators))
        local = {name: _smoothed(each, case) for name, each in shapes.items()}
        if coarse is not None:
            first, other = (without_levels(each, free, case) for each in (now, at_place(coarse, place, case)))
            apart = _apart(first, other)
            clues += _of_opinions(first, other, apart, case)
            # Not smoothed: both solutions fulfil the same conditions, and where these hold there is no error.
            local |= {name: each for name, each in apart.items() if bool(torch.isfinite(each).all())}
        found.append(Evidence(tuple(clues), local))
    return tuple(found)


def at_place(fields: Mapping[str, Tensor], place: int, case: Case) -> dict[str, Tensor]:
    """The fields at one of the times, on the CPU, in the precision of the mesh."""
    return {
        name: (values[..., place] if values.ndim > case.initial[name].ndim else values)
        .detach()
        .cpu()
        .to(case.mesh.points)
        for name, values in fields.items()
    }


def without_levels(fields: Mapping[str, Tensor], free: Collection[str], case: Case) -> dict[str, Tensor]:
    """The fields, those in `free` less their mean over the domain."""
    volumes = case.mesh.point_volumes
    return {name: metrics.without_level(each, volumes) if name in free else each for name, each in fields.items()}


def _apart(fields: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """By unknown, how far two predictions are apart at each point."""
    return {name: (values - others[name]).reshape(len(values), -1).norm(dim=1) for name, values in fields.items()}


def _of_opinions(
    fields: Mapping[str, Tensor], others: Mapping[str, Tensor], apart: Mapping[str, Tensor], case: Case
) -> list[Clue]:
    """How far the fields are from the coarser solution, relative to their size, as errors are.

    A small difference is some times the error. A large one says that coarse cells lose the flow, eddies above all, and
    fine ones may lose it as well. Then the error grows faster than the difference: what is large is a clue by itself.
    """
    volumes = case.mesh.point_volumes
    clues = []
    for name, each in apart.items():
        size = metrics.root_mean_square(fields[name], volumes)
        share = metrics.root_mean_square(each, volumes) / (size or 1.0)
        clues.append(Clue.of_size(COARSER_SOLUTION + name, share, remedy=_FINER))
        clues.append(
            Clue.of_size(f"{COARSER_SOLUTION}{name}{BEYOND}{100 * _LARGE:.0f} %", max(share, _LARGE), remedy=_FINER)
        )
        # Where it is found in few places, such as corners, the error falls more slowly from one mesh to the next.
        fourth = metrics.root_mean_square(each.square(), volumes) ** 0.5
        narrow = fourth / (metrics.root_mean_square(each, volumes) or 1.0)
        clues.append(Clue.of_size(f"concentration of the difference in {name}", narrow, worse=False))
        if fields[name].ndim == 1:
            apart_by = fields[name] - others[name]
            even = metrics.root_mean_square(metrics.without_level(apart_by, volumes), volumes)
            share = even / (metrics.root_mean_square(apart_by, volumes) or 1.0)
            clues.append(Clue.of_size(f"unevenness of the difference in {name}", share, worse=False))
    return clues


def _of_case(case: Case, certificate: Certificate) -> list[Clue]:
    """Clues that are the same at all times."""
    mesh = describe_mesh(case.mesh)
    clues = [
        Clue.of_size("mean cell size", mesh["mean cell size"], worse=False),
        Clue.of_size("domain size", mesh["domain size"], worse=False),
        Clue.of_size("stretching of cells", mesh["mean stretching of cells"], remedy="less stretched cells"),
        Clue("neighbours", mesh["typical number of neighbours"] / 4.0, worse=False),
    ]
    clues += [
        Clue.of_size(f"normal derivative of {name}", share) for name, share in certificate.neumann_of_cell.items()
    ]
    grown = [history[-1] / history[0] for history in certificate.residuals if history and history[0] > 0]
    if grown:
        clues.append(Clue.of_size("growth of the solver's residual", max(grown)))
    if certificate.compared:
        beyond = [each.beyond for each in certificate.compared]
        away = math.log1p(math.sqrt(sum(far**2 for far in beyond)))
        remedy = "a network that was trained on such cases"
        clues.append(Clue(FROM_TRAINING, away, remedy=remedy))
    return clues


def _interpolation_error(
    values: Float[Tensor, "points *axes"], case: Case, operators: Operators
) -> Float[Tensor, " points"]:
    """The square of the cell size times the second derivatives: what linear interpolation between points misses."""
    second = operators.grad(operators.grad(values))
    sizes = case.mesh.point_volumes.to(values) ** (1 / case.space)
    return sizes.square() * second.reshape(len(values), -1).norm(dim=1)


def _deviation(values: Float[Tensor, "points *axes"], case: Case) -> float:
    """How much a field varies: root mean square about its mean; one where it does not."""
    volumes = case.mesh.point_volumes
    return metrics.root_mean_square(metrics.without_level(values, volumes), volumes) or 1.0


def _smoothed(values: Float[Tensor, " points"], case: Case) -> Float[Tensor, " points"]:
    first, second = (torch.from_numpy(each) for each in case.mesh.edges)
    count = torch.bincount(first, minlength=len(values)).to(values) + 1.0
    for _ in range(_SMOOTHED):
        values = (values + torch.zeros_like(values).index_add(0, first, values[second])) / count
    return values
