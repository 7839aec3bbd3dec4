"""MeshGraphNet for plane flows of any shape, at any time: what the general network is compared with.

As in `mesh_graph_net`, but for a dataset in which shapes, meshes, Reynolds numbers and times differ. It is given what
helps it: the potential flow from which every flow starts, its potential (which tells a point how far along the flow it
is, however far its messages reach), a pressure scale by which low and high Reynolds numbers look alike, the thickness
of a layer that has grown from the walls by the time that is asked for, and the mean over all points in every block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennlab.paper.baselines.graphs import MessageGraph, Stretch
from pennpde.case import Case
from pennpde.models.potential_flow import potential_flow, velocity_potential

STEADY = math.inf
_POINT_FEATURES, _EDGE_FEATURES, _TIME_FEATURES, _STATE_FEATURES = 20, 4, 7, 3
_UPRIGHT_POINT = (1, 3, 9)
"""Point features that change sign in a mirror: second components of u at the start, of prescribed u, of normals."""


@dataclass(frozen=True, eq=False)
class PlaneGraph:
    """A case as the network sees it, made once.

    Attributes:
        points: features of the points.
        edges: features of the edges.
        stretch: who sends to whom.
        start: the velocity of the potential flow.
        prescribed: where the velocity is prescribed, and what it is.
        pinned: where the pressure is zero.
        slip_normals: zero but on slip walls.
        distance: to the nearest wall.
        reynolds: of the flow.
        pressure_scale: what pressures are of the order of.
    """

    points: Float[Tensor, "points features"]
    edges: Float[Tensor, "edges of_edge"]
    stretch: Stretch
    start: Float[Tensor, "points 2"]
    prescribed: tuple[Tensor, Float[Tensor, "points 2"]]
    pinned: Tensor
    slip_normals: Float[Tensor, "points 2"]
    distance: Float[Tensor, " points"]
    reynolds: float
    pressure_scale: float

    @staticmethod
    def of(case: Case) -> PlaneGraph:
        """Lengths are in inlet widths and speeds in bulk speeds, as in the dataset."""
        case = case.to(torch.float64)
        like, dirichlet = case.initial["u"], case.dirichlet["u"]
        reynolds = 1.0 / float(case.parameters["viscosity"])
        start = potential_flow(case)
        potential = torch.from_numpy(velocity_potential(case)[1][: case.number_of_points]).to(like)
        pinned = case.dirichlet["p"].mask
        closed = int(pinned.sum()) == 1
        length = float(potential.max() - potential.min())
        squared = start.square().sum(dim=1, keepdim=True)
        # Of a flow from left to right: what its speeds make, and what a channel of that length and of these widths
        # needs against friction.
        friction = 12.0 / reynolds * max(length, 1.0) * float(squared.mean())
        scale = 0.1 + 0.5 * float(squared.mean()) + 0.5 * friction + (10.0 / reynolds if closed else 0.0)
        distance = case.features["wall_distance"]
        slip = case.slip["u"].normals.to(like) if "u" in case.slip else torch.zeros_like(start)
        graph = MessageGraph.of(case.mesh, case.mesh.edges, torch.zeros((), dtype=torch.float32))
        (stretch,) = graph.stretches()
        positions = case.mesh.points
        offsets = positions.index_select(0, stretch.sources) - positions.index_select(0, stretch.targets)
        lengths = offsets.norm(dim=1, keepdim=True)
        spacing = torch.zeros(len(positions), dtype=torch.float64).index_add_(0, stretch.targets, lengths[:, 0])
        spacing = (spacing / stretch.degrees)[:, None]
        along = (potential / max(length, 1e-9))[:, None] if length > 1e-9 else torch.zeros_like(distance)[:, None]
        ones = torch.ones_like(along)
        moving = dirichlet.mask & (dirichlet.values.abs().sum(dim=1) > 0)
        points = torch.cat(
            [
                start,  # 0, 1
                dirichlet.values.to(like),  # 2, 3
                dirichlet.mask[:, None].to(like),
                moving[:, None].to(like),
                pinned[:, None].to(like),
                (slip != 0).any(dim=1, keepdim=True).to(like),
                case.mesh.normals.to(like),  # 8, 9
                0.5 * squared / scale,
                along,
                along * friction / scale,
                *(torch.exp(-rate * distance)[:, None] for rate in (1.0, 4.0, 16.0)),
                0.3 * (math.log(reynolds) - 5.0) * ones,
                torch.log(10.0 * spacing),
                math.log(scale) * ones,
                float(closed) * ones,
            ],
            dim=1,
        )
        change = (along.index_select(0, stretch.sources) - along.index_select(0, stretch.targets)) * max(length, 1.0)
        edges = torch.cat([10.0 * offsets, 10.0 * lengths, 10.0 * change], dim=1)
        return PlaneGraph(
            points.float(),
            edges.float(),
            stretch,
            start.float(),
            (dirichlet.mask, dirichlet.values.float()),
            pinned,
            slip.float(),
            distance.float(),
            reynolds,
            scale,
        )

    def to(self, device: torch.device | str) -> PlaneGraph:
        mask, values = self.prescribed
        names = ("points", "edges", "start", "pinned", "slip_normals", "distance")
        of_stretch = {name: getattr(self.stretch, name).to(device) for name in ("degrees", "targets", "sources")}
        return replace(
            self,
            stretch=replace(self.stretch, **of_stretch),
            prescribed=(mask.to(device), values.to(device)),
            **{name: getattr(self, name).to(device) for name in names},
        )

    def mirrored(self) -> PlaneGraph:
        """Upside down."""
        points, edges = self.points.clone(), self.edges.clone()
        points[:, list(_UPRIGHT_POINT)] *= -1
        edges[:, 1] *= -1
        flip = torch.tensor([1.0, -1.0], device=self.start.device)
        mask, values = self.prescribed
        return replace(
            self,
            points=points,
            edges=edges,
            start=self.start * flip,
            prescribed=(mask, values * flip),
            slip_normals=self.slip_normals * flip,
        )

    def fulfilled(
        self, velocity: Float[Tensor, "points 2 times"], pressure: Float[Tensor, "points times"]
    ) -> tuple[Tensor, Tensor]:
        """With slip, then with prescribed values; the pressure without its value where it is pinned."""
        normals = self.slip_normals[..., None]
        velocity = velocity - normals * (normals * velocity).sum(dim=1, keepdim=True)
        mask, values = self.prescribed
        velocity = torch.where(mask[:, None, None], values[..., None], velocity)
        if int(self.pinned.sum()) == 1:
            return velocity, pressure - pressure[self.pinned]
        return velocity, torch.where(self.pinned[:, None], 0.0, pressure)

    def time_features(self, times: Sequence[float]) -> Float[Tensor, "points times features"]:
        """Of an interval; infinitely long ones lead to the steady state."""
        length = self.distance.new_tensor([min(time, 50.0) for time in times])
        layer = torch.sqrt(length / self.reynolds)
        everywhere = [
            length / (1.0 + length),
            0.5 * torch.log(length),
            torch.exp(-length),
            layer,
            torch.log(layer) / 2,
            length.new_tensor([float(time == STEADY) for time in times]),
        ]
        grown = torch.erf(self.distance[:, None] / (2.0 * layer))
        return torch.stack([*(each.expand_as(grown) for each in everywhere), grown], dim=-1)


class PlaneMeshGraphNet(nn.Module):
    """Encode, process, decode. Time enters before the processing (one pass for each), or only after it.

    Args:
        width: of all hidden layers.
        blocks: rounds of messages.
        time: `late`: one pass serves all times; `early`: each time has its own.
    """

    def __init__(self, width: int = 64, blocks: int = 10, time: Literal["early", "late"] = "late"):
        super().__init__()
        self.time: Literal["early", "late"] = time
        early, late = (_TIME_FEATURES, 0) if time == "early" else (0, _TIME_FEATURES)
        self.encode_points = _Layers([_POINT_FEATURES + _STATE_FEATURES + early], width, width, normalised=True)
        self.encode_edges = _Layers([_EDGE_FEATURES], width, width, normalised=True)
        self.edge_blocks = nn.ModuleList(_Layers([width] * 3, width, width, normalised=True) for _ in range(blocks))
        self.point_blocks = nn.ModuleList(_Layers([width] * 3, width, width, normalised=True) for _ in range(blocks))
        self.decode = _Layers([width, late + _STATE_FEATURES], 3, width, layers=3)

    def forward(
        self, graph: PlaneGraph, times: Sequence[float], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "points 2 times"], Float[Tensor, "points times"]]:
        """Velocity and pressure so long after the start, or after a state."""
        if self.time == "early" and len(times) > 1:
            found = [self(graph, [each], state) for each in times]
            return torch.cat([u for u, _ in found], dim=-1), torch.cat([p for _, p in found], dim=-1)
        velocity, pressure = state or (graph.start, torch.zeros_like(graph.distance))
        known = torch.cat([velocity, pressure[:, None] / graph.pressure_scale], dim=1)
        at_times = graph.time_features(times)
        points = self.encode_points(
            torch.cat([graph.points, known, *([at_times[:, 0]] if self.time == "early" else [])], 1)
        )
        links, stretch = self.encode_edges(graph.edges), graph.stretch
        for of_edges, of_points in zip(self.edge_blocks, self.point_blocks, strict=True):
            assert isinstance(of_edges, _Layers)
            links = links + of_edges.along(links, points, stretch)
            points = points + of_points(points, stretch.summed(links) / 6.0, points.mean(dim=0, keepdim=True))
        late = [at_times] if self.time == "late" else []
        there = torch.cat([*late, known[:, None].expand(-1, len(times), -1)], dim=-1)
        change = self.decode(points[:, None], there)
        return graph.fulfilled(
            velocity[..., None] + change[..., :2].transpose(1, 2),
            pressure[:, None] + graph.pressure_scale * change[..., 2],
        )


class _Layers(nn.Module):
    """A perceptron of several inputs, each with its own first matrix.

    Those of points are applied before they go out to the edges, of which there are six times as many.
    """

    def __init__(self, inputs: Sequence[int], outputs: int, width: int, *, layers: int = 2, normalised: bool = False):
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(size, width, bias=place == 0) for place, size in enumerate(inputs))
        middle = [each for _ in range(layers - 2) for each in (nn.ReLU(), nn.Linear(width, width))]
        last = [nn.LayerNorm(outputs)] if normalised else []
        self.rest = nn.Sequential(*middle, nn.ReLU(), nn.Linear(width, outputs), *last)

    def along(self, links: Tensor, points: Tensor, stretch: Stretch) -> Tensor:
        """Of the edges, of the points in which they end, and of those in which they begin."""
        of_edges, of_ends, of_beginnings = self.first
        ends, beginnings = of_ends(points), of_beginnings(points)
        return self.rest(of_edges(links) + stretch.to_edges(ends) + beginnings.index_select(0, stretch.sources))

    def forward(self, *parts: Tensor) -> Tensor:
        hidden = self.first[0](parts[0])
        for layer, part in zip(list(self.first)[1:], parts[1:], strict=True):
            hidden = hidden + layer(part)
        return self.rest(hidden)
