"""`penn train`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from pennpde.training import TrainingResult

EXAMPLES = [
    "penn train experiments/flow.toml --data data/flow --out runs/flow",
    "penn train experiments/flow.toml --data data/flow --out runs/flow --resume",
    "penn train experiments/flow.toml --data data/flow --also data/flow_varied --out runs/flow",
    "penn train experiments/flow.toml --row C --data data/flow --out runs/C",
]


def run(
    output: Output,
    experiment: Annotated[Path, typer.Argument(help="TOML file with the rows of an experiment.", show_default=False)],
    data: Annotated[Path, typer.Option(help="Folder of the dataset.", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder for the network, the training state and the log.", show_default=False)
    ],
    row: Annotated[str, typer.Option(help="Row of the file to train.")] = "penn",
    also: Annotated[
        Path | None, typer.Option(help="Second dataset; its training cases are added.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget in minutes; replaces the row's.", show_default=False)
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(help="Budget in epochs; replaces the row's.", show_default=False)
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps; replaces the row's.", show_default=False)] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the training in the folder, or start one if there is none.")
    ] = False,
    pause_after: Annotated[
        float | None,
        typer.Option(
            help="Save the state and stop after this many minutes; continue with --resume.", show_default=False
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; replaces the row's.", show_default=False)] = None,
    device: Annotated[
        str | None, typer.Option(help="Device, such as cpu or cuda.", show_default="the GPU, if any")
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use deterministic algorithms: bit-identical results in every run.")
    ] = False,
) -> dict[str, Any]:
    """Train a row of an experiment.

    The folder always contains the best network so far; `penn predict` and `penn evaluate` accept the folder. For
    several GPUs or machines use `accelerate launch -m pennpde train ...` or `torchrun -m pennpde train ...`.
    """
    from pennpde.experiments import read_row
    from pennpde.experiments import run as run_experiment

    with _told(output):
        trained = run_experiment(
            read_row(experiment, row),
            data,
            out,
            also=also,
            resume=resume,
            pause_after=pause_after,
            device=device,
            progress=not (output.quiet or output.json),
            changes=_changes({"minutes": minutes, "epochs": epochs, "steps": steps}, seed, deterministic),
        )
    result = trained.result
    if not result.is_main:  # only one of several processes prints
        raise typer.Exit
    output.say(*_lines(result), f"Network: {trained.folder}")
    return {**trained.record, "network_folder": str(trained.folder)}


def _changes(budgets: dict[str, Any], seed: int | None, deterministic: bool) -> dict[str, Any]:
    """Settings that replace the row's. A given budget replaces all budgets of the row."""
    changes = budgets if any(value is not None for value in budgets.values()) else {}
    if seed is not None:
        changes = changes | {"seed": seed}
    return changes | {"deterministic": True} if deterministic else changes


def _lines(result: "TrainingResult") -> list[str]:
    errors = ", ".join(f"{name} {error:.3e}" for name, error in result.best_errors.items())
    ended = {
        "budget": "The budget is used up",
        "early stop": "The validation error no longer improves",
        "paused": "Paused; continue with the same command and --resume",
    }[result.ended]
    return [
        f"{ended}: {result.steps} steps, {result.seconds / 60:.1f} minutes, {result.milliseconds_per_step:.1f} ms each",
        f"  validation at step {result.best_step}: {errors}",
    ]


class _told:  # noqa: N801
    """Writes the training's log messages to stderr, one per line."""

    def __init__(self, output: Output):
        self.logger = logging.getLogger("pennpde")
        self.handler = _Stderr()
        self.level = logging.WARNING if output.quiet else logging.INFO

    def __enter__(self) -> None:
        self.before = self.logger.level
        self.logger.addHandler(self.handler)
        self.logger.setLevel(self.level)

    def __exit__(self, *error: object) -> None:
        self.logger.removeHandler(self.handler)
        self.logger.setLevel(self.before)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Looked up for each message: while a progress bar is shown, sys.stderr is replaced by one that writes above it.
        sys.stderr.write(self.format(record) + "\n")
        sys.stderr.flush()
