"""How the dataset of plane flows is made: each flow once by OpenFOAM, then as two cases on different meshes."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pennlab import running
from pennlab.datasets.plane_flow import cases, cost, finished, flows, foam, meshes, truth
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.recipe import HopelessError, Product, Recipe, Report, rounded
from pennpde.data.storage import facts_of
from pennpde.data.vtkhdf import pack

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
        timeout: seconds for each run of a solver, by the clock: long, since the machine may be busy with other work.
        finished: folder of flows that were computed before; they are taken from there.
        may_solve: whether others are computed. Without, the dataset consists of those in the folder.
    """

    dataset: ClassVar[str] = "plane-flow"
    packed: ClassVar[bool] = False  # moments differ from flow to flow
    seed: int = 0
    spacing: float = 1.0
    timeout: float = 21600.0
    finished: str | None = None
    may_solve: bool = True

    def __post_init__(self) -> None:
        if not self.may_solve and self.finished is None:
            raise ValueError("Without solving anything, flows are taken from archives: name their folder, `finished`.")

    def settings(self) -> dict[str, Any]:
        solver = {
            "schemes": foam.SCHEMES,
            "solvers": foam.SOLVERS,
            "pimple": foam.PIMPLE,
            "steady_schemes": foam.STEADY_SCHEMES,
            "steady_solvers": foam.STEADY_SOLVERS,
            "simple": foam.SIMPLE,
            "courant": foam.LARGEST_COURANT,
            "outer_correctors": {
                "around bodies": foam.OUTER_CORRECTORS_AROUND_BODIES,
                "elsewhere": foam.OUTER_CORRECTORS,
            },
        }
        return {
            "seed": self.seed,
            "spacing": self.spacing,
            "reynolds": list(flows.REYNOLDS),
            "unseen_reynolds": [list(each) for each in flows.UNSEEN_REYNOLDS],
            "kinds_of_mesh": list(meshes.KINDS),
            "points_per_width": list(meshes.POINTS_PER_WIDTH),
            "moments": {"a": "all", "b": "one of the others, and the last"},
            "rounding": {"u": cases.VELOCITY_STEP, "p": cases.PRESSURE_STEP, "significant_bits": SIGNIFICANT_BITS},
            "program": ", ".join(_PROGRAMS),
            "solver": solver,
        }

    def splits(self) -> dict[str, list[str]]:
        found = {
            split: [f"{name}.{mesh}" for name in names for mesh in MESHES] for split, names in flows.splits().items()
        }
        if self.may_solve:
            return found
        return {split: [name for name in names if self._is_known(name)] for split, names in found.items()}

    def left_out(self) -> dict[str, int]:
        """By split, the number of flows that are neither computed nor in the archives."""
        if self.may_solve:
            return {}
        return {
            split: sum(not self._is_known(f"{name}.{MESHES[0]}") for name in names)
            for split, names in flows.splits().items()
        }

    def check(self, name: str) -> None:
        _parsed(name)
        if not self.may_solve and not self._is_known(name):
            raise ValueError(f"{name!r} is not in {self.finished}, and nothing may be computed: leave --no-solve out.")

    def known_failures(self) -> dict[str, dict[str, Any]]:
        if self.finished is None or not self._like_the_archives():
            return {}
        failed = finished.failures(self.finished)
        return {f"{name}.{mesh}": dict(facts) for name, facts in failed.items() for mesh in MESHES}

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """A flow each. Finished ones come first, then those of little cost; flows for tests before others."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(_parsed(name)[0], []).append(name)
        rank = {flow: 0.0 if self._is_finished(flow) else cost.rank(flow, self.seed) for flow in groups}
        return [tuple(groups[flow]) for flow in sorted(groups, key=lambda flow: rank[flow])]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        flow = flows.draw_flow(_parsed(names[0])[0], self.seed)
        if self._is_finished(flow.name):
            made = finished.products(self.finished or "", flow)
            yield from (made[name] for name in names)
            return
        found = self._solve(flow, report)
        for name in names:
            yield self.product(flow, found, name)

    def _solve(self, flow: Flow, report: Report) -> truth.Truth:
        """The truth; a flow that diverges is tried twice more, each time with half the Courant number."""
        resolution = foam.Resolution.of(flow, self.spacing)
        tries = [resolution, resolution.steadier, resolution.steadier.steadier]
        with tempfile.TemporaryDirectory(prefix=f"penn-{flow.name}-") as scratch:
            folder = Path(scratch) / "case"
            for each in tries[:-1]:
                try:
                    return truth.solve(flow, folder, each, on_progress=report, timeout=self.timeout)
                except running.DivergenceError as error:
                    logging.getLogger(__name__).info("%s diverges with Courant %g: %s", flow.name, each.courant, error)
            try:
                return truth.solve(flow, folder, tries[-1], on_progress=report, timeout=self.timeout)
            except running.DivergenceError as error:
                numbers = ", ".join(f"{each.courant:g}" for each in tries)
                said = str(error).splitlines()[0]
                raise HopelessError(
                    f"{flow.name} diverges with Courant numbers up to {numbers}: {said}", error.log_tail
                ) from error

    def product(self, flow: Flow, found: truth.Truth, name: str) -> Product:
        """One case of a flow that has been computed."""
        which = _parsed(name)[1]
        plan = meshes.mesh_plans(flow, self.seed)[MESHES.index(which)]
        mesh = meshes.network_mesh(flow, plan)
        kept = kept_moments(flow, which)
        times = [flow.moments[number] for number in kept]
        case = cases.case_with_truth(flow, mesh, found, name, kept)
        facts = {
            **facts_of(case),
            "family": flow.family,
            "reynolds": flow.reynolds,
            "times": times,
            "start": flow.start,
            "mirrored": flow.mirrored,
            "conditions": {patch: each.describe()["kind"] for patch, each in flow.conditions.items()},
            "profiles": [each.describe()["profile"] for each in flow.conditions.values() if hasattr(each, "profile")],
            "mesh": {"kind": plan.kind, "points_per_width": plan.points_per_width},
            "fingerprints": {"flow": flow.fingerprint(), "mesh": cases.mesh_fingerprint(mesh)},
            "truth": dict(found.facts),
        }
        notes = {"flow": flow.describe(), "mesh": facts["mesh"], "steady": found.steady_velocity is not None}
        return Product(name, pack(rounded(case, SIGNIFICANT_BITS), times, notes), facts)

    def _is_finished(self, flow: str) -> bool:
        return self.finished is not None and self._like_the_archives() and finished.is_finished(self.finished, flow)

    def _is_known(self, name: str) -> bool:
        """Whether a case is in the archives, or is said to be impossible there."""
        flow = _parsed(name)[0]
        return self._is_finished(flow) or flow in finished.failures(self.finished or "")

    def _like_the_archives(self) -> bool:
        """Whether flows are drawn and computed as those in the archives were."""
        return self.spacing == 1.0 and self.seed == 0

    def check_solver(self, names: Sequence[str]) -> None:
        if not all(self._is_finished(_parsed(name)[0]) for name in names):
            running.find_installation(_PROGRAMS)


def kept_moments(flow: Flow, mesh: str) -> list[int]:
    """Numbers of the moments that a case holds: all on the first mesh; on the second the last and one before it.

    Flows of the same family take turns in which one that is. Half of the fields of the second mesh are saved so, and
    no moment of the flow is lost.
    """
    last = len(flow.moments) - 1
    if mesh == MESHES[0] or last < 2:
        return list(range(last + 1))
    return [flows.parse_name(flow.name)[1] % last, last]


def _parsed(name: str) -> tuple[str, str]:
    flow, _, mesh = name.rpartition(".")
    if mesh not in MESHES:
        raise ValueError(f"{name!r} names no case: after the flow comes its mesh, as in 'step_0012.a'.")
    flows.parse_name(flow)
    return flow, mesh
