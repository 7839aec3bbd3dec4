"""The released flow network on one CPU core: our package against a plain PyTorch forward, at equal outputs.

The yardstick is what one writes down from the authors' description: their matrices stacked to one CSR matrix for each
raise or contraction, every term computed by itself, nothing shared or multiplied out, the first residual of each solve
evaluated twice as they do. (The authors' own code takes 5.5 times as long as such a forward on the same machine.) A
second yardstick leaves out the evaluation that is not needed, the one thing that is easily seen.

Times are CPU seconds of one thread, which a busy machine disturbs less than those on the wall. Operators are ready
before. Compiling was tried and does not pay: with torch.compile the part of an iteration before the pressure takes 6.3
in place of 5.4 ms, after 57 s of compiling, because small matrix products and sparse sums stay calls of their own.

Prints a table and writes `lab/benchmarks/results/released_parity_speed.json`. Needs the reference samples and weights:

    PENN_REFERENCE=/path/to/reference python lab/benchmarks/released_parity_speed.py
"""

import argparse
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, linear

from pennpde.files import write_json
from pennpde.released import weights as released

RESULTS = Path(__file__).parent / "results" / "released_parity_speed.json"
WEIGHTS, SAMPLE = "flow_penn_n16_rep4", "flow_a1_1.00"
EXPECTED = "flow__penn_n16_rep4__a1_1.00"
ITERATIONS, POISSON_ITERATIONS = 4, 5

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")


