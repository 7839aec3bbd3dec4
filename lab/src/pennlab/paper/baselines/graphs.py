"""Graphs over the points of meshes, for networks that send messages: built once per mesh, kept on the device.

Edges are sorted by the point that receives. What goes out to edges and what comes back are then a repetition and a sum
over neighbouring rows, each the derivative of the other, so that neither needs atomic additions on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.mesh import Mesh


@dataclass(frozen=True, eq=False)
class MessageGraph:
    """The edges of a mesh or of several side by side, with what a network wants to know of their points.

    Attributes:
        positions: of the points.
        normals: outward at the boundary, zero inside.
        degrees: how many edges end in each point.
        sources: where each edge begins, all edges of the first point first.
        first_edges: on the host, the number of the first edge of each point, and the number of edges.
    """

    positions: Float[Tensor, "points space"]
    normals: Float[Tensor, "points space"]
    degrees: Int[Tensor, " points"]
    sources: Int[Tensor, " edges"]
    first_edges: Int[np.ndarray, " points+1"]

    @classmethod
    def of(cls, mesh: Mesh, edges: Int[np.ndarray, "2 edges"], like: Tensor) -> MessageGraph:
        """The graph of a mesh with the pairs (receiver, sender), sorted by receiver, where and as precise as `like`."""
        degrees = np.bincount(edges[0], minlength=mesh.number_of_points)
        return cls(
            mesh.points.to(like),
            mesh.normals.to(like),
            torch.from_numpy(degrees).to(like.device),
            # Half the memory: a training keeps the graphs of all its cases, each of up to a million edges.
            torch.from_numpy(edges[1].astype(np.int32)).to(like.device),
            np.concatenate([[0], np.cumsum(degrees)]),
        )

    @classmethod
    def joined(cls, graphs: Sequence[MessageGraph]) -> MessageGraph:
        """Several graphs side by side, as one."""
        if len(graphs) == 1:
            return graphs[0]
        points = np.cumsum([0, *(len(graph.positions) for graph in graphs)])
        edges = np.cumsum([0, *(len(graph.sources) for graph in graphs)])
        return cls(
            torch.cat([graph.positions for graph in graphs]),
            torch.cat([graph.normals for graph in graphs]),
            torch.cat([graph.degrees for graph in graphs]),
            torch.cat([graph.sources + int(begin) for graph, begin in zip(graphs, points, strict=False)]),
            np.concatenate(
                [[0], *(graph.first_edges[1:] + begin for graph, begin in zip(graphs, edges, strict=False))]
            ),
        )

    def to(self, like: Tensor) -> MessageGraph:
        return MessageGraph(
            self.positions.to(like),
            self.normals.to(like),
            self.degrees.to(like.device),
            self.sources.to(like.device),
            self.first_edges,
        )

    @property
    def number_of_edges(self) -> int:
        return len(self.sources)

    def stretches(self, edges_at_once: int | None = None) -> Iterator[Stretch]:
        """The graph in stretches of points with some edges each, at least one point; None: all at once."""
        points, begin = len(self.degrees), 0
        while begin < points:
            end = points
            if edges_at_once is not None:
                reached = np.searchsorted(self.first_edges, self.first_edges[begin] + edges_at_once, side="right") - 1
                end = min(points, max(begin + 1, int(reached)))
            first, last = int(self.first_edges[begin]), int(self.first_edges[end])
            degrees = self.degrees[begin:end]
            yield Stretch(
                slice(begin, end),
                degrees,
                torch.repeat_interleave(degrees, output_size=last - first),
                # 64 bits: PyTorch gathers by others at a third of the speed on a CPU.
                self.sources[first:last].long(),
            )
            begin = end


@dataclass(frozen=True, eq=False)
class Stretch:
    """Neighbouring points of a graph with the edges that end in them.

    Attributes:
        points: which ones.
        degrees: how many edges end in each.
        targets: where each edge ends, counted from the first point of the stretch.
        sources: where each edge begins, counted in the whole graph.
    """

    points: slice
    degrees: Int[Tensor, " stretch"]
    targets: Int[Tensor, " edges"]
    sources: Int[Tensor, " edges"]

    def to_edges(self, values: Float[Tensor, "stretch width"]) -> Float[Tensor, "edges width"]:
        """Each point's values at all edges that end in it."""
        return _Repeated.apply(values, self.targets, self.degrees)

    def summed(self, values: Float[Tensor, "edges width"]) -> Float[Tensor, "stretch width"]:
        """The sum over the edges that end in each point."""
        return _Summed.apply(values, self.targets, self.degrees)


