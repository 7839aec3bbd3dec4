"""The normalised adjacency of graph convolutions, as the paper's pressure has them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np
import torch

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.operators.graph import PointGraph
from pennpde.operators.sparse import SparseMatrix, UniformMatrix, index_tensor

_SMOOTHINGS: WeakKeyDictionary[Mesh, dict[tuple | None, SparseMatrix]] = WeakKeyDictionary()


def released_smoothing(mesh: Mesh, dtype: torch.dtype, device: torch.device) -> SparseMatrix:
    """The normalised adjacency D^-1/2 (A + 1) D^-1/2 of a graph convolution; a point is a neighbour of its own."""
    known = _SMOOTHINGS.setdefault(mesh, {})
    with torch.inference_mode(mode=False), torch.no_grad():
        if None not in known:
            graph = PointGraph.of(mesh.edges, mesh.number_of_points, mesh.space)
            shares = torch.from_numpy(1.0 / np.sqrt(np.diff(graph.starts)))
            values = (shares.index_select(0, graph.rows) * shares.index_select(0, graph.columns)).to(mesh.points.dtype)
            starts = index_tensor(graph.starts)
            known[None] = SparseMatrix(starts, graph.columns, values, starts, graph.columns, values)
        if (dtype, device) not in known:
            known[dtype, device] = known[None].to(dtype, device)
    return known[dtype, device]


def smoothing_of(case: Case, dtype: torch.dtype, device: torch.device) -> SparseMatrix | UniformMatrix:
    """The same adjacency for a case; cases that are filled up to one shape have operators, but no mesh."""
    gradient = next(iter(case.operators.values())).gradient
    if not isinstance(gradient, UniformMatrix):
        return released_smoothing(case.mesh, dtype, device)
    # One row per point and axis; what fills a row up points at the point itself, as its own entry does.
    columns = gradient.columns[:: case.space]
    own = torch.arange(len(columns), dtype=columns.dtype, device=columns.device)[:, None]
    others = columns != own
    share = (others.sum(dim=1) + 1).to(dtype).rsqrt()
    values = torch.where(others, share[:, None] * share[columns], 0.0)
    columns, values = torch.cat([columns, own], dim=1), torch.cat([values, share.square()[:, None]], dim=1)
    return UniformMatrix(columns, values, columns, values)  # it is symmetric
