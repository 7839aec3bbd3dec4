"""Train the corrector on the coarse-grid solutions that `data.py` made.

    python lab/experiments/corrector/train.py NAME [--minutes 35] [--width 24 ...]

Mean logarithm of the relative errors of u and p, AdamW with a cosine over the minutes, averaged weights. Everything is
in `runs/corrector/NAME`: a checkpoint every two minutes, from which a second call goes on, and `log.jsonl`. The
averaged weights are `model.safetensors`. One core, or `--device cuda`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from data import ARCHIVES, DATA, ROOT
from snapshots import Run, has_level, read, relative_errors
from torch import Tensor, nn

from pennlab.datasets.plane_flow import finished, flows
from pennpde.case import Case, batch
from pennpde.flow.corrector import corrector

_LEAST = 5e-4
"""Relative errors below this count as this: the dataset rounds its fields to half a thousandth."""
_AVERAGED = 0.998
_CHECK_EVERY = 120.0


def runs_of(split: str, limit: int | None, most_points: int | None, device: str) -> list[Run]:
    """All runs of a split whose coarse solutions exist and are finite."""
    there = set(finished.names(ARCHIVES))
    names = [name for name in flows.splits()[split] if name in there and (DATA / split / f"{name}.npz").exists()]
    found = []
    for name in names[:limit]:
        for run in read(split, name, most_points=most_points).values():
            if all(bool(torch.isfinite(values).all()) for values in run.fields.values()):
                found.append(run if device == "cpu" else moved(run, device))
    return found


def moved(run: Run, device: str) -> Run:
    def each(fields: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values.to(device) for name, values in fields.items()}

    return Run(run.case.to(device=device), each(run.fields), each(run.targets), run.times, run.seconds)


def together(cases: list[Case]) -> tuple[Case, Tensor]:
    """Snapshots as one batch, and where the level of the pressure counts."""
    levels = torch.tensor([float(has_level(case)) for case in cases], device=cases[0].device)
    return batch(cases), levels


class Draws:
    """Endless mini-batches: every epoch each run once, at a time of its own; cases of a batch have like conditions."""

    def __init__(self, runs: list[Run], size: int, seed: int):
        self.groups: dict[tuple[str, ...], list[Run]] = defaultdict(list)
        for run in runs:
            self.groups[tuple(sorted(run.case.slip))].append(run)
        self.size, self.random, self.waiting = size, random.Random(seed), []

    def next(self) -> list[Case]:
        if not self.waiting:
            for group in self.groups.values():
                self.random.shuffle(group)
                self.waiting += [group[begin : begin + self.size] for begin in range(0, len(group), self.size)]
            self.random.shuffle(self.waiting)
        return [run.at(self.random.randrange(len(run.times))) for run in self.waiting.pop()]


def loss_of(model: nn.Module, cases: list[Case]) -> tuple[Tensor, dict[str, float]]:
    joined, levels = together(cases)
    squares = relative_errors(model(joined), joined, levels)
    logarithms = {name: 0.5 * torch.log(each + _LEAST**2) for name, each in squares.items()}
    means = {name: each.mean() for name, each in logarithms.items()}
    return (means["u"] + means["p"]) / 2, {name: float(each.detach()) for name, each in means.items()}


@torch.no_grad()
def judged(model: nn.Module, cases: list[Case]) -> dict[str, float]:
    """Medians and geometric means of the errors over single cases, and the share that became better."""
    model.eval()
    found: dict[str, list[float]] = defaultdict(list)
    for case in cases:
        joined, levels = together([case])
        before, after = (relative_errors(dict(each), joined, levels) for each in (joined.initial, model(joined)))
        for name in ("u", "p"):
            found[f"{name} before"].append(float(before[name].sqrt()))
            found[name].append(float(after[name].sqrt()))
    model.train()
    summary = {f"median {name}": float(torch.tensor(each).median()) for name, each in found.items()}
    summary |= {f"geometric {name}": float(torch.tensor(each).log().mean().exp()) for name, each in found.items()}
    better = {name: [a < b for a, b in zip(found[name], found[f"{name} before"], strict=True)] for name in ("u", "p")}
    return summary | {f"better {name}": sum(each) / len(each) for name, each in better.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("name")
    arguments.add_argument("--minutes", type=float, default=35.0)
    arguments.add_argument("--rate", type=float, default=2e-3)
    arguments.add_argument("--decay", type=float, default=1e-4)
    arguments.add_argument("--batch", type=int, default=6)
    arguments.add_argument("--most-points", type=int, default=1600)
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--judges", type=int, default=80)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--width", type=int, default=24)
    arguments.add_argument("--iterations", type=int, default=6)
    arguments.add_argument("--hidden", type=int, default=96)
    arguments.add_argument("--slices", type=int, default=24)
    arguments.add_argument("--solver", default="barzilai-borwein")
    given = arguments.parse_args()
    torch.manual_seed(given.seed)
    if given.device == "cpu":
        torch.set_num_threads(1)
    folder = ROOT / "runs" / "corrector" / given.name
    folder.mkdir(parents=True, exist_ok=True)
    shape = {name: getattr(given, name) for name in ("width", "iterations", "hidden", "slices", "solver")}
    model, averaged = corrector(**shape).to(given.device), corrector(**shape).to(given.device)
    averaged.load_state_dict(model.state_dict())
    optimizer = torch.optim.AdamW(model.parameters(), given.rate, betas=(0.9, 0.98), weight_decay=given.decay)
    spent, step = _resumed(folder, model, averaged, optimizer)
    began = time.time()
    draws = Draws(runs_of("train", given.limit, given.most_points, given.device), given.batch, given.seed + step)
    validation = runs_of("validation", None, given.most_points, given.device)
    judges = [run.at(place % len(run.times)) for place, run in enumerate(validation)][: given.judges]
    number = sum(parameter.numel() for parameter in model.parameters())
    sizes = {key: len(group) for key, group in draws.groups.items()}
    print(f"{number} parameters, runs {sizes}, read in {time.time() - began:.0f} s", flush=True)

    budget = 60.0 * given.minutes
    checked = began = time.time()
    losses: dict[str, list[float]] = defaultdict(list)
    while spent < budget:
        rate = given.rate * (0.5 + 0.5 * math.cos(math.pi * spent / budget)) * min(1.0, (step + 1) / 100)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, parts = loss_of(model, draws.next())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        size = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if bool(torch.isfinite(size)):
            optimizer.step()
        step += 1
        share = min(_AVERAGED, step / (step + 10))
        with torch.no_grad():
            for mean, value in zip(averaged.parameters(), model.parameters(), strict=True):
                mean.lerp_(value, 1 - share)
        for name, value in {**parts, "size": float(size)}.items():
            losses[name].append(value)
        now = time.time()
        spent, began = spent + now - began, now
        if now - checked > _CHECK_EVERY or spent >= budget:
            row: dict[str, Any] = {"step": step, "minutes": round(spent / 60, 2), "rate": rate}
            row |= {f"training {name}": math.exp(_mean(each)) for name, each in losses.items() if name != "size"}
            row |= {"gradient": _mean(losses["size"]), **judged(averaged, judges)}
            _checkpoint(folder, model, averaged, optimizer, spent, step, {**shape, "seed": given.seed}, row)
            print(json.dumps({key: round(value, 5) for key, value in row.items()}), flush=True)
            losses.clear()
            checked = began = time.time()


def _mean(values: list[float]) -> float:
    return sum(values) / max(len(values), 1)


def _checkpoint(
    folder: Path,
    model: nn.Module,
    averaged: nn.Module,
    optimizer: torch.optim.Optimizer,
    spent: float,
    step: int,
    shape: dict[str, Any],
    row: dict[str, Any],
) -> None:
    from safetensors.torch import save_file

    state = {"model": model.state_dict(), "averaged": averaged.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**state, "spent": spent, "step": step}, folder / "checkpoint.new")
    (folder / "checkpoint.new").replace(folder / "checkpoint.pt")
    save_file({name: value.contiguous() for name, value in averaged.state_dict().items()}, folder / "model.safetensors")
    (folder / "shape.json").write_text(json.dumps(shape) + "\n", encoding="utf-8")
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def _resumed(
    folder: Path, model: nn.Module, averaged: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[float, int]:
    """Seconds and steps so far; states are taken from the checkpoint, where there is one."""
    path = folder / "checkpoint.pt"
    if not path.exists():
        return 0.0, 0
    kept = torch.load(path, weights_only=True)
    model.load_state_dict(kept["model"])
    averaged.load_state_dict(kept["averaged"])
    optimizer.load_state_dict(kept["optimizer"])
    return kept["spent"], kept["step"]


if __name__ == "__main__":
    main()
