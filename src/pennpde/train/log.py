"""Log of a training: rows of a CSV file, TensorBoard if installed, a progress bar."""

from __future__ import annotations

import csv
import logging
import math
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

log = logging.getLogger("pennpde.train")

FILE = "log.csv"
COLUMNS = ("step", "epoch", "seconds", "learning_rate", "loss", "validation")


@dataclass(frozen=True)
class Shown:
    """What a progress bar shows of a training.

    Attributes:
        fraction: Of the budget that is used up.
        loss: Mean of the last steps.
        error: The lowest validation error, None before the first.
        rate: The learning rate.
        per_second: Steps.
    """

    fraction: float
    loss: float
    error: float | None
    rate: float
    per_second: float | None


class Journal:
    """Records of a training, one per validation or event.

    Args:
        folder: Where to write; None: nowhere.
        targets: Names of the predicted fields; each has a column of its own.
        begin: The step that the training starts from; rows after it, of a run that was cut off, are dropped.
        progress: Whether a bar may be shown. It is shown on a terminal and nowhere else.
    """

    def __init__(self, folder: Path | None, targets: tuple[str, ...], begin: int, progress: bool):
        self.columns = (*COLUMNS, *(f"validation_{name}" for name in targets), "event")
        self.rows: list[dict[str, Any]] = []
        self._path = folder / FILE if folder else None
        self._board: Any = None
        self._bar: Any = None
        self._task: Any = None
        if self._path:
            kept = _rows_until(self._path, begin)
            with _named(self._path), self._path.open("w", newline="") as file:
                writer = csv.DictWriter(file, self.columns, extrasaction="ignore", restval="")
                writer.writeheader()
                writer.writerows(kept)
        if folder and find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            with self._board_may_fail():
                self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=begin or None)
        if progress and sys.stderr.isatty() and find_spec("rich"):
            self._bar = _bar()
            self._task = self._bar.add_task(
                "training", total=1.0, loss=math.nan, error=math.nan, rate=math.nan, speed="", left=""
            )

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        self._hook, threading.excepthook = threading.excepthook, self._quiet_hook
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        if self._board:
            with self._board_may_fail():
                self._board.close()
        threading.excepthook = self._hook

    def show(self, shown: Shown, seconds_left: float | None) -> None:
        """Move the progress bar."""
        if self._bar:
            self._bar.update(
                self._task,
                completed=min(1.0, shown.fraction),
                loss=shown.loss,
                error=math.nan if shown.error is None else shown.error,
                rate=shown.rate,
                speed="" if shown.per_second is None else f"{shown.per_second:.3g} steps/s",
                left="" if seconds_left is None else f"{duration(seconds_left)} left",
            )

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a record; what it lacks stays empty."""
        self.rows.append(dict(row))
        if self._path:
            with _named(self._path), self._path.open("a", newline="") as file:
                writer = csv.DictWriter(file, self.columns, restval="")
                writer.writerow(
                    {name: f"{value:.9g}" if isinstance(value, float) else value for name, value in row.items()}
                )
        if self._board:
            with self._board_may_fail():
                for name, value in row.items():
                    if isinstance(value, float) and name not in ("epoch", "seconds"):
                        self._board.add_scalar(name, value, row["step"])
                self._board.flush()

    def tell(self, message: str) -> None:
        log.info(message)

    @contextmanager
    def _board_may_fail(self) -> Iterator[None]:
        """A training does not need TensorBoard's files: where they cannot be written, it goes on without them."""
        try:
            yield
        except OSError as error:
            log.warning(f"TensorBoard's files are no longer written: {error.strerror or error}")
            self._board = None

    def _quiet_hook(self, failed: threading.ExceptHookArgs) -> None:
        # TensorBoard writes in a thread of its own, which raises a second time what `_board_may_fail` has told.
        if not isinstance(failed.exc_value, OSError):
            self._hook(failed)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """What the system says about a file that cannot be written does not name it."""
    try:
        yield
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: {path} could not be written. Make room or mend the folder, then continue (--resume).",
        ) from error


def read(folder: Path) -> list[dict[str, str]]:
    """The rows of a training's CSV file."""
    return _rows_until(folder / FILE, None)


def _rows_until(path: Path, step: int | None) -> list[dict[str, str]]:
    if not path.exists() or step == 0:
        return []
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if step is None or int(row["step"]) <= step]


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.3e}  validation {task.fields[error]:.3e}  rate {task.fields[rate]:.1e}"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(file=sys.stderr),
        transient=True,
    )


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as on a clock."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
