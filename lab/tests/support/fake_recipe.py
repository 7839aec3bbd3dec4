"""A dataset whose cases fail, kill their worker or take their time, as their names say."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from pennlab.datasets.recipe import HopelessError, Product, Recipe, Report
from pennlab.running import InstallationError, OpenFOAMError
from pennpde.case import Case
from pennpde.data.storage import facts_of
from pennpde.data.vtkhdf import pack
from pennpde.mesh import Mesh

SQUARE = ([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], [[0, 1, 2, 3]])


@dataclass(frozen=True)
class FakeRecipe(Recipe):
    """Cases by name: `good_1`, `fails_1` always, `flaky_1` twice, `kills_1` its process always, `killsonce_1` once.

    `hopeless_1` says that it always will, and `known_1` has been known to fail before.

    Attributes:
        marks: folder in which every attempt leaves a file.
    """

    dataset: ClassVar[str] = "fake"
    marks: str
    train: tuple[str, ...] = ("good_0", "good_1", "good_2")
    test: tuple[str, ...] = ("good_3",)
    seed: int = 0
    pause: float = 0.0

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed, "solver": {"tolerance": 1e-6}}

    def splits(self) -> dict[str, list[str]]:
        return {"train": list(self.train), "test": list(self.test)}

    def check(self, name: str) -> None:
        if "_" not in name:
            raise ValueError(f"{name!r} names no fake case; names look like 'good_1'.")

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name,) for name in names]

    def known_failures(self) -> dict[str, dict[str, Any]]:
        names = [name for names in self.splits().values() for name in names]
        return {name: {"error": "known"} for name in names if name.startswith("known")}

    def attempts(self, name: str) -> int:
        return len(list(Path(self.marks).glob(f"{name}.*")))

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        for name in names:
            before = self.attempts(name)
            (Path(self.marks) / f"{name}.{before}").touch()
            behaviour = name.partition("_")[0]
            report(0.5)
            time.sleep(self.pause)
            if behaviour == "kills" or (behaviour == "killsonce" and before == 0):
                time.sleep(0.5)  # Dask takes a death during the start for a reason to start no more
                os.kill(os.getpid(), signal.SIGKILL)
            if behaviour == "fails" or (behaviour == "flaky" and before < 2):
                raise OpenFOAMError("fakeFoam failed.", "first line of the log\nlast line of the log")
            if behaviour == "hopeless":
                raise HopelessError("It diverges, however small the step.", "end of the log")
            if behaviour == "uninstalled":
                raise InstallationError("fakeFoam is not on the PATH. Install it.")
            points = 20_000 if behaviour == "large" else 4
            yield _product(name, points)


def _product(name: str, points: int) -> Product:
    case = Case(Mesh.from_arrays(*SQUARE), initial={"T": float(name.rpartition("_")[2])}, name=name)
    notes = {"noise": torch.rand(points, generator=torch.Generator().manual_seed(0)).tolist()} if points > 4 else {}
    return Product(name, pack(case, notes=notes), facts_of(case))
