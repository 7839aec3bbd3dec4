"""Errors on plane flows, taken the same way for every rival: relative L2 over points, by moment and steady state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from pennlab.datasets.plane_flow.cases import STEADY_PRESSURE, STEADY_VELOCITY
from pennpde.case import Case
from pennpde.models.flow_physics import FlowPhysics

STEADY = "steady"
UNKNOWNS = {"u": STEADY_VELOCITY, "p": STEADY_PRESSURE}
"""And their names in the steady state."""


def labels(case: Case, times: Sequence[float]) -> list[str]:
    """The moments of a case, and its steady state where it has one."""
    return [*(f"{time:g}" for time in times), *([STEADY] if STEADY_VELOCITY in case.targets else [])]


def truth_at(case: Case, name: str, place: int) -> Tensor:
    """The truth of u or p at a moment; behind the last one, in the steady state."""
    moments = case.targets[name]
    return moments[..., place] if place < moments.shape[-1] else case.targets[UNKNOWNS[name]]


def errors(
    case: Case, times: Sequence[float], found: Callable[[str, int], Tensor], prefix: str = ""
) -> dict[str, dict[str, float]]:
    """By moment, the relative errors of u and p.

    Args:
        case: with the truth.
        times: of its moments.
        found: u or p, by name, at the moment of a number.
        prefix: of the names of the errors.
    """
    # Prescribed at one point only, the level of the pressure is arbitrary. In some cavities that point is a corner in
    # which moving walls meet, where the pressure itself has a pole and depends on the mesh.
    free = FlowPhysics().free_levels(case)
    rows: dict[str, dict[str, float]] = {}
    for place, label in enumerate(labels(case, times)):
        rows[label] = {}
        for name in UNKNOWNS:
            truth, values = truth_at(case, name, place), found(name, place)
            if name in free:
                values = values - (values - truth).mean()
            rows[label][prefix + name] = relative(values, truth)
    return rows


def relative(found: Tensor, truth: Tensor) -> float:
    share = (found.double() - truth.double()).square().sum() / truth.double().square().sum()
    return float(f"{float(share) ** 0.5:.4g}")


def stacked(fields: Mapping[str, Tensor]) -> Callable[[str, int], Tensor]:
    """Fields whose last axis has the moments and the steady state, as `errors` asks for them."""

    def at(name: str, place: int) -> Tensor:
        return fields[name][..., place]

    return at
