"""Recipes of the datasets: settings, splits, and how cases are generated."""

from __future__ import annotations

import json
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from pennlab import running
from pennlab.datasets import advection_diffusion, polynomial
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow import truth as flow_truth
from pennlab.datasets.flow import varied as varied_meshes
from pennlab.datasets.recipe import SINGLE, OtherRunsError, Product, Recipe, Report, rounded
from pennpde.case import Case
from pennpde.data.storage import facts_of
from pennpde.data.vtkhdf import pack

FLOW_BITS = 16
"""Significant bits of the flow's fields: their rounding, 1e-10 in the mean square, is far below the solver's error."""
FRAME_BITS = 11
"""Those of 16-bit floats, for all frames of the flow."""


@dataclass(frozen=True)
class GradientRecipe(Recipe):
    """Polynomials on bricks and their gradients.

    Attributes:
        seed: of the set; each split has its own below it.
        samples: of each split.
        cross_terms: whether polynomials have products of different coordinates.
    """

    dataset: ClassVar[str] = "gradient"
    seed: int = 0
    samples: int = polynomial.SAMPLES
    cross_terms: bool = False

    def settings(self) -> dict[str, Any]:
        seeds = {split: [self.seed, number] for number, split in enumerate(polynomial.SPLITS)}
        shape = {"degree": polynomial.DEGREE, "cell_size": polynomial.CELL_SIZE}
        return {"seed": self.seed, "seeds": seeds, "cross_terms": self.cross_terms, **shape}

    def splits(self) -> dict[str, list[str]]:
        return polynomial.splits(self.samples)

    def check(self, name: str) -> None:
        polynomial.parse_name(name)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [tuple(names[start : start + 5]) for start in range(0, len(names), 5)]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        for number, name in enumerate(names, 1):
            case = polynomial.gradient_case(name, self.seed, self.cross_terms)
            yield _product(case, None)
            report(number / len(names))


