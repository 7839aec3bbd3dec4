"""Many flows at a time: how many of different meshes and Reynolds numbers a GPU marches and corrects in a second.

The flows of `data/plane_flow/finer`, each some times with another viscosity and stretched to another shape, to their
own times. Measured apart: what processor cores prepare, the march for batches of several sizes and blocks of threads of
several sizes, the network's correction, and whole predictions on the CPU, one process a core, as floor. Marches are
compared with those of the CPU.

    python lab/benchmarks/flows_together.py --device cuda --processes 16 [--output FILE]

Writes `lab/benchmarks/results/flows_together.json`.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from general_flow_speed import duct

import pennpde
from pennlab.datasets.plane_flow import finished, flows
from pennpde.case import Case, batch
from pennpde.files import write_json
from pennpde.flow import marched_together
from pennpde.flow.coarse_march import FAST
from pennpde.flow.compiled import CompiledSteps
from pennpde.flow.march import Pace, march
from pennpde.flow.marched_together import Together
from pennpde.flow.problem import Problem
from pennpde.flow.scheme import FlowScheme
from pennpde.flow.step import begin
from pennpde.machine import device_name, wait_for
from pennpde.penn.predictor import seen_by

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "flows_together.json"
FINER = ROOT / "data" / "plane_flow" / "finer"
COURANT = 4.0
SMALLEST, LARGEST = 1_000, 2_200
"""Points of the meshes."""


@cache
def bases() -> list[tuple[Case, tuple[float, ...]]]:
    files = [next(iter(finished.cases(FINER, flows.draw_flow(name, 0)).values())) for name in finished.names(FINER)]
    fitting = [each for each in files if SMALLEST <= each.case.number_of_points <= LARGEST]
    return [(replace(each.case, targets={}), tuple(each.times)) for each in fitting]


def varied(number: int) -> tuple[Case, tuple[float, ...]]:
    """A flow of its own: one of the data's, thicker or thinner and of another shape."""
    case, times = bases()[number % len(bases())]
    drawn = np.random.default_rng(number).uniform(size=2)
    viscosity = case.parameters["viscosity"] * float(1.5 ** (2 * drawn[0] - 1))
    stretch = torch.tensor([1.0, 0.92 + 0.16 * float(drawn[1])], dtype=case.mesh.points.dtype)
    mesh = case.mesh.with_points(case.mesh.points * stretch)
    return replace(case, mesh=mesh, parameters={**case.parameters, "viscosity": viscosity}), times


def prepared(numbers: Sequence[int]) -> tuple[bytes, float]:
    """Problems of flows with their times, and the processor seconds that they took."""
    torch.set_num_threads(1)
    cases = [varied(number) for number in numbers]
    scheme, found = FlowScheme(splits=0, courant=COURANT), []
    seen_by(scheme, varied(0)[0])
    began = time.process_time()
    for case, times in cases:
        seen = seen_by(scheme, case)
        found.append((scheme.problem(seen.case), [each / seen.time for each in times]))
    return pickle.dumps(found), time.process_time() - began


def whole(numbers: Sequence[int]) -> tuple[int, float]:
    """Flows that one core predicts, with their expected errors, and its seconds."""
    torch.set_num_threads(1)
    network = pennpde.load_pretrained("flow")
    network.set_level(FAST)  # pyright: ignore[reportCallIssue]
    first, times = varied(numbers[0])
    pennpde.predict(network, first, times=list(times))
    began = time.perf_counter()
    for number in numbers[1:]:
        case, times = varied(number)
        pennpde.predict(network, case, times=list(times))
    return len(numbers) - 1, time.perf_counter() - began


def in_parts(work: Callable[[Sequence[int]], Any], flows: int, processes: int) -> tuple[list[Any], float]:
    parts = [part.tolist() for part in np.array_split(np.arange(flows), processes) if len(part)]
    began = time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, parts)), time.perf_counter() - began


def on_device(device: torch.device, work: Callable[[], Any]) -> tuple[Any, float]:
    wait_for(device)
    began = time.perf_counter()
    found = work()
    wait_for(device)
    return found, time.perf_counter() - began


def marched(parts: Sequence[tuple[Problem, list[float]]], device: torch.device, launch: Any) -> dict[str, Any]:
    problems, times = [each for each, _ in parts], [each for _, each in parts]
    together, building = on_device(device, lambda: Together(problems, device, launch=launch))
    pace = Pace(courant=COURANT)
    together.march(times[: len(parts)], pace)  # compiled on its first use
    found, seconds = on_device(device, lambda: together.march(times, pace))
    _, projecting = on_device(
        device, lambda: together.conserving([[s.velocity for s in each] for each in found.states])
    )
    return {
        "flows": len(parts),
        "points": round(float(np.mean([each.cells.number_of_points for each in problems]))),
        "side by side and factorised": building,
        "march": seconds,
        "projection of all times": projecting,
        "flows a second": len(parts) / seconds,
        "steps": round(float(np.mean(found.steps)), 1),
        "iterations": round(float(np.sum(found.iterations) / np.sum(found.steps)), 2),
        "lost": sum(found.lost),
    }


