"""Rows of the paper's tables that lack steps or weights, with the commands that finish them: for whoever has a GPU.

python lab/benchmarks/short_rows.py                  # what is short, and by how much
python lab/benchmarks/short_rows.py --commands       # a shell script that trains, evaluates and keeps weights
python lab/benchmarks/short_rows.py --commands | sh -e

A row is whole with the steps of its experiment: 20,000 in flow, 160,000 where it follows the authors' protocol, 200 or
2,000 epochs in advection-diffusion. Rows that claims compare have three seeds. A row whose weights were not kept is
listed as well, because second test sets and figures need them. Each command can be stopped and given again: a training
continues where it was, and what is finished is no longer listed.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennlab.paper.tables import WHOLE_STEPS
from pennpde.checkpoints import WEIGHTS
from pennpde.train import Experiment, read

ROOT = Path(__file__).parents[2]
SEEDS: Mapping[str, Mapping[str, Sequence[int]]] = {
    "flow": dict.fromkeys(("penn", "B", "C", "D", "E", "F", "G", "w0"), (0, 1, 2)),
    "advection_diffusion": dict.fromkeys(("penn", "C", "E", "F", "G"), (0, 1, 2)),
}
"""Rows that the paper's claims rest on; one seed of the others."""
SHIPPED = "shipped"
"""Has a budget of its own, and is there."""
CASES: Mapping[str, int] = {"flow": 203, "advection_diffusion": 960}
"""Of the training sets."""
FILES = ("lab/experiments/flow.toml", "lab/experiments/flow_baselines.toml", "lab/experiments/advection_diffusion.toml")
SECOND_TEST_SETS: Mapping[str, tuple[str, str]] = {
    "flow": ("unrelated", "data/flow --unrelated"),
    "advection_diffusion": ("off_lattice", "data/advection_diffusion_off_lattice"),
}
"""By folder of records: name of the record, and what `penn evaluate` is given."""
WHAT: Mapping[str, str] = {
    "paper": "the equations of the paper as printed, its protocol",
    "released": "the network of the authors' code, their protocol",
}
"""In the tables of learning curves."""
IN_THE_PACKAGE = (("advection_diffusion", "penn", 0),)
"""Trainings whose weights come with the package as a shipped network."""


@dataclass(frozen=True)
class Missing:
    """A training that is not whole, or whose weights were not kept.

    Attributes:
        file: Of the experiment, from the repository's root.
        row: Its row.
        seed: Of the training.
        had: Steps of the committed record, or of the one of the paused training.
        wanted: Steps of the whole training.
        by_epochs: Whether they follow from the row's epochs.
        records: Name of the folder of records, and of the dataset.
        frames: Whether it learns from all frames of the flows.
        paused: Archive with the state to continue from, from the repository's root.
    """

    file: str
    row: str
    seed: int
    had: int
    wanted: int
    by_epochs: bool
    records: str
    frames: bool
    paused: str | None

    @property
    def folder(self) -> str:
        """Of the training. The paused ones were packed under these names."""
        return f"runs/{self.records}_{self.row}_{self.seed}"

    @property
    def commands(self) -> list[str]:
        """From the state that is there to the records and the weights in the repository."""
        dataset = f"data/{self.records}"
        kept = f"lab/records/{self.records}/{self.row}/{self.seed}"
        data = f"{dataset}_frames" if self.frames else dataset
        train = ["penn", "train", self.file, "--row", self.row, "--data", data, "--seed", str(self.seed)]
        train += [] if self.by_epochs else ["--steps", str(self.wanted)]
        train += ["--out", self.folder, "--resume"]
        unpacked = [f"test -d {self.folder} || tar -xJf {self.paused} -C runs"] if self.paused else []
        second, of_second = SECOND_TEST_SETS[self.records]
        evaluate = f"penn evaluate {kept}"
        add = ["python", "lab/benchmarks/learning_curves.py", "add", f"protocol_{self.records}", self.row, self.folder]
        curve = [shlex.join([*add, "--what", WHAT[self.row]])] if self.row in WHAT else []
        superseded = [f"rm -rf {self.paused} lab/records/{self.records}/{self.row}_paused"] if self.paused else []
        return [
            "mkdir -p runs",
            *unpacked,
            shlex.join(train),
            f"mkdir -p {kept}",
            f"cp {self.folder}/model.safetensors {self.folder}/config.json {kept}",
            f"{evaluate} {dataset} --json > {kept}.json",
            f"{evaluate} {dataset} --json --transformed > {kept}.moved.json",
            f"{evaluate} {of_second} --json > {kept}.{second}.json",
            *curve,
            *superseded,
        ]


def missing(root: Path = ROOT) -> list[Missing]:
    """All trainings that are not whole, our own rows of flow first."""
    return [
        each
        for file in FILES
        for row, experiment in read(root / file).items()
        if row != SHIPPED
        for each in _of_row(root, file, row, experiment)
    ]


def _of_row(root: Path, file: str, row: str, experiment: Experiment) -> Iterator[Missing]:
    folder, training = experiment.dataset.replace("-", "_"), experiment.training
    records = root / "lab" / "records" / folder
    by_epochs = training.epochs is not None
    wanted = round(training.epochs * CASES[folder] / training.batch_size) if training.epochs else training.steps
    wanted = wanted or WHOLE_STEPS
    for seed in SEEDS[folder].get(row, (0,)):
        had = _steps(records / row / f"{seed}.json")
        kept = (folder, row, seed) in IN_THE_PACKAGE or (records / row / str(seed) / WEIGHTS).is_file()
        if had >= wanted and (kept or folder == "flow"):
            continue
        paused = f"lab/experiments/paused/{folder}_{row}_{seed}.tar.xz"
        archive = paused if (root / paused).is_file() else None
        if archive:
            had = max(had, _steps(records / f"{row}_paused" / f"{seed}.json"))
        yield Missing(file, row, seed, had, wanted, by_epochs, folder, experiment.needs_frames, archive)


def _steps(path: Path) -> int:
    if not path.is_file():
        return 0
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return int(record["training"].get("steps", 0))


def listed(rows: Sequence[Missing]) -> str:
    """For readers."""
    lines = [f"{len(rows)} trainings are missing; --commands prints what finishes them.", ""]
    lines += [f"{'dataset':20} {'row':16} seed {'steps':>8} of {'wanted':>8}"]
    for each in rows:
        wanted = "the same, with weights" if each.had >= each.wanted else f"{each.wanted:8,}"
        paused = f"   continues from {each.paused}" if each.paused else ""
        lines.append(f"{each.records:20} {each.row:16} {each.seed:4} {each.had:8,} of {wanted}{paused}")
    return "\n".join(lines)


def script(rows: Sequence[Missing]) -> str:
    """A shell script; the data with all frames are generated first if a row needs them."""
    lines = []
    if any(each.frames for each in rows):
        lines.append("test -d data/flow_frames || penn generate flow --frames --out data/flow_frames")
    for each in rows:
        lines += [f"# {each.records}, {each.row}, seed {each.seed}: {each.had:,} steps so far", *each.commands]
    if any(each.row in WHAT for each in rows):
        lines.append("python lab/benchmarks/learning_curves.py draw")
    report = "penn report lab/records --times lab/benchmarks/results/tradeoff.json --out docs/results.md"
    return "\n".join([*lines, report] if rows else lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commands", action="store_true", help="print a shell script")
    given = parser.parse_args(arguments)
    rows = missing()
    print(script(rows) if given.commands else listed(rows))


if __name__ == "__main__":
    main()