@dataclass(frozen=True)
class AdvectionDiffusionRecipe(Recipe):
    """Advection and diffusion across a square.

    Attributes:
        runs: folder of the solver's results, which are used again.
        profile: resolution of the truth.
        seed: of the splits and of the jitter.
        points: along each side of the coarse mesh.
        jitter: of its interior points, as a share of the cell size.
        off_lattice: the second test set, with coefficients that no case of the paper's lattice has.
    """

    dataset: ClassVar[str] = "advection-diffusion"
    runs: str
    profile: str = "standard"
    seed: int = 0
    points: int = advection_diffusion.POINTS
    jitter: float = 0.0
    off_lattice: bool = False

    def settings(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "profile": self.profile,
            "points": self.points,
            "jitter": self.jitter,
            **({"off_lattice": True} if self.off_lattice else {}),
            "times": list(advection_diffusion.TIMES),
            "program": "scalarTransportFoam",
            "solver": advection_diffusion.solver_settings(advection_diffusion.PROFILES[self.profile]),
        }

    def splits(self) -> dict[str, list[str]]:
        return advection_diffusion.splits_off_lattice() if self.off_lattice else advection_diffusion.splits(self.seed)

    def check(self, name: str) -> None:
        advection_diffusion.parse_name(name)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Cases that differ only in the inlet temperature come from one run."""
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(self._run_name(name), []).append(name)
        return [tuple(group) for group in groups.values()]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        run = self._run(names[0], report)
        facts = {"solver": run.facts["solver"], "solver_seconds": round(float(run.facts["seconds"]), 2)}
        for name in names:
            case = advection_diffusion.case_from_run(run, name, self.points, self.jitter, self.seed)
            yield _product(case, advection_diffusion.TIMES, facts=facts)

    def _run(self, name: str, report: Report) -> advection_diffusion.Run:
        path = Path(self.runs) / f"{self._run_name(name)}.h5"
        profile = advection_diffusion.PROFILES[self.profile]
        try:
            run = advection_diffusion.read_run(path)
        except (OSError, ValueError):  # not there yet, or damaged
            velocity, diffusivity, _ = advection_diffusion.parse_name(name)

            def on_progress(progress: running.Progress) -> None:
                report(progress.time / advection_diffusion.END_TIME)

            with _scratch(path) as scratch:
                advection_diffusion.solve(velocity, diffusivity, profile, path, None, on_progress, scratch)
            run = advection_diffusion.read_run(path)
        _check_profile(path, run.facts, asdict(profile))
        return run

    def _run_name(self, name: str) -> str:
        velocity, diffusivity, _ = advection_diffusion.parse_name(name)
        return advection_diffusion.run_name(velocity, diffusivity)

    def check_solver(self, names: Sequence[str]) -> None:
        needed = {self._run_name(name) for name in names}
        if not all(advection_diffusion.has_run(Path(self.runs) / f"{run}.h5") for run in needed):
            advection_diffusion.find_installation()


@dataclass(frozen=True)
class FlowRecipe(Recipe):
    """Incompressible flow through ducts.

    Attributes:
        runs: folder of the solver's results, which are used again.
        profile: resolution of the truth.
        seed: of the splits and of the jitter.
        frames: whether targets hold all 41 times.
        varied: whether each case has a mesh of its own kind and fineness instead of jittered quads.
        off_lattice: the second test set, with design parameters that no case of the lattice has.
    """

    dataset: ClassVar[str] = "flow"
    runs: str
    profile: str = "standard"
    seed: int = 0
    frames: bool = False
    varied: bool = False
    off_lattice: bool = False

    def settings(self) -> dict[str, Any]:
        solver = {
            "profile": asdict(flow.PROFILES[self.profile]),
            "schemes": flow_truth.SCHEMES,
            "solvers": flow_truth.SOLVERS,
            "piso": flow_truth.PISO,
        }
        meshes: dict[str, Any] = {"cells_per_length": flow.CELLS_PER_LENGTH, "jitter": flow.JITTER}
        if self.varied:
            meshes = {
                "kinds_of_mesh": list(varied_meshes.KINDS),
                "cells_per_length": list(varied_meshes.CELLS_PER_LENGTH),
                "jitter": [0.0, varied_meshes.LARGEST_JITTER],
            }
        return {
            "seed": self.seed,
            "profile": self.profile,
            "frames": self.frames,
            **({"off_lattice": True} if self.off_lattice else {}),
            **meshes,
            "times": self._times(),
            "significant_bits": FRAME_BITS if self.frames else FLOW_BITS,
            "program": "potentialFoam, icoFoam",
            "solver": solver,
        }

    def splits(self) -> dict[str, list[str]]:
        return flow.splits_off_lattice() if self.off_lattice else flow.splits(self.seed)

    def check(self, name: str) -> None:
        flow.parse_name(name)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name,) for name in names]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        profile = flow.PROFILES[self.profile]

        def on_progress(progress: running.Progress) -> None:
            report(progress.time / flow.END_TIME)

        for name in names:
            path = self._run_file(name)
            if not flow.is_complete(path):
                with _scratch(path) as scratch:
                    flow.solve(name, profile, path, None, on_progress, scratch)
            run = flow.read_run(path, self.frames)
            _check_profile(path, run.facts, asdict(profile))
            mesh = (varied_meshes.varied_mesh if self.varied else flow.coarse_mesh)(name, self.seed)
            case = flow.case_on_mesh(run, mesh, self.frames)
            facts = {
                "solver": str(run.facts["solver"]),
                "solver_seconds": round(float(run.facts["seconds"]), 1),
                "largest_courant": round(float(run.facts["largest_courant"]), 3),
            }
            yield _product(case, self._times(), FRAME_BITS if self.frames else FLOW_BITS, facts)

    def _times(self) -> list[float]:
        return [round(float(time), 6) for time in flow.TIMES] if self.frames else [flow.END_TIME]

    def _run_file(self, name: str) -> Path:
        return Path(self.runs) / f"{name}.h5"

    def check_solver(self, names: Sequence[str]) -> None:
        if any(not self._run_file(name).exists() for name in names):
            running.find_installation()


def _product(
    case: Case,
    times: Sequence[float] | None,
    significant_bits: int = SINGLE,
    facts: Mapping[str, Any] | None = None,
) -> Product:
    return Product(case.name, pack(rounded(case, significant_bits), times), {**facts_of(case), **(facts or {})})


def _check_profile(path: Path, facts: Mapping[str, Any], profile: Mapping[str, Any]) -> None:
    """Results that took hours are neither overwritten nor passed off as something else."""
    found = json.loads(str(facts["settings"]))["profile"]
    if found != profile:
        raise OtherRunsError(
            f"{path} was computed with {found}, but {dict(profile)} is asked for. Choose the profile that it has, or "
            "another folder with --runs."
        )


@contextmanager
def _scratch(run_file: Path) -> Iterator[Path]:
    """A folder for the solver on this machine's own disk, always the same for one run file.

    A killed process leaves its folder behind, up to 100 MB of it; the next attempt removes that first.
    """
    folder = _scratch_folder(run_file)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _scratch_folder(run_file: Path) -> Path:
    return Path(tempfile.gettempdir()) / f"penn-run-{zlib.crc32(str(run_file.resolve()).encode()):08x}"
