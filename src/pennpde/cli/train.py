"""`penn train`."""

import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from pennpde.cli.conventions import Output, check_device

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

_REPORT = 0.2
"""Share of --minutes that the report may take."""


def run(
    output: Output,
    source: Annotated[
        Path, Argument(metavar="DATASET|FILE", help="Folder of a dataset, or TOML file with the rows of an experiment.")
    ],
    out: Annotated[
        Path, Option("--out", "-o", help="Folder for the network, the training state, the log and the report.")
    ],
    data: Annotated[Path | None, Option(help="Folder of the dataset, where a TOML file is given.")] = None,
    row: Annotated[str | None, Option(help="Row of the TOML file to train.", show_default="penn")] = None,
    start: Annotated[
        str | None,
        Option(
            "--from",
            metavar="NETWORK",
            help="Begin with the weights of this network: name of a shipped one, or folder of your own.",
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        Option(
            metavar="PATTERN",
            help="Keep these parameters as they are, such as encoders or 'equation.geometry.*'; may be repeated.",
        ),
    ] = None,
    also: Annotated[Path | None, Option(help="Second dataset; its training cases are added.")] = None,
    minutes: Annotated[
        float | None, Option(help="Budget in minutes, the report included.", show_default="the row's; for a dataset 30")
    ] = None,
    epochs: Annotated[float | None, Option(help="Budget in epochs.")] = None,
    steps: Annotated[int | None, Option(help="Budget in steps.")] = None,
    rate: Annotated[
        float | None, Option(help="Learning rate at the start.", show_default="the row's or the network's")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Continue the training in the folder, or start one if there is none.")
    ] = False,
    pause_after: Annotated[
        float | None, Option(help="Save the state and stop after this many minutes; continue with --resume.")
    ] = None,
    seed: Annotated[int | None, Option(help="Random seed.", show_default="the row's, or 0")] = None,
    device: Annotated[str | None, Option(help="Device, such as cpu or cuda.", show_default="the GPU, if any")] = None,
    threads: Annotated[
        int | None, Option(min=1, help="CPU threads.", show_default="by points per batch and idle cores")
    ] = None,
    report: Annotated[
        bool | None,
        Option(
            "--report/--no-report",
            help="Write errors, learning curve and pictures of the worst cases at the end.",
            show_default="for a dataset",
        ),
    ] = None,
    deterministic: Annotated[
        bool, Option("--deterministic", help="Use deterministic algorithms: bit-identical results in every run.")
    ] = False,
) -> dict[str, Any]:
    """Train a network on a dataset, or a row of an experiment.

    For a dataset, network, scales and settings follow from its kind. The folder always contains the best network so
    far; `penn predict` and `penn evaluate` accept the folder.
    """
    from pennpde.train import Start
    from pennpde.train import run as run_experiment

    reported = report if report is not None else source.is_dir()
    of_report = _REPORT * minutes if minutes is not None and reported else None
    # A given budget replaces all budgets of the row.
    budgets = {
        "minutes": minutes if minutes is None or of_report is None else minutes - of_report,
        "epochs": epochs,
        "steps": steps,
    }
    changes: dict[str, Any] = budgets if any(value is not None for value in budgets.values()) else {}
    given = {"learning_rate": rate, "seed": seed, "deterministic": deterministic or None}
    changes = changes | {name: value for name, value in given.items() if value is not None}
    if (folder := data or source).is_dir() and out.exists() and out.samefile(folder):
        raise BadParameter(f"--out {out} is the folder of the dataset; choose another for the network.")
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
        output.say(*_lines(result), f"Network: {trained.folder}")
        record = {**trained.record, "network_folder": str(trained.folder)}
        if result.signal is not None:
            record["exit_code"] = 128 + result.signal  # as shells have it, so that scripts do not go on
        if result.finished and reported:
            record["report"] = _report(output, trained.folder, dataset, of_report)
    return record


def _experiment(
    source: Path, data: Path | None, row: str | None, start: "Start | None", changes: dict[str, Any], device: str | None
) -> tuple["Experiment", Path]:
    from pennpde.train import for_dataset, read_row

    if source.is_dir():
        if data is not None:
            raise BadParameter(f"{source} is the dataset already; --data belongs to a TOML file.")
        if row is not None:
            raise BadParameter(f"--row chooses a row of a TOML file, but {source} is a dataset.")
        return for_dataset(source, start=start, changes=changes, device=device), source
    if not source.exists():
        raise BadParameter(f"There is no dataset and no TOML file {source}.")
    if data is None:
        raise BadParameter(f"{source} is a file of experiments: give the folder of the dataset with --data.")
    experiment = read_row(source, row or "penn", changes)
    if start is not None:
        _check_same(experiment, start, source)
    return experiment, data


def _check_same(experiment: "Experiment", start: "Start", source: Path) -> None:
    """The network that a training begins with has its own architecture; a row must not ask for another."""
    theirs, ours = start.config, experiment
    if theirs.network != ours.network:
        wrong = (
            f"--from {start.name} is a network {theirs.network!r}, but the row {ours.row!r} of {source} trains "
            f"{ours.network!r}"
        )
    else:
        pairs = [
            f"{name} = {ours.arguments.get(name)!r} (it has {theirs.arguments.get(name)!r})"
            for name in sorted({*theirs.arguments, *ours.arguments})
            if theirs.arguments.get(name) != ours.arguments.get(name)
        ]
        if not pairs:
            return
        wrong = (
            f"The row {ours.row!r} of {source} asks for another network than --from {start.name}: {', '.join(pairs)}"
        )
    raise BadParameter(f"{wrong}. Leave the file out: penn train DATASET --from {start.name}.")


def _report(output: Output, folder: Path, dataset: Path, minutes: float | None) -> dict[str, Any]:
    from pennpde.train.report import write_report
    from pennpde.trust.calibration import FEWEST

    found = write_report(
        folder,
        dataset,
        watch=lambda items, what: output.progress(items, what, total=len(items)),
        seconds=math.inf if minutes is None else 60 * minutes,
    )
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
    kept = result.best_errors and result.steps and not result.best_step
    return [
        f"{ended}: {result.steps} steps, {result.seconds / 60:.1f} minutes, {result.milliseconds_per_step:.1f} ms each",
        f"  validation at step {result.best_step}: {errors or 'none'}",
        *(["  nothing was better than the weights that it began with: these are kept"] if kept else []),
    ]


@contextmanager
def _told(output: Output) -> Iterator[None]:
    """Writes the training's log messages to stderr, one per line."""
    logger, handler = logging.getLogger("pennpde"), _Stderr()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if output.quiet else logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Looked up for each message: while a progress bar is shown, sys.stderr is replaced by one that writes above it.
        sys.stderr.write(self.format(record) + "\n")
        sys.stderr.flush()
