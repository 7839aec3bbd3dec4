"""Rows of the flow tables that still lack steps, with the commands that finish them: for whoever has a GPU.

python benchmarks/short_rows.py                  # what is short, and by how much
python benchmarks/short_rows.py --commands       # a shell script that trains, evaluates and keeps weights
python benchmarks/short_rows.py --commands | sh -e

A row is whole with 20,000 steps of eight cases, or as many cases in other batches. Each command can be stopped and
given again: a training continues where it was, and what is finished is no longer listed.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennpde.experiments import Experiment, read
from pennpde.paper.tables import WHOLE_STEPS

ROOT = Path(__file__).parents[1]
SEEDS: Mapping[str, Sequence[int]] = dict.fromkeys(("penn", "C", "E", "F", "G"), (0, 1, 2))
"""Rows that the paper's claims rest on; one seed of the others."""
SHIPPED = "shipped"
"""Has a budget of its own, and is there."""
BASELINES = (
    "mp_pde_20_64",
    "mp_pde_20_128",
    "mp_pde_10_64",
    "mp_pde_10_128",
    "mp_pde_4_128",
    "mp_pde_2_32",
    "mesh_graph_net",
)
"""MP-PDE n = 128 and 64 with windows of 20 and 10, the largest and the smallest of the others, and MeshGraphNet."""


@dataclass(frozen=True)
class Missing:
    """A training that is not whole.

    Attributes:
        file: Of the experiment, from the repository's root.
        row: Its row.
        seed: Of the training.
        had: Steps of the committed record, or of the one of the paused training.
        wanted: Steps of the whole training.
        frames: Whether it learns from all frames of the flows.
        paused: Archive with the state to continue from, from the repository's root.
    """

    file: str
    row: str
    seed: int
    had: int
    wanted: int
    frames: bool
    paused: str | None

    @property
    def folder(self) -> str:
        """Of the training. The paused ones were packed under these names."""
        return f"runs/flow_{self.row}_{self.seed}"

    @property
    def commands(self) -> list[str]:
        """From the state that is there to the record and the weights in the repository."""
        data = "data/flow_frames" if self.frames else "data/flow"
        kept = f"records/flow/{self.row}/{self.seed}"
        train = ["penn", "train", self.file, "--row", self.row, "--data", data, "--seed", str(self.seed)]
        train += ["--steps", str(self.wanted), "--out", self.folder, "--resume"]
        unpacked = [f"test -d {self.folder} || tar -xJf {self.paused} -C runs"] if self.paused else []
        evaluate = f"penn evaluate {kept} data/flow --json"
        superseded = [f"rm -rf {self.paused} records/flow/{self.row}_paused"] if self.paused else []
        return [
            "mkdir -p runs",
            *unpacked,
            shlex.join(train),
            f"mkdir -p {kept}",
            f"cp {self.folder}/model.safetensors {self.folder}/config.json {kept}",
            f"{evaluate} > {kept}.json",
            f"{evaluate} --transformed > {kept}.moved.json",
            *superseded,
        ]


def missing(root: Path = ROOT) -> list[Missing]:
    """All trainings that are not whole, our own rows first."""
    found = []
    for file in ("experiments/flow.toml", "experiments/flow_baselines.toml"):
        for row, experiment in read(root / file).items():
            if row != SHIPPED and (experiment.network not in ("mp-pde", "mesh-graph-net") or row in BASELINES):
                found += _of_row(root, file, row, experiment)
    return found


def _of_row(root: Path, file: str, row: str, experiment: Experiment) -> Iterator[Missing]:
    wanted = experiment.training.steps or WHOLE_STEPS
    for seed in SEEDS.get(row, (0,)):
        records = root / "records" / "flow"
        had = _steps(records / row / f"{seed}.json")
        paused = f"experiments/paused/flow_{row}_{seed}.tar.xz"
        if had < wanted:
            archive = paused if (root / paused).is_file() else None
            if archive:
                had = max(had, _steps(records / f"{row}_paused" / f"{seed}.json"))
            yield Missing(file, row, seed, had, wanted, experiment.needs_frames, archive)


def _steps(path: Path) -> int:
    if not path.is_file():
        return 0
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return int(record["training"].get("steps", 0))


def listed(rows: Sequence[Missing]) -> str:
    """For readers."""
    lines = [f"{len(rows)} trainings are short; --commands prints what finishes them.", ""]
    lines += [f"{'row':16} seed {'steps':>8} of {'wanted':>8}"]
    for each in rows:
        paused = f"   continues from {each.paused}" if each.paused else ""
        lines.append(f"{each.row:16} {each.seed:4} {each.had:8,} of {each.wanted:8,}{paused}")
    return "\n".join(lines)


def script(rows: Sequence[Missing]) -> str:
    """A shell script; the data with all frames are generated first if a row needs them."""
    lines = []
    if any(each.frames for each in rows):
        lines.append("test -d data/flow_frames || penn generate flow --frames --out data/flow_frames")
    for each in rows:
        lines += [f"# {each.row}, seed {each.seed}: {each.had:,} of {each.wanted:,} steps", *each.commands]
    report = "penn report records --times benchmarks/results/tradeoff.json --out docs/results.md"
    return "\n".join([*lines, report] if rows else lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commands", action="store_true", help="print a shell script")
    given = parser.parse_args(arguments)
    rows = missing()
    print(script(rows) if given.commands else listed(rows))


if __name__ == "__main__":
    main()
