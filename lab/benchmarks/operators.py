"""What the gradient costs: one stacked CSR product against three COO products, and against copying memory.

Bricks of hexahedra with 14k, 262k and 1M points, 16 channels, float32. Prints tables and writes
`lab/benchmarks/results/operators.json`, by device; asserts nothing. All rivals of a row take turns in one process;
times
are the best of the turns. On the CPU they are the processor time of one thread, what a free core would take, so that on
a machine that is busy with other work their ratios still mean something (`--threads` takes more, by the clock).

    python lab/benchmarks/operators.py                       # CPU, and the GPU where there is one
    python lab/benchmarks/operators.py --sizes 24 40         # points along an edge
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pennpde.files import write_json
from pennpde.mesh import Mesh
from pennpde.operators import Operators

RESULTS = Path(__file__).parent / "results" / "operators.json"
warnings.filterwarnings("ignore", message="Sparse invariant checks")


def brick(along: int) -> Mesh:
    points = np.stack(np.meshgrid(*[np.linspace(0.0, 1.0, along)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    index = np.arange(along**3).reshape(along, along, along)
    ring = [(0, 0), (1, 0), (1, 1), (0, 1)]
    corners = [(*corner, level) for level in (0, 1) for corner in ring]
    last = along - 1
    cells = np.stack([index[x : x + last, y : y + last, z : z + last] for x, y, z in corners], axis=-1)
    mesh = Mesh.from_arrays(points, {"hexahedron": cells.reshape(-1, 8)})
    return mesh.with_patches({"left": lambda x: np.isclose(x[:, 0], 0.0)})


# Assembly, in a process of its own so that its peak memory is its own


def peak_gigabytes() -> float:
    # Linux counts into ru_maxrss what the parent process held; the high-water mark of /proc is this process's own.
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def assembly(along: int) -> dict[str, float]:
    mesh = brick(along)
    _ = mesh.edges, mesh.normals
    before = peak_gigabytes()
    start, processor = time.perf_counter(), time.process_time()
    operators = Operators.on(mesh, ["left"])
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    millions = mesh.number_of_points / 1e6
    return {
        "points": mesh.number_of_points,
        "entries": operators.gradient.values.numel(),
        "seconds": seconds,
        "processor seconds": processor,
        "peak gigabytes with the mesh": peak_gigabytes(),
        "peak gigabytes of the mesh alone": before,
        "seconds a million points": seconds / millions,
        "processor seconds a million points": processor / millions,
        "peak gigabytes a million points": peak_gigabytes() / millions,
    }


def assembly_elsewhere(along: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--assembly", str(along)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


# Products


def best_times(rivals: dict[str, Callable[[], object]], turns: int, clock: Callable[[], float]) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(turns):
        for name, call in rivals.items():
            call()  # finds the caches full of what the rival before left there
            start = clock()
            call()
            times[name].append(clock() - start)
    return {name: min(each) for name, each in times.items()}


def clock_of(device: str) -> Callable[[], float]:
    if device == "cpu":
        return time.process_time if torch.get_num_threads() == 1 else time.perf_counter

    def after_the_device() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return after_the_device


def backward(product: Callable[[Tensor], Tensor], field: Tensor, cotangent: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(product(field), field, cotangent)


def products(along: int, channels: int, turns: int, device: str) -> dict[str, float]:
    operators = Operators.on(brick(along), ["left"], dtype=torch.float32)
    stored = operators.gradient_matrices()
    operators = operators.to(device=device)
    gradient = operators.gradient
    coordinates = []
    for matrix in stored:
        entries = matrix.tocoo()
        indices = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        coordinates.append(torch.sparse_coo_tensor(indices, entries.data, entries.shape).coalesce().to(device))
    del stored

    def three_products(values: Tensor) -> Tensor:
        return torch.stack([torch.sparse.mm(matrix, values) for matrix in coordinates], dim=1)

    field = torch.randn(operators.number_of_points, channels, device=device)
    tracked = field.clone().requires_grad_()
    cotangent = torch.randn(operators.number_of_points, 3, channels, device=device)
    source = torch.randn(2**26, device=device)  # 256 MiB: no cache holds it
    target = torch.empty_like(source)
    rivals: dict[str, Callable[[], object]] = {
        "forward": lambda: operators.grad(field),
        "forward, three COO": lambda: three_products(field),
        "forward and backward": backward(operators.grad, tracked, cotangent),
        "forward and backward, three COO": backward(three_products, tracked, cotangent),
        "copy": lambda: target.copy_(source),
    }
    if device == "cuda":
        parts = gradient.row_starts, gradient.columns, gradient.values
        compressed = torch.sparse_csr_tensor(*parts, size=gradient.shape)
        rivals["forward, cuSPARSE"] = lambda: torch.mm(compressed, field)
    difference = float((operators.grad(field) - three_products(field)).abs().max() / field.abs().max())
    times = best_times(rivals, turns, clock_of(device))

    # What must move at least: the matrix once, the field in once, the gradient out once; and back likewise.
    number, entries = field.numel(), gradient.values.numel()
    least = 8 * entries + 4 * gradient.row_starts.numel() + 4 * number + 12 * number
    copied = 2 * 4 * source.numel() / times["copy"]
    return {
        "points": operators.number_of_points,
        "entries": entries,
        **{f"{name} [ms]": 1e3 * seconds for name, seconds in times.items() if name != "copy"},
        "times faster forward": times["forward, three COO"] / times["forward"],
        "times faster forward and backward": times["forward and backward, three COO"] / times["forward and backward"],
        "copy bandwidth [GB/s]": copied / 1e9,
        "share of it forward": least / times["forward"] / copied,
        "share of it forward and backward": 2 * least / times["forward and backward"] / copied,
        "largest relative difference": difference,
    }


# The report


def table(title: str, rows: list[dict[str, float]], columns: dict[str, str]) -> None:
    print(f"\n{title}")
    widths = {name: max(len(name), 10) for name in columns}
    print("  ".join(name.rjust(width) for name, width in widths.items()))
    for row in rows:
        print("  ".join(format(row[name], columns[name]).rjust(width) for name, width in widths.items()))


def rounded(record: object) -> object:
    if isinstance(record, dict):
        return {name: rounded(value) for name, value in record.items()}
    if isinstance(record, list):
        return [rounded(value) for value in record]
    return float(f"{record:.4g}") if isinstance(record, float) else record


def machine(device: str) -> dict[str, object]:
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), name)
    found: dict[str, object] = {"processor": name, "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    if device == "cuda":
        found["device"] = torch.cuda.get_device_name()
    return found | {"torch": torch.__version__, "load at the start": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[24, 64, 100], help="points along an edge")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--devices", nargs="+", default=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--assembly", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.assembly:
        print(json.dumps(assembly(arguments.assembly)))
        return

    results = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    for device in arguments.devices:
        measured: dict = {"machine": machine(device), "channels": arguments.channels, "precision": "float32"}
        if device == "cpu":
            measured["assembly"] = [assembly_elsewhere(along) for along in arguments.sizes]
            columns = dict.fromkeys(measured["assembly"][0], ".2f") | {"points": ",d", "entries": ",d"}
            table(f"assembly in float64, {measured['machine']}", measured["assembly"], columns)
        rows = [products(along, arguments.channels, arguments.turns, device) for along in arguments.sizes]
        table(
            f"grad of {arguments.channels} channels on {device}, {measured['machine']}",
            rows,
            {
                "points": ",d",
                "forward [ms]": ".3g",
                "forward, three COO [ms]": ".4g",
                "times faster forward": ".1f",
                "share of it forward": ".0%",
            },
        )
        table(
            "with its backward",
            rows,
            {
                "points": ",d",
                "forward and backward [ms]": ".3g",
                "forward and backward, three COO [ms]": ".4g",
                "times faster forward and backward": ".1f",
                "share of it forward and backward": ".0%",
                "copy bandwidth [GB/s]": ".1f",
            },
        )
        measured["products"] = rows
        results[device] = measured
    arguments.output.parent.mkdir(exist_ok=True)
    write_json(arguments.output, rounded(results))
    print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
