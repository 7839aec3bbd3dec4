"""MP-PDE, the baseline of the paper: a message passing network that advances a window of frames at a time.

After Brandstetter, Worrall and Welling (ICLR 2022) as the paper adapted it to flow: boundary values, flags, normals and
wall distances are inputs, nothing is enforced, positions enter as they are. Two things differ from what was published,
because they were mistakes there: the radius graph is not cut off at 32 neighbours (`neighbour_cap=32` brings that back;
it made windows of 10 frames and more see only a part of their surroundings), and the decoder's output is laid out
component by component as the state is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.spatial import KDTree
from torch import Tensor, nn

from pennpde.conditions import Case
from pennpde.mesh import Mesh

FRAMES = 40
"""Steps of 0.1 from the start to the end of the flow dataset."""
DURATION = 4.0
CELL_SIZE = 1 / 22.5
_HOPS = {20: 11, 10: 6, 4: 2, 2: 1}
"""How many cells a window's graph reaches: the more frames at once, the farther information travels in them."""
_DECODERS = {
    (20, 128): (15, 4, 10), (20, 64): (15, 1, 31), (20, 32): (2, 1, 12),
    (10, 128): (16, 6, 10), (10, 64): (16, 3, 8), (10, 32): (1, 1, 23),
    (4, 128): (15, 9, 10), (4, 64): (61, 1, 1), (4, 32): (10, 1, 20),
    (2, 128): (15, 54, 2), (2, 64): (1, 5, 12), (2, 32): (1, 2, 15),
}  # fmt: skip
"""First kernel, its stride, second kernel: they shorten the hidden vector to the window. (4, 128) could not run as
published; these numbers give its parameter count."""


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What does not change along a trajectory."""

    positions: Float[Tensor, "points space"]
    known: Float[Tensor, "points known"]
    """Dirichlet values and flags, normals, wall levels."""
    sources: Int[Tensor, " edges"]
    targets: Int[Tensor, " edges"]
    degrees: Float[Tensor, "points 1"]


class MPPDE(nn.Module):
    """Predicts velocity and pressure after `DURATION` by advancing windows of `time_window` frames."""

    scale: Tensor

    def __init__(
        self,
        time_window: int = 20,
        width: int = 128,
        space: int = 2,
        layers: int = 6,
        neighbour_cap: int | None = None,
    ):
        super().__init__()
        if (time_window, width) not in _DECODERS:
            windows, widths = (sorted({key[part] for key in _DECODERS}) for part in (0, 1))
            raise ValueError(f"MP-PDE has time windows {windows} and widths {widths}; got {time_window} and {width}.")
        self.time_window, self.width, self.space, self.neighbour_cap = time_window, width, space, neighbour_cap
        components = space + 1
        state = components * time_window
        known = 2 * components + space + 3
        first, stride, second = _DECODERS[time_window, width]
        self.embedding = _two_layers(state + space + 1 + known, width)
        self.messages = nn.ModuleList(_two_layers(2 * width + state + space + known + 1, width) for _ in range(layers))
        self.updates = nn.ModuleList(_two_layers(2 * width + known + 1, width) for _ in range(layers))
        self.decoder = nn.Sequential(nn.Conv1d(1, 8, first, stride=stride), nn.SiLU(), nn.Conv1d(8, components, second))
        self.register_buffer("scale", torch.ones(components))
        self._graphs: dict[int, tuple[Mesh, np.ndarray]] = {}

    def forward(self, case: Case) -> dict[str, Tensor]:
        parameter = next(self.parameters())
        case = case.to(parameter.dtype, parameter.device)
        surroundings = self.surroundings(case)
        first = self._joined(case.initial["u"], case.initial["p"])
        window = first[:, :, None].expand(-1, -1, self.time_window)
        for start in range(0, FRAMES, self.time_window):
            window = self.advance(window, start, surroundings, case)
        last = window[:, :, -1] * self.scale
        return {"u": last[:, : self.space], "p": last[:, self.space]}

    def training_loss(self, case: Case, weights: Float[Tensor, " points"], unrolled: int = 0) -> Float[Tensor, ""]:
        """Pushforward: from a random frame, `unrolled` windows without gradient, then the error of the next.

        `case.targets` hold all frames, u [points, space, 41] and p [points, 41].
        """
        frames = self._joined(case.targets["u"], case.targets["p"])
        surroundings = self.surroundings(case)
        latest = FRAMES - (unrolled + 1) * self.time_window
        start = int(torch.randint(0, max(latest, 0) + 1, ()))
        # Before the start there is nothing but the start itself.
        past = torch.arange(start - self.time_window + 1, start + 1).clamp_min(0)
        window = frames[:, :, past]
        with torch.no_grad():
            for number in range(unrolled):
                window = self.advance(window, start + number * self.time_window, surroundings, case)
        start += unrolled * self.time_window
        predicted = self.advance(window, start, surroundings, case)
        truth = frames[:, :, start + 1 : start + 1 + self.time_window]
        error = (predicted[:, :, : truth.shape[2]] - truth).square().mean(dim=(1, 2))
        return (weights * error).sum()

    def advance(
        self, window: Float[Tensor, "points components frames"], start: int, surroundings: Surroundings, case: Case
    ) -> Float[Tensor, "points components frames"]:
        """The next window after one that ends at frame `start`."""
        flat = window.flatten(1)
        time = flat.new_full((flat.shape[0], 1), start / FRAMES)
        known = torch.cat([surroundings.known, time], dim=1)
        hidden = self.embedding(torch.cat([flat, surroundings.positions, known], dim=1))
        i, j = surroundings.targets, surroundings.sources
        differences = torch.cat(
            [flat[i] - flat[j], surroundings.positions[i] - surroundings.positions[j], known[i]], dim=1
        )
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = message(torch.cat([hidden[i], hidden[j], differences], dim=1))
            received = torch.zeros_like(hidden).index_add(0, i, sent) / surroundings.degrees
            hidden = _normalised(hidden + update(torch.cat([hidden, received, known], dim=1)), case)
        change = self.decoder(hidden[:, None])
        step = DURATION / FRAMES * torch.arange(1, self.time_window + 1, dtype=flat.dtype, device=flat.device)
        return window[:, :, -1:] + step * change

    def surroundings(self, case: Case) -> Surroundings:
        """Graph and known inputs of a case."""
        condition_u, condition_p = case.dirichlet["u"], case.dirichlet["p"]
        like = case.initial["p"]
        flags = [condition_u.mask[:, None].expand(-1, self.space).to(like), condition_p.mask[:, None].to(like)]
        distance = case.features["wall_distance"][:, None]
        levels = [torch.exp(-rate * distance) for rate in (0.5, 1.0, 2.0)]
        values = self._joined(condition_u.values, condition_p.values)
        known = torch.cat([values, *flags, case.mesh.normals.to(like), *levels], dim=1)
        edges = torch.from_numpy(self._graph(case.mesh, case.sizes)).to(like.device)
        degrees = torch.bincount(edges[0], minlength=case.number_of_points).clamp_min(1)[:, None].to(like)
        positions = case.mesh.points.to(like)
        return Surroundings(positions, known, edges[1], edges[0], degrees)

    def _joined(self, u: Tensor, p: Tensor) -> Float[Tensor, "points components *frames"]:
        joined = torch.cat([u, p[:, None]], dim=1)
        scale = self.scale.reshape(-1, *[1] * (joined.ndim - 2))
        return joined / scale

    def _graph(self, mesh: Mesh, sizes: tuple[int, ...]) -> Int[np.ndarray, "2 edges"]:
        kept = self._graphs.get(id(mesh))
        if kept is None or kept[0] is not mesh:
            radius = (_HOPS[self.time_window] + 0.5) * CELL_SIZE
            parts, begin = [], 0
            for size in sizes:
                parts.append(
                    begin + radius_graph(mesh.points.numpy()[begin : begin + size], radius, self.neighbour_cap)
                )
                begin += size
            kept = (mesh, np.concatenate(parts, axis=1))
            self._graphs[id(mesh)] = kept
        return kept[1]


def radius_graph(
    positions: Float[np.ndarray, "points space"], radius: float, neighbour_cap: int | None = None
) -> Int[np.ndarray, "2 edges"]:
    """Pairs (i, j) closer than the radius, sorted by i. With a cap only the nearest are kept."""
    tree = KDTree(positions)
    if neighbour_cap is None:
        pairs = tree.query_pairs(radius, output_type="ndarray")
        both = np.concatenate([pairs, pairs[:, ::-1]]).astype(np.int64)
        return both[np.lexsort((both[:, 1], both[:, 0]))].T.copy()
    nearest = min(neighbour_cap + 1, len(positions))
    distances, found = tree.query(positions, k=nearest, distance_upper_bound=radius)
    i = np.repeat(np.arange(len(positions)), nearest)
    j = found.ravel()
    valid = np.isfinite(distances.ravel()) & (i != j)
    return np.stack([i[valid], j[valid]]).astype(np.int64)


def _two_layers(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())


def _normalised(values: Float[Tensor, "points width"], case: Case) -> Float[Tensor, "points width"]:
    """Instance normalisation over the points of each case."""
    count = case.sum(torch.ones_like(values[:, :1]))
    centred = values - case.at_points(case.sum(values) / count)
    variance = case.sum(centred.square()) / count
    return centred / case.at_points((variance + 1e-5).sqrt())
