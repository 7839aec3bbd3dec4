"""Marches of many flows at a time on a GPU: other meshes, other Reynolds numbers, other times, steps of their own.

Each flow is the work of one block of threads, from its start to its last time (`marched_together.cu`): nothing waits
for the host, and nothing for the slowest flow. The pressure's equation is solved by factors of a block tridiagonal
matrix, which the numbering of points by neighbours makes it. Periodic flows with a pressure jump and total pressures
are marched one by one (`scheme`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.flow import march as steps
from pennpde.flow.march import Pace
from pennpde.flow.problem import Problem
from pennpde.flow.step import CROSSED, DIFFUSED, PASSED, UPWIND, State

THREADS, _BLOCKS_EACH = 512, 2
"""Of a block, and how many blocks a multiprocessor has room for."""
_MOST_ITERATIONS = 60
_MOST_STEPS = 20_000
_BLOCK = 8
"""Sizes of blocks of the pressure's matrix are multiples of it."""
WIDEST = 160
"""Of a block: its inverse must fit into a multiprocessor's own memory."""
Launch = Callable[[str, str, int, list[Tensor], int], None]
"""Source, name of a kernel, blocks, arrays, bytes of shared memory."""


@dataclass(frozen=True, eq=False)
class Marched:
    """Flows at their times.

    Attributes:
        start: By flow the velocity at the start, without what mass conservation does not allow.
        states: By flow, at each of its times. NaN where the flow was lost.
        steps: By flow, how many.
        iterations: Of the momentum's equation, all together.
        lost: Whether the velocities grew without bound; such flows are to be marched one by one, with shorter steps.
    """

    start: list[Float[Tensor, "2 points"]]
    states: list[list[State]]
    steps: list[int]
    iterations: list[int]
    lost: list[bool]


def can_march_together(problem: Problem) -> bool:
    """Whether a flow may be among those that are marched together."""
    return not problem.goes_alone and _bandwidth(problem) <= WIDEST


