"""`penn generate`: one command per dataset."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli.conventions import Output, duration

if TYPE_CHECKING:
    from pennlab.datasets.generate import Summary
    from pennlab.datasets.recipe import Recipe

ABOUT = """Generate a dataset; resumes an interrupted run.

The datasets follow the paper's descriptions. A second run checks the hashes of existing cases and generates the rest. A
case that fails three times is recorded in manifest.json with the end of its log; the other cases continue. At the end
all cases are packed into a few files.
"""
EXAMPLES = [
    "penn generate gradient --out data/gradient",
    "penn generate advection-diffusion --out data/advection_diffusion --workers 2",
    "penn generate advection-diffusion --out data/fine --points 21 --jitter 0.15 --runs data/advection_diffusion/runs",
    "penn generate flow --out data/flow --profile standard --runs /scratch/flow_runs",
    "penn generate flow --out try --only a_0.30 --only b_0.10_0.70 --profile small",
    "penn generate flow --out data/flow_varied --varied --split train --runs /scratch/flow_runs",
    "penn generate flow --out data/flow_frames --frames --scheduler tcp://head:8786",
    "penn generate plane-flow --out data/plane_flow --workers 16",
    "penn generate plane-flow --out try --only step_0012.a --only cavity_0003.b",
    "penn generate plane-flow --out data/plane_flow_made --finished data/plane_flow/finished --no-solve",
]

Out = Annotated[Path, typer.Option(help="Folder of the dataset.", show_default=False)]
Only = Annotated[
    list[str] | None, typer.Option(help="Generate only this case; may be given several times.", show_default=False)
]
Limit = Annotated[int | None, typer.Option(min=1, help="Generate at most this many cases.", show_default=False)]
Profile = Annotated[
    Literal["paper", "standard", "small"],
    typer.Option(help="Resolution of the solver that computes the reference solutions."),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed of the dataset.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Number of processes on this machine; 0: this process, without Dask.",
        show_default="one per processor",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address of a running Dask scheduler to use instead.", show_default=False),
]
Split = Annotated[
    list[str] | None,
    typer.Option(help="Generate only this part, such as validation; may be given several times.", show_default=False),
]
OffLattice = Annotated[
    bool,
    typer.Option("--off-lattice", help="Generate the second test set, with parameters between those of the dataset."),
]
Runs = Annotated[
    Path | None,
    typer.Option(help="Folder where the solver's fine results are kept and reused.", show_default="OUT/runs"),
]


def gradient(
    output: Output,
    out: Out,
    only: Only = None,
    limit: Limit = None,
    seed: Seed = 0,
    cross_terms: Annotated[
        bool, typer.Option("--cross-terms", help="Polynomials with products of different coordinates.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of processes on this machine; 0: this process, without Dask.")
    ] = 0,  # made in less time than processes take to start
    scheduler: Scheduler = None,
) -> dict[str, Any]:
    """Generate polynomials on bricks and their gradients (the paper's first experiment)."""
    from pennlab.datasets.recipes import GradientRecipe

    job = Job(out, only or (), limit, workers, scheduler)
    return job.run(output, GradientRecipe(seed, cross_terms=cross_terms))


def advection_diffusion(
    output: Output,
    out: Out,
    only: Only = None,
    limit: Limit = None,
    profile: Profile = "standard",
    seed: Seed = 0,
    points: Annotated[int, typer.Option(min=3, help="Number of points along each side of the square.")] = 11,
    jitter: Annotated[
        float, typer.Option(min=0.0, max=0.4, help="Largest random shift of interior points, in cell sizes.")
    ] = 0.0,
    off_lattice: OffLattice = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    runs: Runs = None,
) -> dict[str, Any]:
    """Generate advection and diffusion across a square (the paper's second experiment). Needs OpenFOAM."""
    from pennlab.datasets.recipes import AdvectionDiffusionRecipe

    job = Job(out, only or (), limit, workers, scheduler, runs)
    return job.run(output, AdvectionDiffusionRecipe(job.kept_runs, profile, seed, points, jitter, off_lattice))


def flow(
    output: Output,
    out: Out,
    only: Only = None,
    limit: Limit = None,
    profile: Profile = "standard",
    seed: Seed = 0,
    frames: Annotated[bool, typer.Option("--frames", help="Store all 41 times instead of start and end.")] = False,
    varied: Annotated[
        bool,
        typer.Option(
            "--varied", help="Use quads, triangles or both, finer and coarser, instead of the dataset's own meshes."
        ),
    ] = False,
    off_lattice: OffLattice = False,
    split: Split = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    runs: Runs = None,
) -> dict[str, Any]:
    """Generate incompressible flow through ducts (the paper's third experiment). Needs OpenFOAM."""
    from pennlab.datasets.recipes import FlowRecipe

    job = Job(out, only or (), limit, workers, scheduler, runs, split or ())
    return job.run(output, FlowRecipe(job.kept_runs, profile, seed, frames, varied, off_lattice))


def plane_flow(
    output: Output,
    out: Out,
    only: Only = None,
    limit: Limit = None,
    seed: Seed = 0,
    spacing: Annotated[
        float, typer.Option(min=0.25, max=8.0, help="Size of the solver's cells, as a multiple of the dataset's.")
    ] = 1.0,
    finished: Annotated[
        Path | None,
        typer.Option(help="Folder of flows computed before; they are not computed again.", show_default=False),
    ] = None,
    no_solve: Annotated[
        bool, typer.Option("--no-solve", help="Leave out flows that are not in the folder of --finished.")
    ] = False,
    split: Split = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> dict[str, Any]:
    """Generate plane laminar flows of twenty families of shapes, Re 3 to 3000, at several times. Needs OpenFOAM.

    Flows for tests come first, and cheap flows before expensive ones. With --finished and --no-solve the dataset is
    made of finished flows only, in a minute and without OpenFOAM.
    """
    from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe

    if no_solve and finished is None:
        raise typer.BadParameter("--no-solve takes all flows from --finished, such as data/plane_flow/finished.")
    # Workers may run in other folders than this process.
    kept = None if finished is None else str(finished.resolve())
    recipe = PlaneFlowRecipe(seed, spacing, finished=kept, may_solve=not no_solve)
    # Reading an archive takes less time than a process takes to start.
    number = 0 if no_solve and workers is None else workers
    found = Job(out, only or (), limit, number, scheduler, splits=split or ()).run(output, recipe)
    left_out = {name: count for name, count in recipe.left_out().items() if count and (not split or name in split)}
    if left_out and not only:
        words = ", ".join(f"{count} of {name}" for name, count in left_out.items())
        output.say(f"Not in {finished}, and left out: {words} (flows; each has two cases)")
    return {**found, "left_out": left_out}


COMMANDS = {
    "gradient": gradient,
    "advection-diffusion": advection_diffusion,
    "flow": flow,
    "plane-flow": plane_flow,
}


@dataclass(frozen=True)
class Job:
    """Options that all datasets share: folder, cases, workers."""

    out: Path
    only: Sequence[str]
    limit: int | None
    workers: int | None
    scheduler: str | None
    runs: Path | None = None
    splits: Sequence[str] = ()

    @property
    def kept_runs(self) -> str:
        """The folder of the solver's results, absolute: workers may run in other folders than this process."""
        return str((self.runs or self.out / "runs").resolve())

    def run(self, output: Output, recipe: "Recipe") -> dict[str, Any]:
        """Generate the dataset with a progress bar and report the result."""
        from pennlab.datasets.generate import generate

        with output.progress_bar(recipe.dataset) as show:
            summary = generate(
                recipe,
                self.out,
                only=self.only,
                splits=self.splits,
                limit=self.limit,
                workers=self.workers,
                scheduler=self.scheduler,
                on_progress=show,
            )
        return _report(output, summary)


def _report(output: Output, summary: "Summary") -> dict[str, Any]:
    from pennpde.data.storage import MANIFEST, bytes_on_disk, read_manifest

    manifest = read_manifest(summary.folder)
    number, size = len(manifest.cases), bytes_on_disk(summary.folder, manifest)
    output.say(
        f"{summary.folder}: {len(summary.made)} cases generated in {duration(summary.seconds)}, {len(summary.kept)} "
        f"existed; now {number} cases in {len(manifest.files)} files, {size / 1e6:.1f} MB in total",
    )
    if summary.failed:
        first, reason = next(iter(summary.failed.items()))
        raise CasesFailedError(
            f"{len(summary.failed)} cases failed, the first is {first}: {reason}\n{summary.folder / MANIFEST} has the "
            "end of each log. Run the same command again to retry them."
        )
    return {
        "folder": str(summary.folder),
        "made": len(summary.made),
        "kept": len(summary.kept),
        "cases": number,
        "files": len(manifest.files),
        "bytes": size,
        "seconds": summary.seconds,
    }


class CasesFailedError(RuntimeError):
    """Some cases failed; all others were generated."""
