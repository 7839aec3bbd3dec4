"""Trials: one change at a time on the step of `penn demo`, as a user would make it, with the truth of each.

A network that is good at the step itself need not be good at any of them. They are too few and too similar to train on;
they show whether a network knows when it is wrong.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from pennlab import running
from pennlab.datasets.plane_flow import cases, foam, meshes, truth
from pennlab.datasets.plane_flow.conditions import Condition, Inlet, Outlet, Slip, Wall
from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.shapes.drawing import Duct, Point, chain, closed
from pennlab.datasets.recipe import Product, Recipe, Report, rounded
from pennpde.data.storage import facts_of
from pennpde.data.vtkhdf import pack

REYNOLDS = 1000.0
MOMENTS = (1.0, 4.0)
_RAMP = 0.37
_POINTS_PER_WIDTH = 20.0
_PROGRAMS = ("pimpleFoam", "simpleFoam")


@dataclass(frozen=True, eq=False)
class Trial:
    """A flow and the mesh on which it is predicted.

    Attributes:
        changed: what is not as in the step of `penn demo`, in words.
        flow: with its truth's moments.
        plan: of the mesh.
    """

    changed: str
    flow: Flow
    plan: meshes.MeshPlan


def _outline(
    height: float = 1.0, length: float = 3.0, top: str = "wall", holes: Sequence[Sequence[Piece]] = ()
) -> Domain:
    """The step: an inlet from y = 0 to 1, a ramp down behind x = 1."""
    lower = [(0.0, 0.0), (1.0, 0.0), (1.0 + _RAMP * height, -height), (length, -height)]
    lower = lower if height else [(0.0, 0.0), (length, 0.0)]
    outer = [
        *chain(lower, "wall"),
        Piece.of([(length, -height), (length, 1.0)], "outlet"),
        Piece.of([(length, 1.0), (0.0, 1.0)], top),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    return Domain.of(outer, holes)


def _inlet(profile: str = "uniform", shape: tuple[float, ...] = ()) -> Inlet:
    return Inlet((0.0, 1.0), (0.0, 0.0), 1.0, profile, shape)


def _flow(
    domain: Domain | None = None,
    inlet: Inlet | None = None,
    reynolds: float = REYNOLDS,
    **others: Condition,
) -> Flow:
    domain = domain or _outline()
    known = {"inlet": inlet or _inlet(), "outlet": Outlet(), **others}
    conditions = {patch: known.get(patch, Wall()) for patch in domain.patches}
    return Flow("", "trial", domain, conditions, reynolds, MOMENTS)


def _square(centre: Point, side: float) -> list[Piece]:
    (x, y), half = centre, 0.5 * side
    corners = [(x - half, y - half), (x - half, y + half), (x + half, y + half), (x + half, y - half)]
    return chain([*corners, corners[0]], "obstacle")


def _circle(centre: Point, radius: float) -> list[Piece]:
    angles = -2.0 * np.pi * np.arange(120) / 120
    return closed(np.stack([centre[0] + radius * np.cos(angles), centre[1] + radius * np.sin(angles)], axis=1))


def _two_inlets() -> Flow:
    outer = [
        *chain([(0.0, 0.0), (1.0, 0.0), (1.0 + _RAMP, -1.0)], "wall"),
        *chain([(1.0 + _RAMP, -1.0), (1.8, -1.0)], "wall"),
        Piece.of([(1.8, -1.0), (2.3, -1.0)], "inlet2"),
        *chain([(2.3, -1.0), (4.0, -1.0)], "wall"),
        Piece.of([(4.0, -1.0), (4.0, 1.0)], "outlet"),
        Piece.of([(4.0, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    return _flow(Domain.of(outer), inlet2=Inlet((1.8, -1.0), (2.3, -1.0), 0.5))


def _tee() -> Flow:
    outer = [
        *chain([(0.0, 0.0), (1.5, 0.0), (1.5, -1.5)], "wall"),
        Piece.of([(1.5, -1.5), (2.5, -1.5)], "outlet2"),
        *chain([(2.5, -1.5), (2.5, 0.0), (4.5, 0.0)], "wall"),
        Piece.of([(4.5, 0.0), (4.5, 1.0)], "outlet"),
        Piece.of([(4.5, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    return _flow(Domain.of(outer), outlet2=Outlet())


def _bend() -> Flow:
    shape = Duct().straight(1.0).bend(math.pi / 2, 0.5).straight(2.0).shape()
    return _flow(shape.domain, Inlet((0.0, 0.5), (0.0, -0.5)))


def _contraction() -> Flow:
    outer = [
        *chain([(0.0, 0.0), (1.5, 0.0), (1.5, 0.4), (4.0, 0.4)], "wall"),
        Piece.of([(4.0, 0.4), (4.0, 1.0)], "outlet"),
        Piece.of([(4.0, 1.0), (0.0, 1.0)], "wall"),
        Piece.of([(0.0, 1.0), (0.0, 0.0)], "inlet"),
    ]
    return _flow(Domain.of(outer))


def _cavity() -> Flow:
    outer = [
        *chain([(0.0, 1.0), (0.0, 0.0), (1.0, 0.0), (1.0, 1.0)], "wall"),
        Piece.of([(1.0, 1.0), (0.0, 1.0)], "lid"),
    ]
    conditions: dict[str, Condition] = {"wall": Wall(), "lid": Wall((1.0, 0.0))}
    return Flow("", "trial", Domain.of(outer), conditions, 400.0, MOMENTS, pressure_point=(0.0, 0.0))


def _tilted(degrees: float) -> Flow:
    return _flow(inlet=_inlet("tilted", (round(math.tan(math.radians(degrees)), 6),)))


_MADE: Mapping[str, tuple[str, Callable[[], Flow]]] = {
    "step": ("nothing", _flow),
    "viscosity-double": ("ν × 2", lambda: _flow(reynolds=REYNOLDS / 2)),
    "viscosity-half": ("ν / 2", lambda: _flow(reynolds=2 * REYNOLDS)),
    "viscosity-tenfold": ("ν × 10", lambda: _flow(reynolds=REYNOLDS / 10)),
    "viscosity-fiftyfold": ("ν × 50", lambda: _flow(reynolds=REYNOLDS / 50)),
    "parabolic": ("parabolic inlet", lambda: _flow(inlet=_inlet("parabolic"))),
    "jet": ("inlet with a peak", lambda: _flow(inlet=_inlet("jet", (0.4, 0.3, 0.2)))),
    "tilted-10": ("inlet tilted by 10°", lambda: _tilted(10.0)),
    "tilted-15": ("inlet tilted by 15°", lambda: _tilted(15.0)),
    "tilted-minus-10": ("inlet tilted by −10°", lambda: _tilted(-10.0)),
    "square": ("square obstacle", lambda: _flow(_outline(holes=[_square((1.9, 0.1), 0.3)]))),
    "cylinder": ("round obstacle", lambda: _flow(_outline(holes=[_circle((1.9, 0.2), 0.2)]))),
    "two-inlets": ("second inlet in the floor", _two_inlets),
    "longer": ("duct twice as long", lambda: _flow(_outline(length=6.0))),
    "bend": ("bend by 90°", _bend),
    "half-height": ("step of half the height", lambda: _flow(_outline(height=0.5))),
    "lid-half": ("upper wall moves at 0.5", lambda: _flow(_outline(top="lid"), lid=Wall((0.5, 0.0)))),
    "lid": ("upper wall moves at 1", lambda: _flow(_outline(top="lid"), lid=Wall((1.0, 0.0)))),
    "slip": ("upper wall slips", lambda: _flow(_outline(top="slip"), slip=Slip())),
    "tee": ("tee with two outlets", _tee),
    "straight": ("straight duct", lambda: _flow(_outline(height=0.0))),
    "contraction": ("contraction", _contraction),
    "cavity": ("cavity with a moving lid, Re 400", _cavity),
}
NAMES = tuple(_MADE)


def trial(name: str) -> Trial:
    """One of the trials by its name."""
    if name not in _MADE:
        raise ValueError(f"{name!r} names no trial; there are {', '.join(NAMES)}.")
    changed, make = _MADE[name]
    made = make()
    flow = Flow(
        name,
        made.family,
        made.domain,
        made.conditions,
        made.reynolds,
        made.moments,
        pressure_point=made.pressure_point,
    )
    # Half of them on squares, as in the demo, half on triangles.
    kind = ("lattice", "triangles")[NAMES.index(name) % 2]
    return Trial(changed, flow, meshes.MeshPlan(kind, _POINTS_PER_WIDTH, 1.0, 0))


@dataclass(frozen=True)
class TrialsRecipe(Recipe):
    """The trials as a dataset with one split, "trials".

    Attributes:
        spacing: of the truth's cells, as a factor of that of the plane flows.
        timeout: seconds for each run of a solver.
    """

    dataset: ClassVar[str] = "trials"
    spacing: float = 0.6
    timeout: float = 1800.0

    def settings(self) -> dict[str, Any]:
        return {
            "spacing": self.spacing,
            "points_per_width": _POINTS_PER_WIDTH,
            "rounding": {"u": cases.VELOCITY_STEP, "p": cases.PRESSURE_STEP},
            "program": ", ".join(_PROGRAMS),
        }

    def splits(self) -> dict[str, list[str]]:
        return {"trials": list(NAMES)}

    def check(self, name: str) -> None:
        trial(name)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name,) for name in names]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        for name in names:
            tried = trial(name)
            with tempfile.TemporaryDirectory(prefix=f"penn-{name}-") as scratch:
                found = truth.solve(
                    tried.flow,
                    Path(scratch) / "case",
                    foam.Resolution.of(tried.flow, self.spacing),
                    on_progress=report,
                    timeout=self.timeout,
                )
            mesh = meshes.network_mesh(tried.flow, tried.plan)
            case = cases.case_with_truth(tried.flow, mesh, found, name)
            facts = {
                **facts_of(case),
                "family": "trial",
                "changed": tried.changed,
                "reynolds": tried.flow.reynolds,
                "mesh": {"kind": tried.plan.kind, "points_per_width": tried.plan.points_per_width},
                "truth": {key: each for key, each in found.facts.items() if not key.startswith("seconds")},
            }
            yield Product(name, pack(rounded(case, 12), tried.flow.moments, {"changed": tried.changed}), facts)

    def check_solver(self, names: Sequence[str]) -> None:
        if names:
            running.find_installation(_PROGRAMS)