class Yardstick:
    """The released flow network in plain PyTorch, straight from the description."""

    def __init__(self, weights: Path, sample: Path, dtype: torch.dtype, *, evaluate_twice: bool = True):
        with np.load(weights) as file:
            self.weights = {
                name.removeprefix("dict_block.")
                .replace("GROUP1.group.dict_block.", "")
                .replace("GROUP_POISSON.group.dict_block.", ""): torch.from_numpy(file[name]).to(dtype)
                for name in file.files
            }
        with np.load(sample) as file:
            arrays = {name: file[name] for name in file.files}
        self.number = number = len(arrays["points"])
        self.evaluate_twice = evaluate_twice

        def matrix(name: str) -> scipy.sparse.csr_matrix:
            rows, columns, values = (arrays[f"{name}_{part}"] for part in ("row", "col", "value"))
            return scipy.sparse.csr_matrix((values, (rows, columns)), shape=(number, number))

        def field(name: str) -> Tensor:
            return torch.from_numpy(arrays[name]).to(dtype)

        gradient = [matrix(f"scaled_grad_{axis}") for axis in "xyz"]
        # Row 3 i + k of the stacked gradient is the derivative along k at point i, so results need no rearranging.
        interleaved = np.arange(3 * number).reshape(3, number).T.ravel()
        self.gradient = _csr(scipy.sparse.vstack(gradient, format="csr")[interleaved], dtype)
        self.divergence = _csr(scipy.sparse.hstack(gradient, format="csc")[:, interleaved].tocsr(), dtype)
        self.adjacency = _csr(matrix("gcn"), dtype)
        self.geometry = field("scaled_wall")
        self.u, self.p = field("scaled_u_initial")[..., None], field("scaled_p_initial")[..., None]
        self.u_mask = torch.from_numpy(arrays["u_dirichlet_mask"])[..., None]
        self.p_mask = torch.from_numpy(arrays["p_dirichlet_mask"])[..., None]
        self.u_values = field("scaled_u_dirichlet_value")[..., None]
        self.p_values = field("scaled_p_dirichlet_value")[..., None]

    def raised(self, values: Tensor) -> Tensor:
        flat = self.gradient @ values.reshape(self.number, -1)
        return flat.reshape(self.number, 3, *values.shape[1:])

    def contracted(self, values: Tensor) -> Tensor:
        if values.ndim == 4:
            values = values.transpose(1, 2)
        return (self.divergence @ values.reshape(self.number * 3, -1)).reshape(self.number, *values.shape[2:])

    def smoothed(self, values: Tensor) -> Tensor:
        return (self.adjacency @ values.reshape(self.number, -1)).reshape(values.shape)

    def linear(self, block: str, values: Tensor) -> Tensor:
        return linear(values, self.weights[block + ".weight"], self.weights.get(block + ".bias"))

    def mlp(self, block: str, values: Tensor) -> Tensor:
        return self.linear(block + ".linears.1", torch.tanh(self.linear(block + ".linears.0", values)))

    def equivariant_mlp(self, block: str, values: Tensor) -> Tensor:
        gate = self.mlp(block, (values * values).sum(dim=1))
        if block + ".linear_weight.weight" in self.weights:
            values = self.linear(block + ".linear_weight", values)
        return gate[:, None] * values

    def isogcn(self, block: str, values: Tensor, *steps: Callable[[Tensor], Tensor]) -> Tensor:
        coefficient = self.mlp(block + ".coefficient_network", values if values.ndim == 2 else (values**2).sum(dim=1))
        for step in steps:
            values = step(values)
        values = self.linear(block + ".subchains.0.0", values)
        return coefficient.reshape(self.number, *[1] * (values.ndim - 2), -1) * values

    def encode_pressure(self, values: Tensor) -> Tensor:
        return self.linear("IN_P.linears.1", leaky_relu(self.linear("IN_P.linears.0", values), 0.5))

    def solve(self, operator: Callable, start: list[Tensor], iterations: int, divergence: float) -> list[Tensor]:
        def residuals(state: list[Tensor]) -> list[Tensor]:
            return [h - h0 - change for h, h0, change in zip(state, start, operator(*state), strict=True)]

        state, before, before_residuals = start, None, residuals(start) if self.evaluate_twice else None
        for _ in range(iterations):
            current = residuals(state)
            updated = []
            for i, (h, r) in enumerate(zip(state, current, strict=True)):
                step = torch.ones((), dtype=h.dtype)
                if before is not None and before_residuals is not None:
                    dh, dr = h - before[i], r - before_residuals[i]
                    if dh.abs().max() > 1e-8 or dr.abs().max() > 1e-8:
                        step = ((dh * dr).sum() / ((dr * dr).sum() + 1e-5)).abs()
                updated.append(h - step * r)
            change = sum(float((a - b).norm() / (b.norm() + 1e-5)) for a, b in zip(updated, state, strict=True))
            before, before_residuals, state = state, current, updated
            if change < 1e-5 or change > divergence:
                break
        return state

    def operator(self, u: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        product = u * self.encoded_geometry[:, None]
        velocity = self.equivariant_mlp("U_MLP", torch.cat([product, self.geometry_gradient], dim=-1))
        velocity = torch.where(self.u_mask, self.encoded_u, velocity)
        laplacian = self.isogcn("ISO_GCN_LAPLACIAN", velocity, self.raised, self.contracted)
        jacobian = self.isogcn("ISO_GCN_JACOBIAN", velocity, self.raised)
        advection = (jacobian * velocity[:, None]).sum(dim=2)
        intermediate = velocity + self.equivariant_mlp("FRACTION_MLP", laplacian + advection)
        source = self.isogcn("ISOGCN_SOURCE_POISSON", intermediate, self.contracted)
        source = torch.tanh(self.linear("GCN_SOURCE_POISSON.subchains.0.0", self.smoothed(source)))
        source = self.linear("GCN_SOURCE_POISSON.subchains.0.1", self.smoothed(source))

        def poisson(pressure: Tensor) -> tuple[Tensor]:
            bounded = torch.where(self.p_mask, self.encoded_p, pressure)
            return (source + self.isogcn("ISOGCN_LAPLACIAN_P", bounded, self.raised, self.contracted),)

        start = self.mlp("P_MLP", torch.cat([self.encoded_geometry, p], dim=-1))
        (pressure,) = self.solve(poisson, [start], POISSON_ITERATIONS, 100.0)
        pressure = torch.where(self.p_mask, self.encoded_p, pressure)
        gradient = self.isogcn("ISOGCN_GRAD_P", pressure, self.raised)
        return self.linear("GCN.subchains.0.0", self.smoothed(laplacian + advection + gradient)), pressure

    def __call__(self) -> dict[str, Tensor]:
        self.encoded_geometry = self.mlp("IN_GEO", self.geometry)
        self.geometry_gradient = self.isogcn("ISOGCN_GRAD_GEO", self.encoded_geometry, self.raised)
        self.encoded_u = self.linear("IN_U.linears.0", self.u_values)
        self.encoded_p = self.encode_pressure(self.p_values)
        start = [self.linear("IN_U.linears.0", self.u), self.encode_pressure(self.p)]
        u, p = self.solve(self.operator, start, ITERATIONS, 1e9)
        u = torch.where(self.u_mask, self.encoded_u, u)
        p = torch.where(self.p_mask, self.encoded_p, p)
        u = u @ torch.linalg.pinv(self.weights["IN_U.linears.0.weight"]).T
        p = leaky_relu(p @ torch.linalg.pinv(self.weights["IN_P.linears.1.weight"]).T, 2.0)
        p = p @ torch.linalg.pinv(self.weights["IN_P.linears.0.weight"]).T
        return {"u": u[..., 0], "p": p[..., 0]}


def _csr(matrix: scipy.sparse.csr_matrix, dtype: torch.dtype) -> Tensor:
    matrix.sort_indices()
    parts = [torch.from_numpy(part) for part in (matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32))]
    return torch.sparse_csr_tensor(
        *parts, torch.from_numpy(matrix.data).to(dtype), matrix.shape, check_invariants=False
    )


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Check that all give the same, measure them in turn, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, default=os.environ.get("PENN_REFERENCE", "../shared/reference"))
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    reference = Path(arguments.reference)
    weights, sample = reference / "weights" / f"{WEIGHTS}.npz", reference / "samples" / f"{SAMPLE}.npz"
    torch.set_num_threads(1)

    with np.load(reference / "expected" / f"{EXPECTED}.npz") as file:
        expected = {name: file[f"{name}_scaled_f64"] for name in ("u", "p")}
    network, inputs = released.load(weights), released.read_sample(sample).inputs
    single = inputs.to(torch.float32)
    rows: dict[str, Callable[[], dict[str, Tensor]]] = {
        "yardstick": Yardstick(weights, sample, torch.float32),
        "yardstick, first residual once": Yardstick(weights, sample, torch.float32, evaluate_twice=False),
        "pennpde": lambda: network.forward_scaled(single),
    }
    double = released.load(weights).double()
    in_double = {
        "yardstick": Yardstick(weights, sample, torch.float64)(),
        "pennpde": double.forward_scaled(inputs),
    }

    def error(fields: dict[str, Tensor]) -> float:
        return max(
            float(np.abs(fields[name].detach().numpy() - truth).max() / np.abs(truth).max())
            for name, truth in expected.items()
        )

    record = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": 1,
        "what": f"{WEIGHTS} on {SAMPLE}: {len(expected['p'])} points, width 16, 4 iterations",
        "float64_relative_error": {name: error(fields) for name, fields in in_double.items()},
        "rows": [],
    }
    with torch.inference_mode():
        errors = {name: error(call()) for name, call in rows.items()}
        measured: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(arguments.repeats):
            # In turn, so that a busy neighbour slows all of them alike.
            for name, call in rows.items():
                measured[name].append(seconds(call))
    print(record["what"])
    print(f"{'':34}{'fastest':>9}{'median':>9} seconds   pennpde is faster by   error in float32")
    for name, times in measured.items():
        # The quickest of many is the time without interruptions, and repeats well on a machine that others use.
        row = {
            "what": name,
            "fastest": round(min(times), 4),
            "median": round(statistics.median(times), 4),
            "pennpde_is_faster_by": round(min(times) / min(measured["pennpde"]), 2),
            "float32_relative_error": errors[name],
        }
        record["rows"].append(row)
        print(
            f"{name:34}{row['fastest']:9.4f}{row['median']:9.4f}           {row['pennpde_is_faster_by']:>19.2f}   "
            f"{errors[name]:16.1e}"
        )
    for name, value in record["float64_relative_error"].items():
        print(f"{name}: relative error in float64 {value:.1e}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS, record)


if __name__ == "__main__":
    main()
