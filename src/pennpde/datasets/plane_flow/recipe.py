"""How the dataset of plane flows is made: each flow once by OpenFOAM, then as two cases on different meshes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pennpde import openfoam
from pennpde.datasets.plane_flow import cases, finished, flows, foam, meshes, truth
from pennpde.datasets.plane_flow.flow import Flow
from pennpde.datasets.recipes import Product, Recipe, Report
from pennpde.datasets.storage import facts_of
from pennpde.datasets.vtkhdf import pack

SIGNIFICANT_BITS = 12
MESHES = ("a", "b")
"""The two meshes of a flow; the case `step_0012.b` is the flow `step_0012` on its second mesh."""
_PROGRAMS = ("pimpleFoam", "simpleFoam")


@dataclass(frozen=True)
class PlaneFlowRecipe(Recipe):
    """Plane laminar flows of many shapes, Reynolds numbers, conditions and times.

    Attributes:
        seed: from which all flows are drawn.
        spacing: of the truth's cells, as a factor; 1 is the dataset's.
        timeout: seconds for each run of a solver.
        finished: folder of flows that were computed before; they are taken from there.
    """

    dataset: ClassVar[str] = "plane-flow"
    seed: int = 0
    spacing: float = 1.0
    timeout: float = 1800.0
    finished: str | None = None

    def settings(self) -> dict[str, Any]:
        solver = {
            "schemes": foam.SCHEMES,
            "solvers": foam.SOLVERS,
            "pimple": foam.PIMPLE,
            "steady_schemes": foam.STEADY_SCHEMES,
            "steady_solvers": foam.STEADY_SOLVERS,
            "simple": foam.SIMPLE,
            "courant": foam.LARGEST_COURANT,
        }
        return {
            "seed": self.seed,
            "spacing": self.spacing,
            "reynolds": list(flows.REYNOLDS),
            "unseen_reynolds": [list(each) for each in flows.UNSEEN_REYNOLDS],
            "kinds_of_mesh": list(meshes.KINDS),
            "points_per_width": list(meshes.POINTS_PER_WIDTH),
            "rounding": {"u": cases.VELOCITY_STEP, "p": cases.PRESSURE_STEP, "significant_bits": SIGNIFICANT_BITS},
            "program": ", ".join(_PROGRAMS),
            "solver": solver,
        }

    def splits(self) -> dict[str, list[str]]:
        return {
            split: [f"{name}.{mesh}" for name in names for mesh in MESHES] for split, names in flows.splits().items()
        }

    def check(self, name: str) -> None:
        _parsed(name)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(_parsed(name)[0], []).append(name)
        return [tuple(group) for group in groups.values()]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        flow = flows.draw_flow(_parsed(names[0])[0], self.seed)
        if self._is_finished(flow.name):
            made = finished.products(self.finished or "", flow)
            yield from (made[name] for name in names)
            return
        with tempfile.TemporaryDirectory(prefix=f"penn-{flow.name}-") as scratch:
            found = truth.solve(
                flow,
                Path(scratch) / "case",
                foam.Resolution(self.spacing),
                on_progress=report,
                timeout=self.timeout,
            )
        for name in names:
            yield self.product(flow, found, name)

    def product(self, flow: Flow, found: truth.Truth, name: str) -> Product:
        """One case of a flow that has been computed."""
        plan = meshes.mesh_plans(flow, self.seed)[MESHES.index(_parsed(name)[1])]
        mesh = meshes.network_mesh(flow, plan)
        case = cases.case_with_truth(flow, mesh, found, name)
        facts = {
            **facts_of(case),
            "family": flow.family,
            "reynolds": flow.reynolds,
            "times": list(flow.moments),
            "start": flow.start,
            "mirrored": flow.mirrored,
            "conditions": {patch: each.describe()["kind"] for patch, each in flow.conditions.items()},
            "profiles": [each.describe()["profile"] for each in flow.conditions.values() if hasattr(each, "profile")],
            "mesh": {"kind": plan.kind, "points_per_width": plan.points_per_width},
            "fingerprints": {"flow": flow.fingerprint(), "mesh": cases.mesh_fingerprint(mesh)},
            "truth": dict(found.facts),
        }
        notes = {"flow": flow.describe(), "mesh": facts["mesh"], "steady": found.steady_velocity is not None}
        return Product(name, pack(case, flow.moments, SIGNIFICANT_BITS, notes), facts)

    def _is_finished(self, flow: str) -> bool:
        # Those in the archives were computed with the dataset's own spacing.
        return self.finished is not None and self.spacing == 1.0 and finished.is_finished(self.finished, flow)

    def check_solver(self, names: Sequence[str]) -> None:
        if not all(self._is_finished(_parsed(name)[0]) for name in names):
            openfoam.find_installation(_PROGRAMS)


def _parsed(name: str) -> tuple[str, str]:
    flow, _, mesh = name.rpartition(".")
    if mesh not in MESHES:
        raise ValueError(f"{name!r} names no case: after the flow comes its mesh, as in 'step_0012.a'.")
    flows.parse_name(flow)
    return flow, mesh
