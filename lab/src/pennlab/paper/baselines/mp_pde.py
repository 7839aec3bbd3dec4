"""MP-PDE, the baseline of the paper: a message passing network that advances a window of frames at a time.

After Brandstetter, Worrall and Welling (ICLR 2022) as the paper adapted it to flow: boundary values, flags, normals and
wall distances are inputs, nothing is enforced, positions enter as they are. Two things differ from what was published,
because they were mistakes there: the radius graph is not cut off at 32 neighbours (`neighbour_cap=32` brings that back;
it made windows of 10 frames and more see only a part of their surroundings), and the decoder's output is laid out
component by component as the state is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from pennlab.paper.baselines.graphs import GraphStore, MessageGraph, Stretch, radius_graph
from pennpde.case import Case
from pennpde.mesh import Mesh

FRAMES = 40
"""Steps of 0.1 from the start to the end of the flow dataset."""
DURATION = 4.0
CELL_SIZE = 1 / 22.5
VELOCITY_SCALE = 0.352
"""The authors': the standard deviation of the initial velocity over three components. Pressure stays as it is."""
MOST_UNROLLED = 1
"""Windows without gradient before the one that is learned from, at most, as MP-PDE's authors have it."""
_EDGES_AT_ONCE = 2**17
"""Of which messages are worked out together on a CPU: what its caches hold."""
_EDGES_AT_ONCE_ON_A_GPU = 2**21
"""There each stretch costs launches, and memory is plenty: a gigabyte at width 128."""
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

    graph: MessageGraph
    stretches: tuple[Stretch, ...]
    known: Float[Tensor, "points known"]
    """Dirichlet values and flags, normals, wall levels."""
    neighbours: Float[Tensor, "points one"]
    """The number of each point's neighbours, and one where there are none: a mean divides by it."""
    case: Case