class GraphStore:
    """The graphs of meshes, each made when it is first asked for and forgotten with its mesh.

    Args:
        edges_of: The pairs (receiver, sender) of a mesh, sorted by receiver.
    """

    def __init__(self, edges_of: Callable[[Mesh], Int[np.ndarray, "2 edges"]]):
        self.edges_of = edges_of
        self._kept: WeakKeyDictionary[Mesh, MessageGraph] = WeakKeyDictionary()

    def of(self, mesh: Mesh, like: Tensor) -> MessageGraph:
        """The graph of a mesh, or of a batch of meshes from those of its parts, where and as precise as `like`."""
        return MessageGraph.joined([self._of_one(part, like) for part in mesh.parts])

    def _of_one(self, mesh: Mesh, like: Tensor) -> MessageGraph:
        kept = self._kept.get(mesh)
        if kept is not None and (kept.positions.dtype, kept.positions.device) == (like.dtype, like.device):
            return kept
        # Kept for later, when gradients may be wanted: tensors made in inference mode could never have any.
        with torch.inference_mode(mode=False):
            made = MessageGraph.of(mesh, self.edges_of(mesh), like) if kept is None else kept.to(like)
        self._kept[mesh] = made
        return made

    def __deepcopy__(self, _: dict[int, Any]) -> GraphStore:
        return GraphStore(self.edges_of)


def radius_graph(
    positions: Float[np.ndarray, "points space"], radius: float, neighbour_cap: int | None = None
) -> Int[np.ndarray, "2 edges"]:
    """Pairs (i, j) closer than the radius, sorted by i. With a cap only the nearest are kept."""
    tree, number = KDTree(positions), len(positions)
    if neighbour_cap is None:
        pairs = tree.query_pairs(radius, output_type="ndarray")
        # A sparse matrix sorts by counting: four times as fast as sorting pairs.
        upper = csr_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(number, number))
        both = csr_array(upper + upper.T)
        both.sort_indices()
        i = np.repeat(np.arange(number), np.diff(both.indptr))
        return np.stack([i, both.indices]).astype(np.int64)
    nearest = min(neighbour_cap + 1, number)
    distances, found = tree.query(positions, k=nearest, distance_upper_bound=radius)
    i = np.repeat(np.arange(number), nearest)
    j = found.ravel()
    valid = np.isfinite(distances.ravel()) & (i != j)
    return np.stack([i[valid], j[valid]]).astype(np.int64)


class _Repeated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, targets: Tensor, degrees: Tensor) -> Tensor:
        ctx.save_for_backward(degrees)
        return values.index_select(0, targets)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _segment_sums(*gradients, *ctx.saved_tensors), None, None


class _Summed(torch.autograd.Function):
    """The sum of PyTorch's own segments would keep all that it sums for the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, targets: Tensor, degrees: Tensor) -> Tensor:
        ctx.save_for_backward(targets)
        return _segment_sums(values, degrees)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return gradients[0].index_select(0, *ctx.saved_tensors), None, None


def _segment_sums(values: Tensor, lengths: Tensor) -> Tensor:
    # unsafe: checking the lengths would wait for the device.
    return torch.segment_reduce(values.contiguous(), "sum", lengths=lengths, axis=0, unsafe=True, initial=0.0)
