"""Train MeshGraphNet on finished plane flows, for as many processor-minutes as the general network had.

    python lab/experiments/plane_flow/mesh_graph_net.py --out nets/mesh_graph_net --minutes 40

From the start straight to any time: all moments of a case in one pass (`--time late`), or each in its own (`--time
early`), or from moment to moment (`--rollout`). Training cases of both meshes, half of them upside down. Only the
updates count, not the preparation of graphs nor the errors on validation flows: processor-minutes on a CPU, minutes of
the clock on a GPU (`--device cuda`). Interrupted runs continue from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennlab.datasets.plane_flow import finished, flows
from pennlab.datasets.plane_flow.cases import STEADY_PRESSURE, STEADY_VELOCITY
from pennlab.paper.baselines.plane_mesh_graph_net import STEADY, PlaneGraph, PlaneMeshGraphNet
from pennpde import checkpoints
from pennpde.data.vtkhdf import CaseFile
from pennpde.files import write_json
from pennpde.train.steps import Adam, Soap

_NOISE = 0.02
_PRESSURE_WEIGHT = 0.5
_VALIDATION_FLOWS = 20


class Sample:
    """A case with its truth at all moments; the steady state is the last one."""

    def __init__(self, file: CaseFile, device: str) -> None:
        case = file.case
        self.graph = PlaneGraph.of(case).to(device)
        self.times = [*file.times]
        u, p = case.targets["u"].float(), case.targets["p"].float()
        if STEADY_VELOCITY in case.targets:
            self.times.append(STEADY)
            u = torch.cat([u, case.targets[STEADY_VELOCITY].float()[..., None]], dim=-1)
            p = torch.cat([p, case.targets[STEADY_PRESSURE].float()[..., None]], dim=-1)
        self.velocity, self.pressure = u.to(device), p.to(device)

    def errors(self, velocity: Tensor, pressure: Tensor) -> Tensor:
        """Relative L2 errors, those of u before those of p, by moment."""
        truth = self.pressure
        if int(self.graph.pinned.sum()) == 1:  # the level of the pressure is arbitrary
            pressure = pressure - (pressure - truth).mean(dim=0)
        return torch.stack([_relative(velocity, self.velocity), _relative(pressure, truth)])


def _relative(found: Tensor, truth: Tensor) -> Tensor:
    axes = tuple(range(truth.ndim - 1))
    return ((found - truth).square().sum(axes) / truth.square().sum(axes).clamp_min(1e-6) + 1e-8).sqrt()


class Samples:
    """Cases of some flows, each made when it is first asked for."""

    def __init__(self, folder: str, names: list[str], device: str) -> None:
        self.folder, self.names, self.device = folder, names, device
        self.kept: dict[str, Sample] = {}

    def of(self, case: str) -> Sample:
        if case not in self.kept:
            flow = flows.draw_flow(case.rpartition(".")[0], 0)
            for name, file in finished.cases(self.folder, flow).items():
                self.kept[name] = Sample(file, self.device)
        return self.kept[case]


def rolled_out(model: PlaneMeshGraphNet, sample: Sample) -> tuple[Tensor, Tensor]:
    """From moment to moment, each from what was found for the one before."""
    state, before = None, 0.0
    found = []
    for when in sample.times:
        velocity, pressure = model(sample.graph, [when - before], state)
        state, before = (velocity[..., 0], pressure[..., 0]), when
        found.append((velocity, pressure))
    return torch.cat([u for u, _ in found], dim=-1), torch.cat([p for _, p in found], dim=-1)


def loss_of(model: PlaneMeshGraphNet, sample: Sample, generator: np.random.Generator, *, rollout: bool) -> Tensor:
    """Mean relative error of u and, counting less, of p."""
    graph, flip = sample.graph, torch.ones(2, device=sample.velocity.device)
    if generator.integers(2):
        graph, flip = graph.mirrored(), torch.tensor([1.0, -1.0], device=flip.device)
    if not rollout:
        velocity, pressure = model(graph, sample.times)
        errors = sample.errors(velocity * flip[:, None], pressure)
    else:
        place = int(generator.integers(len(sample.times)))
        state, before = None, 0.0
        if place:
            velocity = sample.velocity[..., place - 1] * flip
            velocity = velocity + _NOISE * torch.randn_like(velocity)
            pressure = sample.pressure[..., place - 1]
            pressure = pressure + _NOISE * graph.pressure_scale * torch.randn_like(pressure)
            state, before = (velocity, pressure), sample.times[place - 1]
        velocity, pressure = model(graph, [sample.times[place] - before], state)
        whole_velocity, whole_pressure = sample.velocity.clone(), sample.pressure.clone()
        whole_velocity[..., place], whole_pressure[..., place] = (velocity[..., 0] * flip), pressure[..., 0]
        errors = sample.errors(whole_velocity, whole_pressure)[:, [place]]
    # Where the truth is almost zero a relative error says nothing; such a case must not outweigh the others.
    errors = errors.clamp_max(3.0)
    return errors[0].mean() + _PRESSURE_WEIGHT * errors[1].mean()


@torch.no_grad()
def validated(model: PlaneMeshGraphNet, samples: Samples, *, rollout: bool) -> dict[str, float]:
    """Mean and median over validation flows of the mean over their moments."""
    rows = []
    for name in samples.names[:_VALIDATION_FLOWS]:
        sample = samples.of(f"{name}.a")
        found = rolled_out(model, sample) if rollout else model(sample.graph, sample.times)
        rows.append(sample.errors(*found).mean(dim=1).cpu().numpy())
    mean, median = np.mean(rows, axis=0), np.median(rows, axis=0)
    found = {"u": mean[0], "p": mean[1], "median_u": median[0], "median_p": median[1]}
    return {name: round(float(each), 4) for name, each in found.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--finished", default="data/plane_flow/finished")
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--minutes", type=float, default=40.0, help="of the processor, or of the clock on a GPU")
    arguments.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments.add_argument("--time", choices=("early", "late"), default="late")
    arguments.add_argument("--rollout", action="store_true")
    arguments.add_argument("--optimizer", choices=("adam", "soap"), default="soap")
    arguments.add_argument("--rate", type=float, default=2e-3)
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--blocks", type=int, default=10)
    arguments.add_argument("--batch", type=int, default=2)
    arguments.add_argument("--every", type=float, default=1.0, help="minutes between two checkpoints")
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    shape = {"width": given.width, "blocks": given.blocks, "time": given.time}
    model = PlaneMeshGraphNet(**shape).to(given.device)
    there = set(finished.names(given.finished))
    train, validation = (
        Samples(given.finished, [name for name in flows.splits()[split] if name in there], given.device)
        for split in ("train", "validation")
    )
    clock = time.process_time if given.device == "cpu" else time.perf_counter
    parameters = list(model.parameters())
    gradient = torch.zeros(sum(each.numel() for each in parameters), device=given.device)
    for each, part in zip(parameters, gradient.split([each.numel() for each in parameters]), strict=True):
        each.grad = part.view_as(each)
    optimizer = Adam(parameters, (0.9, 0.98)) if given.optimizer == "adam" else Soap(parameters, gradient, (0.9, 0.98))
    given.out.mkdir(parents=True, exist_ok=True)
    state_file = given.out / "state.pt"
    updates, spent, order = 0, 0.0, []
    curve: list[dict[str, Any]] = []
    if state_file.is_file():
        kept = torch.load(state_file, map_location=given.device, weights_only=True)
        model.load_state_dict(kept["model"])
        for name, tensor in optimizer.tensors().items():
            tensor.copy_(kept["optimizer"][name])
        updates, spent, curve = kept["updates"], kept["seconds"], json.loads(kept["curve"])
    generator = np.random.default_rng((given.seed, updates))
    budget, recent = 60 * given.minutes, []
    logged = spent
    while spent < budget:
        while len(order) < given.batch:
            order += generator.permutation([f"{name}.{mesh}" for name in train.names for mesh in "ab"]).tolist()
        batch = [train.of(order.pop()) for _ in range(given.batch)]
        began = clock()
        gradient.zero_()
        for sample in batch:
            loss = loss_of(model, sample, generator, rollout=given.rollout) / given.batch
            loss.backward()
            recent.append(given.batch * float(loss.detach()))
        norm = float(gradient.norm())
        if math.isfinite(norm):
            gradient.mul_(min(1.0, 1.0 / (norm + 1e-12)))
            share = spent / budget
            warm = min(1.0, (updates + 1) / 50)
            optimizer.step(given.rate * warm * (0.005 + 0.4975 * (1 + math.cos(math.pi * share))))
            if optimizer.refresh_every and updates % optimizer.refresh_every == 0:
                optimizer.refresh()
        updates += 1
        spent += clock() - began
        if spent - logged > 60 * given.every or spent >= budget:
            logged = spent
            line = {"updates": updates, "minutes": round(spent / 60, 2), "loss": round(float(np.mean(recent)), 4)}
            curve.append(line | validated(model, validation, rollout=given.rollout))
            recent = []
            print(json.dumps(curve[-1]), flush=True)
            kept = {"model": model.state_dict(), "optimizer": optimizer.tensors(), "updates": updates}
            torch.save({**kept, "seconds": spent, "curve": json.dumps(curve)}, given.out / "new.pt")
            (given.out / "new.pt").rename(state_file)
    settings = {name: getattr(given, name) for name in ("optimizer", "rate", "batch", "rollout", "minutes")}
    config = checkpoints.Config(
        "plane-mesh-graph-net",
        shape,
        row="mesh_graph_net",
        title=f"MeshGraphNet, {given.blocks} blocks, {given.width} wide",
        dataset={"kind": "plane-flow", "train": len(train.names)},
        seed=given.seed,
        training={"steps": updates, "minutes": round(spent / 60, 1), "device": given.device, "settings": settings},
    )
    checkpoints.save(model, given.out, config)
    write_json(given.out / "curve.json", curve)


if __name__ == "__main__":
    main()