class MPPDE(nn.Module):
    """Predicts velocity and pressure after `DURATION` by advancing windows of `time_window` frames.

    Args:
        time_window: Frames of a window.
        width: Hidden features.
        space: 2 or 3.
        layers: Rounds of messages.
        neighbour_cap: Most neighbours of a point in the radius graph; None: all of them.
        velocity_scale: What velocities are divided by inside of the network.
        kept_edges: A training step keeps what it needs of the messages of up to so many edges, 9 kB an edge at width
            128 and 6 layers. Of larger graphs it works them out again in the backward pass, a third of the work more.
    """

    scale: Tensor

    def __init__(
        self,
        time_window: int = 20,
        width: int = 128,
        space: int = 2,
        layers: int = 6,
        neighbour_cap: int | None = None,
        velocity_scale: float = VELOCITY_SCALE,
        kept_edges: int = 2**21,
    ):
        super().__init__()
        if (time_window, width) not in _DECODERS:
            windows, widths = (sorted({key[part] for key in _DECODERS}) for part in (0, 1))
            raise ValueError(f"MP-PDE has time windows {windows} and widths {widths}; got {time_window} and {width}.")
        self.time_window, self.width, self.space, self.kept_edges = time_window, width, space, kept_edges
        components = space + 1
        state = components * time_window
        known = 2 * components + space + 3
        first, stride, second = _DECODERS[time_window, width]
        self.embedding = _two_layers(state + space + 1 + known, width)
        self.messages = nn.ModuleList(_two_layers(2 * width + state + space + known + 1, width) for _ in range(layers))
        self.updates = nn.ModuleList(_two_layers(2 * width + known + 1, width) for _ in range(layers))
        self.decoder = nn.Sequential(nn.Conv1d(1, 8, first, stride=stride), nn.SiLU(), nn.Conv1d(8, components, second))
        self.register_buffer("scale", torch.tensor([*[velocity_scale] * space, 1.0]))
        radius = (_HOPS[time_window] + 0.5) * CELL_SIZE
        self._graphs = GraphStore(partial(_edges_within, radius=radius, neighbour_cap=neighbour_cap))

    def forward(self, case: Case) -> dict[str, Tensor]:
        parameter = next(self.parameters())
        case = case.to(parameter.dtype, parameter.device)
        surroundings = self.surroundings(case)
        window = self._start(case).expand(-1, -1, self.time_window)
        for start in range(0, FRAMES, self.time_window):
            window = self.advance(window, start, surroundings)
        last = window[:, :, -1] * self.scale
        return {"u": last[:, : self.space], "p": last[:, self.space]}

    def prepare(self, case: Case) -> None:
        """Build the graph of a case, once per mesh, before time is measured."""
        self._graphs.of(case.mesh, next(self.parameters()))

    def training_loss(
        self, case: Case, weights: Float[Tensor, " points"], start: int, unrolled: int
    ) -> Float[Tensor, ""]:
        """Pushforward: from a frame on, `unrolled` windows without gradient, then the error of the next.

        The root of the mean square of each case, as its authors have it, so that the wild first windows do not drown
        the calm last ones.

        Args:
            case: With all frames as targets, u [points, space, 41] and p [points, 41].
            weights: Of the points, such that their sum over a batch is one.
            start: The last frame that the network is given.
            unrolled: Windows without gradient.
        """
        for name, target in case.targets.items():
            if target.ndim == case.initial[name].ndim or target.shape[-1] != FRAMES + 1:
                raise ValueError(
                    f"MP-PDE learns from {FRAMES + 1} frames, but the target {name!r} of case {case.name!r} has shape "
                    f"{list(target.shape)}. `penn generate flow --frames` makes a dataset with frames."
                )
        window_length, end = self.time_window, start + (unrolled + 1) * self.time_window
        if not 0 <= start < end <= FRAMES:
            raise ValueError(
                f"{unrolled + 1} windows of {window_length} frames from frame {start} on end at {end}; there are "
                f"{FRAMES}."
            )
        # A prediction starts from the potential flow on its own mesh, which frame 0 of the truth is but nearly.
        frames = torch.cat([self._start(case), self._joined(case.targets["u"], case.targets["p"])[:, :, 1:]], dim=2)
        window = frames[:, :, max(0, start - window_length + 1) : start + 1]
        if window.shape[2] < window_length:  # before the start there is nothing but the start itself
            window = torch.cat([frames[:, :, :1].expand(-1, -1, window_length - window.shape[2]), window], dim=2)
        surroundings = self.surroundings(case)
        with torch.no_grad():
            for begin in range(start, end - window_length, window_length):
                window = self.advance(window, begin, surroundings)
        predicted = self.advance(window, end - window_length, surroundings)
        error = (predicted - frames[:, :, end - window_length + 1 : end + 1]).square().mean(dim=(1, 2))
        of_cases = case.sum(weights * error) * len(case.sizes)
        return (of_cases + 1e-12).sqrt().mean()

    def advance(
        self, window: Float[Tensor, "points components frames"], start: int, surroundings: Surroundings
    ) -> Float[Tensor, "points components frames"]:
        """The next window after one that ends at frame `start`."""
        flat = window.flatten(1)
        time = flat.new_full((flat.shape[0], 1), start / FRAMES)
        known = torch.cat([surroundings.known, time], dim=1)
        place = torch.cat([flat, surroundings.graph.positions], dim=1)
        hidden = self.embedding(torch.cat([place, known], dim=1))
        for message, update in zip(self.messages, self.updates, strict=True):
            received = self._received(message, hidden, place, known, surroundings)
            change = update(torch.cat([hidden, received, known], dim=1))
            hidden = _normalised(hidden + change, surroundings.case)
        change = self.decoder(hidden[:, None])
        step = DURATION / FRAMES * torch.arange(1, self.time_window + 1, dtype=flat.dtype, device=flat.device)
        return window[:, :, -1:] + step * change

    def surroundings(self, case: Case) -> Surroundings:
        """Graph and known inputs of a case."""
        condition_u, condition_p = case.dirichlet["u"], case.dirichlet["p"]
        like = case.initial["p"]
        graph = self._graphs.of(case.mesh, like)
        flags = [condition_u.mask[:, None].expand(-1, self.space).to(like), condition_p.mask[:, None].to(like)]
        distance = case.features["wall_distance"][:, None]
        levels = [torch.exp(-rate * distance) for rate in (0.5, 1.0, 2.0)]
        values = self._joined(condition_u.values, condition_p.values)
        known = torch.cat([values, *flags, graph.normals, *levels], dim=1)
        neighbours = graph.degrees.clamp_min(1)[:, None].to(like)
        at_once = _EDGES_AT_ONCE_ON_A_GPU if like.is_cuda else _EDGES_AT_ONCE
        return Surroundings(graph, tuple(graph.stretches(at_once)), known, neighbours, case)

    def _received(
        self,
        message: nn.Module,
        hidden: Float[Tensor, "points width"],
        place: Float[Tensor, "points place"],
        known: Float[Tensor, "points known"],
        surroundings: Surroundings,
    ) -> Float[Tensor, "points width"]:
        """The mean over its neighbours j of what point i is sent, message([h_i, h_j, place_i - place_j, known_i]).

        The first layer is linear in what belongs to i and to j, so both are worked out at the points: at the edges,
        hundreds of times as many, only their sum is left.
        """
        assert isinstance(message, nn.Sequential)
        first, second = message[0], message[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(second, nn.Linear)
        sizes = [self.width, self.width, place.shape[1], known.shape[1]]
        of_target, of_source, of_place, of_known = first.weight.split(sizes, dim=1)
        placed = linear(place, of_place)
        at_targets = linear(hidden, of_target, first.bias) + linear(known, of_known) + placed
        at_sources = linear(hidden, of_source) - placed
        again = torch.is_grad_enabled() and surroundings.graph.number_of_edges > self.kept_edges
        sums = []
        for stretch in surroundings.stretches:
            inputs = (stretch, at_targets[stretch.points], at_sources, second)
            sums.append(
                checkpoint(_sent, *inputs, use_reentrant=False, preserve_rng_state=False) if again else _sent(*inputs)
            )
        return torch.cat(sums) / surroundings.neighbours

    def _start(self, case: Case) -> Float[Tensor, "points components 1"]:
        return self._joined(case.initial["u"], case.initial["p"])[:, :, None]

    def _joined(self, u: Tensor, p: Tensor) -> Float[Tensor, "points components *frames"]:
        joined = torch.cat([u, p[:, None]], dim=1)
        return joined / self.scale.reshape(-1, *[1] * (joined.ndim - 2))


def pushforward(model: nn.Module, case: Case, weights: Float[Tensor, " points"]) -> Float[Tensor, ""]:
    """The loss of `fit` for MP-PDE: `MPPDE.training_loss` from a random frame after a random number of windows."""
    if not isinstance(model, MPPDE):
        raise ValueError(f'The loss "pushforward" is that of the network mp-pde; got a {type(model).__name__}.')
    # Drawn on the host, whose random numbers a continued training takes up again; nothing waits for the device.
    unrolled = int(torch.randint(0, min(MOST_UNROLLED, FRAMES // model.time_window - 1) + 1, ()))
    start = int(torch.randint(0, FRAMES - (unrolled + 1) * model.time_window + 1, ()))
    return model.training_loss(case, weights, start, unrolled)


def _edges_within(mesh: Mesh, radius: float, neighbour_cap: int | None) -> Int[np.ndarray, "2 edges"]:
    return radius_graph(mesh.points.numpy(), radius, neighbour_cap)


def _sent(
    stretch: Stretch,
    at_targets: Float[Tensor, "stretch width"],
    at_sources: Float[Tensor, "points width"],
    second: nn.Linear,
) -> Float[Tensor, "stretch width"]:
    first_layer = stretch.to_edges(at_targets) + at_sources.index_select(0, stretch.sources)
    return stretch.summed(nn.functional.silu(second(nn.functional.silu(first_layer))))


def _two_layers(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())


def _normalised(values: Float[Tensor, "points width"], case: Case) -> Float[Tensor, "points width"]:
    """Instance normalisation over the points of each case."""
    count = case.sum(torch.ones_like(values[:, :1]))
    centred = values - case.at_points(case.sum(values) / count)
    variance = case.sum(centred.square()) / count
    return centred / case.at_points((variance + 1e-5).sqrt())