class Together:
    """Flows side by side, their pressure's equations factorised.

    Args:
        parts: One flow each, as `can_march_together` wants them; on any device.
        device: On which they are marched.
        dtype: Single precision holds.
        launch: Who runs the kernels; by default the GPU.
    """

    def __init__(
        self,
        parts: Sequence[Problem],
        device: torch.device | str = "cuda",
        dtype: torch.dtype = torch.float32,
        launch: Launch | None = None,
    ) -> None:
        self.launch = launch or _on_gpu
        self.device, self.dtype = torch.device(device), dtype
        wide = [_bandwidth(part) for part in parts]
        if max(wide) > WIDEST:
            raise ValueError(
                f"Flow {int(np.argmax(wide))} couples points that are {max(wide)} apart in its numbering; marched "
                f"together they may be {WIDEST} apart. March it alone."
            )
        joined = parts[0] if len(parts) == 1 else Problem.side_by_side(parts)
        if joined.goes_alone:
            raise ValueError("A flow with a periodic pressure jump or a total pressure is marched alone.")
        self.joined = joined.to(dtype, self.device)
        self.points = np.cumsum([0, *(part.cells.number_of_points for part in parts)])
        self.edges = np.cumsum([0, *(len(part.cells.first) for part in parts)])
        self.cells = np.cumsum([0, *(part.cells.curvature.number_of_cells for part in parts)])
        sizes = np.array([max(_BLOCK, -(-each // _BLOCK) * _BLOCK) for each in wide])
        counts = -(-np.diff(self.points) // sizes)
        self._arrays = {**self._of_mesh(), **self._of_flows(), **self._factors(sizes, counts), **self._room()}
        widest = int(sizes.max())
        self._arrays["WIDE"] = torch.empty(len(parts) * WIDEST * WIDEST, dtype=torch.float64, device=self.device)
        self._constants: dict[str, Any] = {
            "WIDEST": WIDEST,
            "UPWIND": UPWIND,
            "CROSSED": CROSSED,
            "DIFFUSED": DIFFUSED,
            "PASSED": PASSED,
            "MOST": _MOST_ITERATIONS,
            "MOST_STEPS": _MOST_STEPS,
            "NEARLY_FASTEST": steps.NEARLY_FASTEST,
            "FASTER": steps.FASTER,
            "JUMP": steps.JUMP,
            "SHORTEST": steps.SHORTEST,
            "LARGEST": steps.LARGEST,
        }
        self._run("factorise", self._arrays, Pace(), shared=8 * (widest * widest + 2 * widest))

    @property
    def number(self) -> int:
        return len(self.points) - 1

    def march(self, times: Sequence[Sequence[float]], pace: Pace | None = None) -> Marched:
        """Every flow to its own increasing times."""
        at, arrays = self._snapshots(times)
        count = len(arrays["TIMES"])
        told = torch.zeros(self.number, 3, dtype=torch.int32, device=self.device)
        start = torch.empty(int(self.points[-1]), 2, dtype=self.dtype, device=self.device)
        velocity = torch.full((int(at[0][-1]), 2), torch.nan, dtype=self.dtype, device=self.device)
        pressure, fluxes = torch.full_like(velocity[:, 0], torch.nan), self._empty(int(at[1][-1]))
        # Flows with most to do first.
        ends = np.array([given[-1] for given in times])
        order = np.argsort(-ends * np.diff(self.points) ** 1.5, kind="stable")
        arrays |= {"SNAPSHOT_U": velocity, "SNAPSHOT_P": pressure, "SNAPSHOT_F": fluxes, "TOLD": told, "START": start}
        arrays["ORDER"] = self._integers(order)
        self._run("march", self._arrays | arrays, pace or Pace())
        states: list[list[State]] = []
        place = 0
        for given in times:
            of_flow = []
            for _ in given:
                points, edges = (slice(int(each[place]), int(each[place + 1])) for each in at)
                of_flow.append(State(velocity[points].T, pressure[points], fluxes[edges]))
                place += 1
            states.append(of_flow)
        assert place == count
        begin = [start[int(a) : int(b)].T for a, b in zip(self.points, self.points[1:], strict=False)]
        numbers = told.cpu().numpy()
        return Marched(begin, states, numbers[:, 0].tolist(), numbers[:, 1].tolist(), (numbers[:, 2] > 0).tolist())

    def conserving(self, velocities: Sequence[Sequence[Float[Tensor, "2 points"]]]) -> list[list[State]]:
        """By flow the nearest velocities whose fluxes conserve mass in every cell, with the pressure of the start."""
        at, arrays = self._snapshots([range(1, len(each) + 1) for each in velocities])
        given = [each.T.to(self.device, self.dtype) for of_flow in velocities for each in of_flow]
        velocity, fluxes = torch.cat(given).contiguous(), self._empty(int(at[1][-1]))
        arrays |= {"SNAPSHOT_U": velocity, "SNAPSHOT_F": fluxes, "ORDER": self._integers(np.arange(self.number))}
        self._run("conserve", self._arrays | arrays, Pace())
        found: list[list[State]] = []
        place = 0
        for flow, of_flow in enumerate(velocities):
            pressure = self.joined.pressure[int(self.points[flow]) : int(self.points[flow + 1])]
            found.append([])
            for _ in of_flow:
                points, edges = (slice(int(each[place]), int(each[place + 1])) for each in at)
                found[-1].append(State(velocity[points].T, pressure, fluxes[edges]))
                place += 1
        return found

    # What the kernels read

    def _of_mesh(self) -> dict[str, Tensor]:
        cells, curvature = self.joined.cells, self.joined.cells.curvature
        number, edges = cells.number_of_points, len(cells.first)
        edge_of = torch.where(cells.entries < number, 0, (cells.entries - number) % max(edges, 1))
        sides, shares = curvature.side_cell.argsort(stable=True), curvature.face_edge.argsort(stable=True)
        return {
            "AREAS": cells.areas,
            "CONDUCTING": cells.gathered(cells.conductances.clamp_min(0.0)),
            "ROWS": cells.pattern_rows.int(),
            "COLUMNS": cells.pattern_columns.int(),
            "EDGE_OF": edge_of.int(),
            "GRADIENT": torch.stack([each.values for each in cells.gradient], dim=1),
            "FIRST": cells.first.int(),
            "SECOND": cells.second.int(),
            "FACES": cells.faces.T.contiguous(),
            "OFFSETS": cells.offsets.T.contiguous(),
            "CONDUCTANCES": cells.conductances,
            "HEIGHTS": curvature.heights,
            "SIDES": curvature.side_edge[sides].int(),
            "SIDE_STARTS": _starts(curvature.side_cell, curvature.number_of_cells),
            "SHARES": curvature.face_cell[shares].int(),
            "SHARE_STARTS": _starts(curvature.face_edge, edges),
            "SHARE_FACES": curvature.faces[:, shares].T.contiguous(),
            "POINTS": self._integers(self.points),
            "EDGES": self._integers(self.edges),
            "CELLS": self._integers(self.cells),
        }

    def _of_flows(self) -> dict[str, Tensor]:
        joined = self.joined
        slip = torch.zeros_like(joined.velocity) if joined.slip is None else joined.slip
        pairs = {"VELOCITY": joined.velocity, "SLIP": slip, "FACET_SHIFT": joined.facet_shift}
        return {
            **{name: each.T.contiguous() for name, each in pairs.items()},
            "VISCOSITY": joined.viscosity,
            "FREE": joined.free,
            "PRESSURE": joined.pressure,
            "PRESSURE_FREE": joined.pressure_free,
            "INFLOW": joined.inflow,
            "OPEN": joined.open,
            "CLOSED": joined.closed,
        }

    def _factors(self, sizes: np.ndarray, counts: np.ndarray) -> dict[str, Tensor]:
        starts, blocked = np.cumsum([0, *(3 * counts * sizes**2)]), np.cumsum([0, *(2 * counts * sizes)])
        return {
            "BLOCK_SIZE": self._integers(sizes),
            "BLOCK_COUNT": self._integers(counts),
            "FACTOR_STARTS": torch.from_numpy(starts).to(self.device),
            "FACTORS": torch.zeros(int(starts[-1]), dtype=self.dtype, device=self.device),
            "BLOCKED_STARTS": torch.from_numpy(blocked).to(self.device),
            "BLOCKED": self._empty(int(blocked[-1])),
        }

    def _room(self) -> dict[str, Tensor]:
        number, edges, cells = int(self.points[-1]), int(self.edges[-1]), int(self.cells[-1])
        vectors = "U0 U1 U2 EXPECTED PAST V RIGHT RESIDUAL SHADOW DIRECTION GOING THROUGH SMOOTHED IMAGE PRESSURE_SLOPE"
        scalars = "P0 P1 GIVEN NOTHING WANTED CHANGE OWN_TIME RATES INVERSE"
        return {
            **{name: self._empty(2 * number) for name in vectors.split()},
            **{name: self._empty(number) for name in scalars.split()},
            **{name: self._empty(edges) for name in ["F0", "F1", "F2", "FLUXES", "PAST_FLUXES", "CURVED"]},
            **{name: self._empty(2 * edges) for name in ["ABOVE", "GAINED"]},
            "SLOPES": self._empty(4 * number),
            "MEANS": self._empty(2 * cells),
            "MATRIX": self._empty(len(self.joined.cells.entries)),
        }

    def _snapshots(self, times: Sequence[Sequence[float]]) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, Tensor]]:
        """Where the numbers of each flow and time begin, of points and of edges."""
        if len(times) != self.number or not all(len(each) for each in times):
            raise ValueError(
                f"These are times of {len(times)} flows, of {self.number} side by side: give some for each."
            )
        numbers = np.array([len(each) for each in times])
        starts = np.cumsum([0, *np.repeat(np.diff(self.points), numbers)])
        edges = np.cumsum([0, *np.repeat(np.diff(self.edges), numbers)])
        return (starts, edges), {
            "TIMES": torch.tensor([time for each in times for time in each], dtype=torch.float64, device=self.device),
            "TIME_STARTS": self._integers(np.cumsum([0, *numbers])),
            "SNAPSHOT_STARTS": torch.from_numpy(starts).to(self.device),
            "SNAPSHOT_EDGES": torch.from_numpy(edges).to(self.device),
        }

    def _integers(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.int32)).to(self.device)

    def _empty(self, number: int) -> Tensor:
        return torch.empty(max(number, 1), dtype=self.dtype, device=self.device)

    def _run(self, name: str, arrays: dict[str, Tensor], pace: Pace, shared: int = 0) -> None:
        constants = self._constants | {
            "COURANT": pace.courant,
            "FIRST_STEP": pace.first,
            "GROWTH": pace.growth,
            "LONGEST": pace.longest,
            "CALM": pace.calm,
            "STRETCH": pace.stretch,
            "TOLERANCE": pace.tolerance,
        }
        others = _OF_A_MARCH | dict.fromkeys(("SNAPSHOT_U", "SNAPSHOT_P", "SNAPSHOT_F", "START"), self.dtype)
        arrays = {name: torch.empty(1, dtype=dtype, device=self.device) for name, dtype in others.items()} | arrays
        names = sorted(arrays)
        if loose := [each for each in names if not arrays[each].is_contiguous()]:
            raise AssertionError(f"not contiguous: {loose}")
        kinds = tuple((each, _TYPES[arrays[each].dtype]) for each in names)
        values = "\n".join(f"#define {key} {value!r}" for key, value in constants.items())
        source = _source(self.dtype, kinds).replace(_VALUES, values)
        self.launch(source, name, self.number, [arrays[each] for each in names], shared)


_TYPES = {torch.float32: "real", torch.float64: "double", torch.int32: "int", torch.int64: "long long"}
_VALUES = "// values"
_OF_A_MARCH = {
    **dict.fromkeys(("ORDER", "TIME_STARTS", "TOLD"), torch.int32),
    **dict.fromkeys(("SNAPSHOT_STARTS", "SNAPSHOT_EDGES"), torch.int64),
    "TIMES": torch.float64,
}
"""What only some of the kernels read or write, but all have among their arguments."""


@cache
def _source(dtype: torch.dtype, arrays: tuple[tuple[str, str], ...]) -> str:
    """The kernels with their arrays, in the order in which they are given."""
    kind = "double" if dtype == torch.float64 else "float"
    lines = [f"typedef {kind} real;", f"#define THREADS {THREADS}", f"#define BLOCKS_EACH {_BLOCKS_EACH}", _VALUES]
    lines += ["#define DOUBLE"] if dtype == torch.float64 else []
    lines.append("#define MEMBERS " + " ".join(f"{of}* {name};" for name, of in arrays))
    lines.append("#define ARGUMENTS " + ", ".join(f"{of}* {name}" for name, of in arrays))
    lines.append("#define NAMES " + ", ".join(name for name, _ in arrays))
    text = Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")
    return "\n".join([*lines, text])


def _starts(owners: Tensor, number: int) -> Tensor:
    counts = torch.bincount(owners, minlength=number)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()


def _bandwidth(problem: Problem) -> int:
    cells = problem.cells
    return int((cells.second - cells.first).amax()) if len(cells.first) else 1


@cache
def _compiled(source: str, name: str) -> Any:
    # NVRTC, which PyTorch brings along; it waits for no compiler of the user's.
    return torch.cuda._compile_kernel(source, name)


def _on_gpu(source: str, name: str, blocks: int, arrays: list[Tensor], shared: int) -> None:
    kernel = _compiled(source, name)
    if shared >= 48 * 1024:
        kernel.set_shared_memory_config(shared)
    kernel(grid=(blocks, 1, 1), block=(THREADS, 1, 1), args=arrays, shared_mem=shared)
