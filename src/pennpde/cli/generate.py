"""`penn generate`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from pennpde.datasets.generate import Status, Summary
    from pennpde.datasets.recipes import Recipe

EXAMPLES = [
    "penn generate gradient --out data/gradient",
    "penn generate advection-diffusion --out data/advection_diffusion --workers 2",
    "penn generate advection-diffusion --out data/fine --points 21 --jitter 0.15 --runs data/advection_diffusion/runs",
    "penn generate flow --out data/flow --profile standard --runs /scratch/flow_runs",
    "penn generate flow --out try --only a_0.30 --only b_0.10_0.70 --profile small",
    "penn generate flow --out data/flow_varied --varied --runs /scratch/flow_runs",
    "penn generate flow --out data/flow_frames --frames --scheduler tcp://head:8786",
]


def run(
    output: Output,
    dataset: Annotated[
        Literal["gradient", "advection-diffusion", "flow"], typer.Argument(help="Which one.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder of the dataset.", show_default=False)],
    only: Annotated[
        list[str] | None, typer.Option(help="Make this case alone; may be given again.", show_default=False)
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Make at most so many cases.", show_default=False)] = None,
    profile: Annotated[
        Literal["paper", "standard", "small"], typer.Option(help="Resolution of the solver that gives the truth.")
    ] = "standard",
    frames: Annotated[bool, typer.Option("--frames", help="Keep all 41 times of the flow.")] = False,
    varied: Annotated[
        bool,
        typer.Option(
            "--varied",
            help="Flow on quads, triangles and both, finer and coarser, instead of the dataset's own meshes.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of splits, jitter and polynomials.")] = 0,
    points: Annotated[
        int | None,
        typer.Option(min=3, help="Points along each side of the square of advection-diffusion.", show_default="11"),
    ] = None,
    jitter: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.4,
            help="How far the interior points of advection-diffusion move at random, in cells.",
            show_default="0",
        ),
    ] = None,
    cross_terms: Annotated[
        bool, typer.Option("--cross-terms", help="Polynomials of the gradient set with products of coordinates.")
    ] = False,
    off_lattice: Annotated[
        bool,
        typer.Option(
            "--off-lattice",
            help="Flow and advection-diffusion: the second test set, between the parameters of the first.",
        ),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Processes on this machine; 0 works in this one, without Dask.",
            show_default="one for each processor; 0 for gradient",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A running Dask scheduler to work on instead.", show_default=False),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Where the solver's fine results are kept and used again.", show_default="OUT/runs"),
    ] = None,
) -> dict[str, Any]:
    """Make a dataset of the paper from nothing, or what an interrupted start has left to do.

    A case appears when it is complete; in the end all are packed into a few files. A second start checks the hashes of
    what is there and makes the rest. A case that fails three times is recorded in manifest.json with the tail of its
    log, and the others go on.
    """
    _refuse_misplaced(
        dataset,
        {"--points": points, "--jitter": jitter},
        {"--frames": frames, "--varied": varied},
        {"--cross-terms": cross_terms},
    )
    if off_lattice and dataset == "gradient":
        raise typer.BadParameter("--off-lattice belongs to flow and advection-diffusion; gradient has no lattice.")
    from pennpde.datasets import recipes
    from pennpde.datasets.generate import generate

    # Workers may run in other folders than this process.
    kept = str((runs or out / "runs").resolve())
    recipe: Recipe
    if dataset == "gradient":
        recipe = recipes.GradientRecipe(seed, cross_terms=cross_terms)
        workers = 0 if workers is None else workers  # made in less time than processes take to start
    elif dataset == "advection-diffusion":
        recipe = recipes.AdvectionDiffusionRecipe(kept, profile, seed, points or 11, jitter or 0.0, off_lattice)
    else:
        recipe = recipes.FlowRecipe(kept, profile, seed, frames, varied, off_lattice)
    with _progress_bar(output, dataset) as show:
        summary = generate(
            recipe, out, only=only or (), limit=limit, workers=workers, scheduler=scheduler, on_progress=show
        )
    return _report(output, summary)


def _refuse_misplaced(dataset: str, square: dict[str, Any], flow: dict[str, Any], gradient: dict[str, Any]) -> None:
    """An option that would have no effect is a mistake."""
    owners = {"advection-diffusion": square, "flow": flow, "gradient": gradient}
    for owner, options in owners.items():
        given = [name for name, value in options.items() if value not in (None, False)]
        if given and owner != dataset:
            raise typer.BadParameter(f"{given[0]} belongs to the dataset {owner}, not to {dataset}.")


@contextmanager
def _progress_bar(output: Output, description: str) -> Iterator[Callable[["Status"], None] | None]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if output.quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Cases take minutes: the speed of the last half minute, rich's default, says nothing.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=1800) as bar:
        task = bar.add_task(description, total=None, failed="")

        def show(status: "Status") -> None:
            over = status.done + status.failed + status.under_way
            failed = f"{status.failed} failed" if status.failed else ""
            bar.update(task, total=status.total, completed=over, failed=failed)

        yield show


def _report(output: Output, summary: "Summary") -> dict[str, Any]:
    from pennpde.datasets.storage import MANIFEST, bytes_on_disk, read_manifest

    manifest = read_manifest(summary.folder)
    number, size = len(manifest.cases), bytes_on_disk(summary.folder, manifest)
    output.say(
        f"{summary.folder}: {len(summary.made)} cases made in {_duration(summary.seconds)}, {len(summary.kept)} were "
        f"there; now {number} in {len(manifest.files)} files of {size / 1e6:.1f} MB altogether",
    )
    if summary.failed:
        first, reason = next(iter(summary.failed.items()))
        raise CasesFailedError(
            f"{len(summary.failed)} cases failed, the first is {first}: {reason}\n{summary.folder / MANIFEST} has the "
            "tail of each log. Start the same command again to try them once more."
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
    """Some cases failed. All others are there."""


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
