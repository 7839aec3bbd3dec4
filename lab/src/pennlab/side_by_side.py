"""Several trainings side by side on one GPU, from one process.

    python -m pennlab.side_by_side --out runs --minutes 9 flow/paper/0 advection_diffusion/penn/1 ...

The kernels of one training of these small networks leave most of a GPU idle, and processes would only take turns on it.
So each training is a thread with a stream of its own. One of them at a time talks to the GPU; it gives way while what
it has asked for is being worked on. Those that are given first begin first, and are the last to be left out when the
time is over. Each has its folder with its state: the same command goes on where the last one stopped, and what fails is
told and disturbs no other.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
import tomllib
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import torch

import pennlab.plugin  # noqa: F401  (its networks are registered, also where the package is not installed)
from pennlab.captured import TURNS, CapturedSteps
from pennpde.train import Experiment, read, run

log = logging.getLogger("pennpde.train")

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
_LOOK = 1e-3
"""Seconds between two looks whether a GPU is done."""
_LEAST = 20.0
"""Seconds: a training that would have less is not begun."""
_PRIORITIES = 4
_GRACE = 25.0
"""Seconds for what a training does at its end."""


class Turns:
    """One thread at a time talks to the GPU, in the order in which they ask."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Event] = deque()
        self._owner: int | None = None
        self._lock = threading.Lock()

    def take(self) -> None:
        mine = threading.Event()
        with self._lock:
            if self._owner is None:
                self._owner = threading.get_ident()
                return
            self._waiting.append(mine)
        mine.wait()
        self._owner = threading.get_ident()

    def leave(self) -> None:
        """If it is this thread's turn, it is the next one's now."""
        with self._lock:
            if self._owner != threading.get_ident():
                return
            if self._waiting:
                self._owner = -1  # whoever is woken
                self._waiting.popleft().set()
            else:
                self._owner = None

    def give_way(self) -> None:
        """Let others talk until the GPU has done what the current stream was asked for."""
        done = None
        if torch.cuda.is_available():
            done = torch.cuda.Event()
            done.record()
        while True:
            self.leave()
            if done is not None:
                time.sleep(_LOOK)
            self.take()
            if done is None or done.query():
                return


def experiment_of(name: str) -> tuple[Experiment, str]:
    """From "FILE/ROW/SEED" the experiment and the name of its dataset's folder."""
    file, row, seed = name.split("/")
    experiment = read(EXPERIMENTS / f"{file}.toml")[row]
    training = experiment.training.with_changes({"seed": int(seed)})
    return replace(experiment, training=training), experiment.dataset.replace("-", "_")


class SideBySide:
    """Trainings in threads, all until one time."""

    def __init__(self, names: Sequence[str], data: Path, out: Path, minutes: float, changes: Mapping[str, Any]):
        self.data, self.out, self.changes = data, out, changes
        self.ends = time.monotonic() + 60 * minutes
        self.waiting: SimpleQueue[str] = SimpleQueue()
        for name in names:
            self.waiting.put(name)
        self.turns, self.told, self.begun = Turns(), {}, 0

    def run(self, at_once: int) -> Mapping[str, Any]:
        """What became of each."""
        # A thread that prepares data would keep the others from their next launch for 5 ms each time.
        sys.setswitchinterval(2e-4)
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(at_once)]
        for thread in threads:
            thread.start()
            time.sleep(0.5)  # the first is ready first
        for thread in threads:
            thread.join(max(1.0, self.ends + _GRACE - time.monotonic()))
        return dict(self.told)

    def _work(self) -> None:
        while self.ends - time.monotonic() > _LEAST:
            try:
                name = self.waiting.get_nowait()
            except Empty:
                return
            token = TURNS.set(self.turns)
            try:
                self.told[name] = self._train(name)
            except Exception as error:  # the others go on
                traceback.print_exc()
                self.told[name] = {"error": f"{type(error).__name__}: {error}"}
            finally:
                self.turns.leave()
                TURNS.reset(token)
            log.info(f"{name}: {json.dumps(self.told[name])}")

    def _train(self, name: str) -> Mapping[str, Any]:
        experiment, dataset = experiment_of(name)
        on_gpu = torch.cuda.is_available()
        # What is given first goes first on the GPU, too.
        self.begun += 1
        stream = torch.cuda.Stream(priority=min(0, self.begun - _PRIORITIES)) if on_gpu else None
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            trained = run(
                experiment,
                self.data / dataset,
                self.out / name.replace("/", "_"),
                resume=True,
                pause_after=(self.ends - time.monotonic()) / 60,
                threads=1,
                progress=False,
                stepper=CapturedSteps,
                changes=self.changes,
            )
        told = ("ended", "steps", "best_step", "milliseconds_per_step", "minutes", "validation")
        return {key: trained.record[key] for key in told}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pennlab.side_by_side", description="Train on one GPU.")
    parser.add_argument("names", nargs="+", metavar="FILE/ROW/SEED")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the datasets")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="for a folder each")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, in TOML")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s", datefmt="%H:%M:%S")
    began = time.monotonic()
    changes = tomllib.loads("\n".join(given.set))
    told = SideBySide(given.names, given.data, given.out, given.minutes, changes).run(given.at_once)
    given.out.mkdir(parents=True, exist_ok=True)
    summary = {"seconds": time.monotonic() - began, "trainings": told}
    (given.out / "side_by_side.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # a thread that is late must not hold up the others' results


if __name__ == "__main__":
    main()
