"""`penn train`."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output
from pennpde.cli.devices import check_device

if TYPE_CHECKING:
    from pennpde.train import Experiment, Start, TrainingResult

EXAMPLES = [
    "penn train data/mine --from flow --out nets/mine --minutes 30",
    "penn train data/mine --out nets/mine --steps 2000 --rate 1e-3 --seed 1",
    "penn train data/mine --from ducts --freeze encoders --freeze 'equation.geometry.*' --out nets/mine",
    "penn train lab/experiments/flow.toml --data data/flow --out runs/flow",
    "penn train lab/experiments/flow.toml --data data/flow --out runs/flow --resume",
    "penn train lab/experiments/flow.toml --data data/flow --also data/flow_varied --out runs/flow",
    "penn train lab/experiments/flow.toml --row C --data data/flow --out runs/C",
]


def run(
    output: Output,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="DATASET|FILE",
            help="Folder of a dataset, or TOML file with the rows of an experiment.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(help="Folder for the network, the training state, the log and the report.", show_default=False),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the dataset, where a TOML file is given.", show_default=False)
    ] = None,
    row: Annotated[str | None, typer.Option(help="Row of the TOML file to train.", show_default="penn")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NETWORK",
            help="Begin with the weights of this network: name of a shipped one, or folder of your own.",
            show_default=False,
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Keep these parameters as they are, such as encoders or 'equation.geometry.*'; may be repeated.",
            show_default=False,
        ),
    ] = None,
    also: Annotated[
        Path | None, typer.Option(help="Second dataset; its training cases are added.", show_default=False)
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Budget in minutes.", show_default="the row's; for a dataset 30")
    ] = None,
    epochs: Annotated[float | None, typer.Option(help="Budget in epochs.", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="Budget in steps.", show_default=False)] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate at the start.", show_default="the row's or the network's")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the training in the folder, or start one if there is none.")
    ] = False,
    pause_after: Annotated[
        float | None,
        typer.Option(
            help="Save the state and stop after this many minutes; continue with --resume.", show_default=False
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="the row's, or 0")] = None,
    device: Annotated[
        str | None, typer.Option(help="Device, such as cpu or cuda.", show_default="the GPU, if any")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="CPU threads.", show_default="by points per batch and idle cores"),
    ] = None,
    report: Annotated[
        bool | None,
        typer.Option(
            "--report/--no-report",
            help="Write errors, learning curve and pictures of the worst cases at the end.",
            show_default="for a dataset",
        ),
    ] = None,
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="Use deterministic algorithms: bit-identical results in every run.")
    ] = False,
) -> dict[str, Any]:
    """Train a network on a dataset, or a row of an experiment.

    For a dataset, network, scales and settings follow from its kind. The folder always contains the best network so
    far; `penn predict` and `penn evaluate` accept the folder. For several GPUs or machines use `accelerate launch -m
    pennpde train ...` or `torchrun -m pennpde train ...`.
    """
    from pennpde.train import Start
    from pennpde.train import run as run_experiment

    changes = _changes({"minutes": minutes, "epochs": epochs, "steps": steps}, rate, seed, deterministic)
    _check_out(out, data or source)
    check_device(device)
    with _told(output):
        begin = None if start is None else Start.of(start)
        experiment, dataset = _experiment(source, data, row, begin, changes, device)
        trained = run_experiment(
            experiment,
            dataset,
            out,
            also=also,
            start=begin,
            frozen=tuple(freeze or ()),
            resume=resume,
            pause_after=pause_after,
            device=device,
            threads=threads,
            progress=not (output.quiet or output.json),
        )
        result = trained.result
        if not result.is_main:  # only one of several processes prints
            raise typer.Exit
        output.say(*_lines(result), f"Network: {trained.folder}")
        record = {**trained.record, "network_folder": str(trained.folder)}
        if result.signal is not None:
            record["exit_code"] = 128 + result.signal  # as shells have it, so that scripts do not go on
        if result.finished and (report if report is not None else source.is_dir()):
            record["report"] = _report(output, trained.folder, dataset)
    return record


def _experiment(
    source: Path,
    data: Path | None,
    row: str | None,
    start: "Start | None",
    changes: dict[str, Any],
    device: str | None,
) -> tuple["Experiment", Path]:
    from pennpde.train import for_dataset, read_row

    if source.is_dir():
        if data is not None:
            raise typer.BadParameter(f"{source} is the dataset already; --data belongs to a TOML file.")
        if row is not None:
            raise typer.BadParameter(f"--row chooses a row of a TOML file, but {source} is a dataset.")
        return for_dataset(source, start=start, changes=changes, device=device), source
    if not source.exists():
        raise typer.BadParameter(f"There is no dataset and no TOML file {source}.")
    if data is None:
        raise typer.BadParameter(f"{source} is a file of experiments: give the folder of the dataset with --data.")
    experiment = read_row(source, row or "penn", changes)
    if start is not None:
        _check_same(experiment, start, source)
    return experiment, data


def _check_same(experiment: "Experiment", start: "Start", source: Path) -> None:
    """The network that a training begins with has its own architecture; a row must not ask for another."""
    theirs, ours = start.config, experiment
    if theirs.network != ours.network:
        raise typer.BadParameter(
            f"--from {start.name} is a network {theirs.network!r}, but the row {ours.row!r} of {source} trains "
            f"{ours.network!r}. Leave the file out: penn train DATASET --from {start.name}."
        )
    names = sorted(
        name for name in {*theirs.arguments, *ours.arguments} if theirs.arguments.get(name) != ours.arguments.get(name)
    )
    if names:
        pairs = ", ".join(f"{n} = {ours.arguments.get(n)!r} (it has {theirs.arguments.get(n)!r})" for n in names)
        raise typer.BadParameter(
            f"The row {ours.row!r} of {source} asks for another network than --from {start.name}: {pairs}. Leave the "
            f"file out: penn train DATASET --from {start.name}."
        )


def _check_out(out: Path, dataset: Path) -> None:
    if dataset.is_dir() and out.exists() and out.samefile(dataset):
        raise typer.BadParameter(f"--out {out} is the folder of the dataset; choose another for the network.")


def _changes(budgets: dict[str, Any], rate: float | None, seed: int | None, deterministic: bool) -> dict[str, Any]:
    """Settings that replace the row's. A given budget replaces all budgets of the row."""
    changes = budgets if any(value is not None for value in budgets.values()) else {}
    given = {"learning_rate": rate, "seed": seed, "deterministic": deterministic or None}
    return changes | {name: value for name, value in given.items() if value is not None}


def _report(output: Output, folder: Path, dataset: Path) -> dict[str, Any]:
    from pennpde.train.report import write_report
    from pennpde.trust.calibration import FEWEST

    found = write_report(folder, dataset, watch=lambda items, what: output.progress(items, what, total=len(items)))
    output.say(*found.lines(), f"Report: {found.path}")
    if sum(number for split, number in found.cases.items() if split != "train") >= FEWEST:
        output.say(f"For predictions with an expected error: penn calibrate {folder} {dataset}")
    return found.to_plain()


def _lines(result: "TrainingResult") -> list[str]:
    errors = ", ".join(f"{name} {error:.3e}" for name, error in result.best_errors.items())
    ended = {
        "budget": "The budget is used up",
        "early stop": "The validation error no longer improves",
        "paused": "Paused; continue with the same command and --resume",
    }[result.ended]
    return [
        f"{ended}: {result.steps} steps, {result.seconds / 60:.1f} minutes, {result.milliseconds_per_step:.1f} ms each",
        f"  validation at step {result.best_step}: {errors or 'none'}",
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
