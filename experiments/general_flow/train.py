"""Train the learned exchange of the general flow network on finished plane flows.

    python experiments/general_flow/train.py --finished data/plane_flow/finished --out nets/general --minutes 40

Each update takes a few training flows at random: from the start to a moment, with cells split as the network splits
them. Gradients go through the last steps. Errors count in units of those of the untrained scheme on the same interval.
Interrupted runs continue from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from pennpde import checkpoints
from pennpde.case import Case
from pennpde.datasets.plane_flow import finished, flows
from pennpde.models.stepping.march import Pace, march, step_limit
from pennpde.models.stepping.network import SteppingFlow, stepping_flow
from pennpde.models.stepping.problem import Problem
from pennpde.models.stepping.scheme import State, advance, begin
from pennpde.prediction.ranges import spanned

_WITH_GRADIENT = 10
_LONGEST = 8.0
_MOST_POINTS = 8_000


@dataclass(frozen=True)
class Interval:
    """From the start to a moment."""

    case: str
    last: int
    splits: int


class Flows:
    """Cases and their problems; the ones used last are kept."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        names = [name for name in finished.names(folder) if int(name.rpartition("_")[2]) < 1000]
        unseen = {"aerofoil", "u-bend", "moving-tee"}
        self.names = [name for name in names if name.rpartition("_")[0] not in unseen]
        self.kept: OrderedDict[str, tuple[Case, tuple[float, ...]]] = OrderedDict()
        self.problems: OrderedDict[tuple[str, int], Problem] = OrderedDict()

    def case(self, name: str) -> tuple[Case, tuple[float, ...]]:
        if name not in self.kept:
            flow = flows.draw_flow(name.rpartition(".")[0], 0)
            for each, file in finished.cases(self.folder, flow).items():
                self.kept[each] = (file.case, tuple(file.times))
        while len(self.kept) > 600:
            self.kept.popitem(last=False)
        return self.kept[name]

    def draw(self, generator: np.random.Generator) -> Interval:
        """From the start to one of the moments, with cells split as the network splits them."""
        while True:
            name = f"{self.names[generator.integers(len(self.names))]}.{'ab'[generator.integers(2)]}"
            case, times = self.case(name)
            splits = stepping_flow().number_of_splits(case)
            early = [place for place, time_ in enumerate(times) if time_ <= _LONGEST]
            if early and case.number_of_points * 4**splits < _MOST_POINTS:
                return Interval(name, early[generator.integers(len(early))], splits)

    def problem(self, model: SteppingFlow, interval: Interval) -> Problem:
        key = (interval.case, interval.splits)
        if key not in self.problems:
            other = stepping_flow(model.exchange.coefficients.layers[0].out_features, splits=interval.splits)
            self.problems[key] = other.problem(self.case(interval.case)[0])
        while len(self.problems) > 300:
            self.problems.popitem(last=False)
        return self.problems[key]


def outcome(model: SteppingFlow, flows_: Flows, interval: Interval, *, corrected: bool) -> torch.Tensor:
    """Relative squared errors of u and p after an interval."""
    case, times = flows_.case(interval.case)
    problem = flows_.problem(model, interval)
    correction = model.exchange if corrected else None
    pace = Pace(courant=model.courant)
    end = times[interval.last]
    with torch.no_grad():
        state = begin(problem)
        step = min(step_limit(problem, state.fluxes, pace.courant), pace.longest)
        # The first steps are short, as in a prediction; soon after the start they are most of the way.
        middle = max(end - _WITH_GRADIENT * step, 0.4 * end)
        for moment in march(problem, state, [middle], correction, pace=pace):
            state = moment.state.detached()
    left = end - middle
    count = max(1, math.ceil(left / step - 1e-9))
    length = torch.full_like(problem.viscosity, left / count)
    for _ in range(count):
        state = advance(problem, state, length, correction)
    return _errors(problem, state, case, interval.last)


def _errors(problem: Problem, state: State, case: Case, last: int) -> torch.Tensor:
    found = []
    for values, name in ((state.velocity.T[problem.places], "u"), (state.pressure[problem.places], "p")):
        truth = case.targets[name][..., last].to(values)
        off = (values - truth).square()
        if name == "p" and problem.poles is not None:
            off = off.index_fill(0, problem.poles[0], 0.0)  # these are given in closed form
        found.append(off.sum() / truth.square().sum().clamp_min(1e-6))
    return torch.stack(found)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--finished", default="data/plane_flow/finished")
    arguments.add_argument("--out", required=True)
    arguments.add_argument("--minutes", type=float, default=40.0)
    arguments.add_argument("--batch", type=int, default=3)
    arguments.add_argument("--rate", type=float, default=3e-3)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    model = stepping_flow()
    data = Flows(given.finished)
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    state_file = folder / "state.pt"
    optimizer = torch.optim.Adam(model.parameters(), given.rate)
    generator = np.random.default_rng(given.seed)
    updates, spent = 0, 0.0
    if state_file.is_file():
        kept = torch.load(state_file, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        updates, spent = kept["updates"], kept["seconds"]
        generator = np.random.default_rng((given.seed, updates))
    began = time.monotonic() - spent
    bases: dict[Interval, torch.Tensor] = {}
    recent: list[tuple[float, float]] = []
    while (spent := time.monotonic() - began) < 60 * given.minutes:
        for group in optimizer.param_groups:
            group["lr"] = given.rate * (0.02 + 0.49 * (1 + math.cos(math.pi * spent / (60 * given.minutes))))
        optimizer.zero_grad()
        for _ in range(given.batch):
            interval = data.draw(generator)
            if interval not in bases:
                with torch.no_grad():
                    bases[interval] = outcome(model, data, interval, corrected=False).clamp_min(1e-5)
            ratio = outcome(model, data, interval, corrected=True) / bases[interval]
            loss = (ratio[0] + 0.5 * ratio[1]).clamp_max(5.0) / given.batch
            if bool(torch.isfinite(loss)) and loss.requires_grad:
                loss.backward()
            else:
                print(f"not finite: {interval}", flush=True)  # noqa: T201
            recent.append((float(ratio[0].detach()), float(ratio[1].detach())))
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if bool(torch.isfinite(norm)):
            optimizer.step()
        updates += 1
        if updates % 20 == 0:
            window = np.array(recent[-60:])
            line = {"updates": updates, "seconds": round(spent, 1), "u": round(float(np.nanmedian(window[:, 0])), 4)}
            line |= {
                "p": round(float(np.nanmedian(window[:, 1])), 4),
                "mean_u": round(float(np.nanmean(window[:, 0])), 4),
            }
            print(json.dumps(line), flush=True)  # noqa: T201
            with (folder / "log.jsonl").open("a") as log:
                log.write(json.dumps(line) + "\n")
            kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "updates": updates}
            torch.save({**kept, "seconds": spent}, folder / "new.pt")
            (folder / "new.pt").rename(state_file)
    ranges = spanned((data.case(f"{name}.a")[0] for name in data.names), model.equation)
    kept_ranges = {name: ends for name, ends in ranges.items() if name in ("space", "Reynolds number")}
    config = checkpoints.Config(
        "flow",
        {"width": 16},
        row="general",
        title="General flow network",
        dataset={"kind": "plane-flow", "train": len(data.names)},
        seed=given.seed,
        training={"steps": updates, "minutes": round(spent / 60, 1), "device": "cpu", "batch": given.batch},
        training_range=kept_ranges,
    )
    checkpoints.save(model, folder, config)


if __name__ == "__main__":
    main()
