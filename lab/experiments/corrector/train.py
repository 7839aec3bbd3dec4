"""Train the corrector on the runs that `generate.py` made and `runs.py` assembled.

    python lab/experiments/corrector/train.py OUT --runs ASSEMBLED --validation ASSEMBLED --minutes 18

Mean logarithm of the relative errors of u and p over coarse solutions of all kinds; SOAP, a rate that falls as a cosine
over the minutes; averaged weights. On a GPU the whole step is captured and its iterations are compiled. Everything is
in the folder OUT: a checkpoint every minute, from which a second call goes on (with more runs, if more have arrived),
`log.jsonl`, and the averaged weights as `model.safetensors`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from runs import VARIANTS, Runs, read, relative_errors
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pennpde.flow.corrector import corrector
from pennpde.machine import capture
from pennpde.train.steps import Soap

_LEAST = 3e-4
"""Relative errors below this count as this: the targets are not better."""
SHARES = (0.3, 0.1, 0.3, 0.3)
"""How often each coarse solution of a run is drawn: cells as they are with Courant number 4 and with larger ones, cells
split once with small and with large ones."""
_BLOCK = 100
"""Steps between two looks at the clock."""


class Trainer:
    """Steps on one device, with all that they read and write in tensors that stay where they are."""

    def __init__(
        self,
        model: nn.Module,
        averaged: nn.Module,
        runs: Runs,
        *,
        batch: int,
        memory: float,
        seed: int,
        shares: Sequence[float],
    ):
        self.model, self.averaged, self.runs, self.memory = model, averaged, runs, memory
        self.device = runs.run.device
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.gradient = self.parameters[0].new_zeros(sum(each.numel() for each in self.parameters))
        for parameter, part in zip(
            self.parameters, self.gradient.split([each.numel() for each in self.parameters]), strict=True
        ):
            parameter.grad = part.view_as(parameter)
        self.optimizer = Soap(self.parameters, self.gradient, (0.95, 0.98))
        self.generator = torch.Generator().manual_seed(seed)
        self.chosen = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.variants = torch.zeros(batch, dtype=torch.int64, device=self.device)
        self.shares = torch.tensor(shares)
        self.rate = torch.zeros((), device=self.device)
        self.losses = torch.zeros(2, device=self.device)
        self.sums = torch.zeros(3, device=self.device)
        self.graph: Any = None

    def captured(self) -> None:
        """Capture a step, compiled where that works."""
        before = {name: each.clone() for name, each in self.model.state_dict().items()}
        averaged = {name: each.clone() for name, each in self.averaged.state_dict().items()}
        optimizer = {name: each.clone() for name, each in self.optimizer.tensors().items()}
        iterate = self.model.iterate
        for compiled in (True, False):
            try:
                if compiled:
                    self.model.iterate = torch.compile(iterate, dynamic=False, fullgraph=True)
                else:
                    self.model.__dict__.pop("iterate", None)
                self.graph = capture(self._step, lambda: None)
                print("captured", "and compiled" if compiled else "", flush=True)
                break
            except Exception as error:
                print(f"{'compiled ' if compiled else ''}steps were not captured: {error}"[:600], flush=True)
        self.model.__dict__.pop("iterate", None)
        for module, kept in ((self.model, before), (self.averaged, averaged)):
            for name, each in module.state_dict().items():
                each.copy_(kept[name])
        for name, each in self.optimizer.tensors().items():
            each.copy_(optimizer[name])
        self.gradient.zero_()
        self.sums.zero_()

    def _step(self) -> None:
        case, targets, has_level = self.runs.draw(self.chosen, self.variants)
        squares = relative_errors(self.model(case), targets, case, has_level)
        logarithms = {name: 0.5 * torch.log(each + _LEAST**2) for name, each in squares.items()}
        loss = sum(each.mean() for each in logarithms.values()) / 2
        loss.backward()
        size = torch.linalg.vector_norm(self.gradient)
        finite = torch.isfinite(size)
        self.gradient.mul_((1.0 / (size + 1e-6)).clamp(max=1.0))
        self.gradient.copy_(torch.where(finite, self.gradient, 0.0))
        self.optimizer.step(self.rate)
        self.gradient.zero_()
        with torch.no_grad():
            for mean, value in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(value, 1 - self.memory)
            found = torch.stack([logarithms["u"].mean(), logarithms["p"].mean(), size])
            self.sums.add_(torch.where(finite, found, 0.0))

    def steps(self, number: int, rate: float, first: int) -> list[float]:
        """Take steps; mean logarithms of the errors and mean size of the gradient."""
        self.rate.fill_(rate)
        self.sums.zero_()
        shape = number, len(self.chosen)
        drawn = torch.randint(len(self.runs), shape, generator=self.generator).to(self.device)
        variants = torch.multinomial(self.shares, number * shape[1], replacement=True, generator=self.generator)
        variants = variants.reshape(shape).to(self.device)
        for place in range(number):
            self.chosen.copy_(drawn[place])
            self.variants.copy_(variants[place])
            if self.graph is None:
                self._step()
            else:
                self.graph.replay()
            if (first + place + 1) % self.optimizer.refresh_every == 0:
                self.optimizer.refresh()
        return (self.sums / number).tolist()


@torch.no_grad()
def judged(model: nn.Module, runs: Runs, number: int) -> dict[str, float]:
    """By kind of coarse solution medians and geometric means of the errors, before and after."""
    model.eval()
    places = torch.arange(0, len(runs), max(1, len(runs) // number), device=runs.run.device)
    summary: dict[str, float] = {}
    for variant in range(VARIANTS):
        found: dict[str, list[Tensor]] = defaultdict(list)
        for chosen in places.split(16):
            case, targets, has_level = runs.draw(chosen, torch.full_like(chosen, variant))
            fields = {"before": dict(case.initial), "after": model(case)}
            for when, each in fields.items():
                for name, square in relative_errors(each, targets, case, has_level).items():
                    found[f"{name} {when}"].append(square.sqrt())
        errors = {name: torch.cat(each) for name, each in found.items()}
        for name, each in errors.items():
            summary[f"{variant} {name} median"] = float(each.median())
            summary[f"{variant} {name} geometric"] = float(each.log().mean().exp())
        for name in ("u", "p"):
            summary[f"{variant} {name} better"] = float(
                (errors[f"{name} after"] < errors[f"{name} before"]).float().mean()
            )
    model.train()
    return summary


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--runs", type=Path, required=True)
    arguments.add_argument("--validation", type=Path, required=True)
    arguments.add_argument("--minutes", type=float, default=25.0, help="of the whole training, over all calls")
    arguments.add_argument("--call-minutes", type=float, default=1e9, help="of this call")
    arguments.add_argument("--rate", type=float, default=3e-3)
    arguments.add_argument("--batch", type=int, default=16)
    arguments.add_argument("--limit", type=int, help="files of assembled runs")
    arguments.add_argument("--judges", type=int, default=200)
    arguments.add_argument("--memory", type=float, default=0.999, help="of the averaged weights")
    arguments.add_argument("--start", type=Path, help="weights to go on from, such as those of `flow`")
    arguments.add_argument("--shares", nargs=VARIANTS, type=float, default=SHARES, help="of the coarse solutions")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--width", type=int, default=16)
    arguments.add_argument("--iterations", type=int, default=5)
    arguments.add_argument("--hidden", type=int, default=64)
    arguments.add_argument("--slices", type=int, default=16)
    given = arguments.parse_args()
    called = time.time()
    torch.manual_seed(given.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    folder = given.out
    folder.mkdir(parents=True, exist_ok=True)
    shape = {name: getattr(given, name) for name in ("width", "iterations", "hidden", "slices")}
    model, averaged = corrector(**shape).to(given.device), corrector(**shape).to(given.device)
    if given.start is not None:
        model.load_state_dict(load_file(given.start, device=given.device))
    averaged.load_state_dict(model.state_dict())
    runs, validation = read(given.runs, given.device, given.limit), read(given.validation, given.device, given.limit)
    sampling = {"batch": given.batch, "memory": given.memory, "seed": given.seed, "shares": given.shares}
    trainer = Trainer(model, averaged, runs, **sampling)
    checkpoint = folder / "checkpoint.pt"
    spent, step = 0.0, 0
    if checkpoint.exists():
        kept = torch.load(checkpoint, weights_only=True, map_location=given.device)
        spent, step = kept["spent"], kept["step"]
        model.load_state_dict(kept["model"])
        averaged.load_state_dict(kept["averaged"])
        for name, tensor in trainer.optimizer.tensors().items():
            tensor.copy_(kept["optimizer"][name])
        trainer.generator.manual_seed(given.seed + step)
    number = sum(parameter.numel() for parameter in model.parameters())
    print(f"{number} parameters, {len(runs)} snapshots, read in {time.time() - called:.0f} s", flush=True)
    if given.device != "cpu":
        trainer.captured()
        print(f"ready after {time.time() - called:.0f} s", flush=True)

    def keep(row: dict[str, Any]) -> None:
        state = {"model": model.state_dict(), "averaged": averaged.state_dict(), "spent": spent, "step": step}
        torch.save({**state, "optimizer": trainer.optimizer.tensors()}, folder / "checkpoint.new")
        (folder / "checkpoint.new").replace(checkpoint)
        save_file(
            {name: value.contiguous() for name, value in averaged.state_dict().items()}, folder / "model.safetensors"
        )
        (folder / "shape.json").write_text(json.dumps(shape) + "\n", encoding="utf-8")
        with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(row) + "\n")
        print(json.dumps({key: float(f"{value:.4g}") for key, value in row.items()}), flush=True)

    budget, block, checked = 60.0 * given.minutes, _BLOCK if given.device != "cpu" else 5, 0.0
    began, losses = time.time(), []
    while spent < budget and time.time() - called < 60.0 * given.call_minutes:
        rate = given.rate * max(0.5 + 0.5 * math.cos(math.pi * spent / budget), 2e-3) * min(1.0, (step + 1) / 500)
        losses.append(trainer.steps(block, rate, step))
        step += block
        now = time.time()
        spent, began = spent + now - began, now
        if spent - checked > 60.0 or spent >= budget or now - called >= 60.0 * given.call_minutes:
            mean = [sum(each) / len(losses) for each in zip(*losses, strict=True)]
            row = {"step": step, "minutes": spent / 60, "rate": rate, "runs": len(runs)}
            row |= {"training u": math.exp(mean[0]), "training p": math.exp(mean[1]), "gradient": mean[2]}
            keep(row | judged(averaged, validation, given.judges))
            losses.clear()
            checked, began = spent, time.time()


if __name__ == "__main__":
    main()
