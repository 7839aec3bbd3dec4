"""MeshGraphNet (Pfaff et al., ICLR 2021): encode, process, decode on the mesh's own edges.

The network that many would pick today, on the same task: from the start straight to the final state. Boundary values
and flags are inputs; prescribed values are written over at the end, as is usual in its rollouts
(`overwrite_dirichlet`), which the hidden state never sees.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennlab.paper.baselines.graphs import GraphStore, MessageGraph
from pennpde.case import Case
from pennpde.mesh import Mesh


class MeshGraphNet(nn.Module):
    """Encode-process-decode with `blocks` rounds of messages along mesh edges."""

    def __init__(self, width: int = 128, blocks: int = 15, space: int = 2, overwrite_dirichlet: bool = True):
        super().__init__()
        self.space, self.overwrite_dirichlet = space, overwrite_dirichlet
        components = space + 1
        # Start, prescribed values and flags of u and p, normal, three levels of wall distance.
        self.encode_points = _normalised_mlp(2 * components + 2 + space + 3, width)
        self.encode_edges = _normalised_mlp(space + 1, width)
        self.edge_blocks = nn.ModuleList(_normalised_mlp(3 * width, width) for _ in range(blocks))
        self.point_blocks = nn.ModuleList(_normalised_mlp(2 * width, width) for _ in range(blocks))
        self.decode = _mlp(width, components, width)
        self._graphs = GraphStore(_mesh_edges)

    def forward(self, case: Case) -> dict[str, Tensor]:
        parameter = next(self.parameters())
        case = case.to(parameter.dtype, parameter.device)
        graph = self._graphs.of(case.mesh, parameter)
        points = self.encode_points(self._point_features(case, graph))
        (edges,) = graph.stretches()
        offsets = graph.positions.index_select(0, edges.sources) - edges.to_edges(graph.positions)
        links = self.encode_edges(torch.cat([offsets, offsets.norm(dim=1, keepdim=True)], dim=1))
        for of_edges, of_points in zip(self.edge_blocks, self.point_blocks, strict=True):
            ends = [edges.to_edges(points), points.index_select(0, edges.sources)]
            links = links + of_edges(torch.cat([links, *ends], dim=1))
            points = points + of_points(torch.cat([points, edges.summed(links)], dim=1))
        change = self.decode(points)
        fields = {
            "u": case.initial["u"] + change[:, : self.space],
            "p": case.initial["p"] + change[:, self.space],
        }
        if self.overwrite_dirichlet:
            fields = {name: case.dirichlet[name].apply(values) for name, values in fields.items()}
        return fields

    def prepare(self, case: Case) -> None:
        """Build the graph of a case, once per mesh, before time is measured."""
        self._graphs.of(case.mesh, next(self.parameters()))

    def _point_features(self, case: Case, graph: MessageGraph) -> Float[Tensor, "points features"]:
        like = case.initial["p"]
        parts = []
        for name in ("u", "p"):
            condition = case.dirichlet[name]
            parts += [case.initial[name].reshape(len(like), -1), condition.values.reshape(len(like), -1)]
            parts.append(condition.mask[:, None].to(like))
        distance = case.features["wall_distance"][:, None]
        parts += [graph.normals, *(torch.exp(-rate * distance) for rate in (0.5, 1.0, 2.0))]
        return torch.cat(parts, dim=1)


def _mesh_edges(mesh: Mesh) -> Int[np.ndarray, "2 edges"]:
    return mesh.edges


def _mlp(inputs: int, outputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def _normalised_mlp(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(_mlp(inputs, width, width), nn.LayerNorm(width))