def compared(parts: Sequence[tuple[Problem, list[float]]], device: torch.device, launch: Any) -> dict[str, float]:
    """The march together against those one by one on the CPU: the largest relative difference, root mean square."""
    pace = Pace(courant=COURANT)
    found = Together([each for each, _ in parts], device, launch=launch).march([each for _, each in parts], pace)
    apart: dict[str, list[float]] = {"u": [], "p": []}
    began = time.process_time()
    for (problem, times), states in zip(parts, found.states, strict=True):
        for snapshot, state in zip(
            march(problem, begin(problem), times, pace=pace, way=CompiledSteps().way()), states, strict=True
        ):
            for name, one, other in (
                ("u", snapshot.state.velocity, state.velocity),
                ("p", snapshot.state.pressure, state.pressure),
            ):
                apart[name].append(float((other.cpu().double() - one).norm() / one.norm()))
    seconds = time.process_time() - began
    numbers = {
        f"{name}, {how}": float(f(each))
        for name, each in apart.items()
        for how, f in (("median", np.median), ("largest", np.max))
    }
    return numbers | {"seconds of a core for each": seconds / len(parts)}


def corrected(flows_together: int, device: torch.device) -> dict[str, Any]:
    """The network's iterations on started cases of so many flows, all their times in one batch."""
    network = pennpde.load_pretrained("flow")
    network.set_level(FAST)  # pyright: ignore[reportCallIssue]
    started: list[Case] = []
    taken = 0
    for number in range(flows_together):
        case, times = varied(number)
        seen = seen_by(network, case)
        units = [each / seen.time for each in times]
        cases = network.start.solve(seen.case, units).cases  # pyright: ignore[reportCallIssue]
        if not started or _kinds(cases[0]) == _kinds(started[0]):  # others are no batch with it
            started += cases
            taken += 1
    network.to(device)
    with torch.inference_mode():
        together, joining = on_device(device, lambda: batch(started).to(torch.float32, device))
        for _ in range(2):
            network._predict(together, record=False)  # pyright: ignore[reportCallIssue]
        _, seconds = on_device(device, lambda: network._predict(together, record=False))  # pyright: ignore[reportCallIssue]
    return {
        "flows": flows_together,
        "snapshots": len(started),
        "joined": joining,
        "correction": seconds,
        "flows a second": flows_together / seconds,
    }


def _kinds(case: Case) -> dict[str, list[str]]:
    return {kind: sorted(by_unknown) for kind, by_unknown in case.conditions.items()}


def long_march(points: int, device: torch.device) -> dict[str, Any]:
    """A duct of so many points to t = 4, in captured steps."""
    case = duct(points)
    scheme = FlowScheme(splits=0, courant=COURANT).to(device)
    with torch.inference_mode():
        seen = seen_by(scheme, case).case.to(torch.float32, device)
        problem, preparing = on_device(device, lambda: scheme.problem(seen))
        _, seconds = on_device(device, lambda: scheme.solve(seen, [4.0]))
    return {"points": problem.cells.number_of_points, "preparation": preparing, "march to t = 4": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 264, 1056, 2112])
    parser.add_argument("--threads", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--corrections", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--long", type=int, nargs="*", default=[100_000, 1_000_000], help="points of single meshes")
    parser.add_argument("--whole", type=int, default=160, help="flows predicted on the CPU")
    parser.add_argument("--on-cpu-threads", action="store_true", help="run the GPU's kernels on the CPU, for a trial")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    launch = None
    if given.on_cpu_threads:
        import kernels_on_cpu  # pyright: ignore[reportMissingImports]

        kernels_on_cpu.THREADS, launch = 1, kernels_on_cpu.launch
    results: dict[str, Any] = {"processes": given.processes}

    def tell(name: str, value: Any) -> None:
        results[name] = value
        write_json(given.output, results)
        print(name, json.dumps(value), flush=True)

    most = max(given.batches)
    made, seconds = in_parts(prepared, most, given.processes)
    parts = [each for content, _ in made for each in pickle.loads(content)]  # noqa: S301  (of own processes)
    busy = sum(each for _, each in made)
    tell("preparation", {"flows": most, "seconds": seconds, "core seconds for each": busy / most})
    done, _ = in_parts(whole, given.whole, given.processes)
    tell(
        "whole predictions on the CPU",
        {"flows a second": sum(number / spent for number, spent in done), "processes": given.processes},
    )
    device = torch.device(given.device)
    results["device"] = device_name(device)
    tell("compared with the CPU", compared(parts[: min(24, most)], device, launch))
    blocks = {}
    for threads in given.threads:
        marched_together.THREADS, marched_together._BLOCKS_EACH = threads, max(1, 1024 // threads)
        marched_together._source.cache_clear()
        try:
            blocks[threads] = marched(parts[: min(1056, most)], device, launch)
        except RuntimeError as error:
            blocks[threads] = {"failed": str(error).splitlines()[0]}
        tell("threads of a block", blocks)
    working = {name: each for name, each in blocks.items() if "march" in each}
    best = min(working, key=lambda each: working[each]["march"])
    marched_together.THREADS, marched_together._BLOCKS_EACH = best, max(1, 1024 // best)
    marched_together._source.cache_clear()
    rows = []
    for flows_together in given.batches:
        rows.append(marched(parts[:flows_together], device, launch))
        tell("batches", rows)
    rows = []
    for flows_together in given.corrections:
        rows.append(corrected(flows_together, device))
        tell("corrections", rows)
    rows = []
    for points in given.long:
        rows.append(long_march(points, device))
        tell("one large mesh", rows)
    results["best threads"] = best
    if not all(math.isfinite(each["march"]) for each in working.values()):
        raise SystemExit("a march took no time")
    write_json(given.output, results)


if __name__ == "__main__":
    main()
