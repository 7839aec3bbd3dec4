"""What a training keeps in its folder: its state, to resume it, and its log.

The state is one file, tensors and JSON in the header; nothing is unpickled. The progress bar shows what the log says.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from pennpde.case import Case
from pennpde.files import write_atomically

log = logging.getLogger("pennpde.train")

FORMAT = 1
STATE, LOG = "state.safetensors", "log.csv"
COLUMNS = ("step", "epoch", "seconds", "learning_rate", "loss", "validation")


@dataclass(frozen=True, eq=False)
class State:
    """A training between two steps."""

    plain: Mapping[str, Any]
    """Step, seconds, course, settings ..., in JSON's terms."""
    tensors: Mapping[str, Tensor]
    """Weights, best weights, the optimizer's state, states of random numbers; by "kind/name"."""

    def part(self, kind: str) -> dict[str, Tensor]:
        """The tensors of one kind, by name."""
        start = f"{kind}/"
        return {name.removeprefix(start): each for name, each in self.tensors.items() if name.startswith(start)}


def save(state: State, folder: Path) -> None:
    """Write the state atomically: a reader, also after a crash, finds the old or the new one complete."""
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    plain = json.dumps({"format": FORMAT, **state.plain})
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.tensors.items()}
    write_atomically(folder / STATE, to_bytes(tensors, metadata={"pennpde_training": plain}))


def load(folder: Path) -> State | None:
    """The state of the training in a folder; None where there is none."""
    from safetensors import SafetensorError, safe_open

    path = folder / STATE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            plain = json.loads((file.metadata() or {})["pennpde_training"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not the state of a training, or it is damaged ({error}). Remove it to start again."
        ) from error
    if plain.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {plain.get('format')}, this version of pennpde reads {FORMAT}: continue it with the "
            "version that began it, or start again in another folder."
        )
    return State(plain, tensors)


def fingerprint(cases: Sequence[Case]) -> str:
    """A hash of names, points and targets: equal if two trainings see the same data."""
    digest = hashlib.sha256()
    for case in cases:
        digest.update(case.name.encode())
        digest.update(case.mesh.points.detach().cpu().numpy().tobytes())
        for name, target in sorted(case.targets.items()):
            digest.update(name.encode())
            digest.update(target.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class Journal:
    """Records of a training, one per validation or event.

    Args:
        folder: Where to write; None: nowhere.
        targets: Names of the predicted fields; each has a column of its own.
        begin: The step that the training starts from; rows after it, of a run that was cut off, are dropped.
        progress: Whether a bar may be shown. It is shown on a terminal and nowhere else.
    """

    def __init__(self, folder: Path | None, targets: Sequence[str], begin: int, progress: bool):
        self.columns = (*COLUMNS, *(f"validation_{name}" for name in targets), "event")
        self.rows: list[dict[str, Any]] = []
        self._path = folder / LOG if folder else None
        self._bar: Any = None
        before = read_log(folder) if folder and begin else []
        self._written: list[Mapping[str, Any]] = [row for row in before if int(row["step"]) <= begin]
        self._store()
        if progress and sys.stderr.isatty():
            self._bar = _bar()
            unknown = {"loss": math.nan, "error": math.nan, "rate": math.nan, "speed": "", "left": ""}
            self._task = self._bar.add_task("training", total=1.0, **unknown)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, **shown: Any) -> None:
        """Move the progress bar, see `_bar`."""
        if self._bar:
            self._bar.update(self._task, **shown)

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a record; what it lacks stays empty."""
        self.rows.append(dict(row))
        self._written.append({name: f"{each:.9g}" if isinstance(each, float) else each for name, each in row.items()})
        self._store()

    def _store(self) -> None:
        if self._path:
            text = io.StringIO()
            writer = csv.DictWriter(text, self.columns, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(self._written)
            write_atomically(self._path, text.getvalue())


def read_log(folder: Path) -> list[dict[str, str]]:
    """The rows of a training's CSV file."""
    if not (folder / LOG).exists():
        return []
    with (folder / LOG).open(newline="") as file:
        return list(csv.DictReader(file))


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
