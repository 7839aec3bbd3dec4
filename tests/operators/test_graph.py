"""The graph that operators stand on."""

import numpy as np
import pytest
import torch

from meshes import walled
from pennpde.operators import Operators
from pennpde.operators.graph import PointGraph

# Batches


def test_unknowns_may_share_one_graph():
    mesh = walled("hexahedron")
    graph = PointGraph.of(mesh.edges, mesh.number_of_points, mesh.space)
    normals = mesh.point_normals(["left"])
    one = Operators.from_normals(mesh.points, graph, normals)
    other = Operators.from_normals(mesh.points, graph, torch.zeros_like(normals))
    assert one.gradient.columns is other.gradient.columns
    assert torch.equal(one.gradient.values, Operators.on(mesh, ["left"]).gradient.values)


# What cannot work


def test_a_graph_that_is_not_symmetric_is_refused():
    mesh = walled("quad")
    for edges in (mesh.edges[:, 1:], mesh.edges[:, ::-1], np.repeat(mesh.edges, 2, axis=1)):
        with pytest.raises(ValueError, match="not those of a symmetric graph"):
            Operators.from_normals(mesh.points, edges, torch.zeros_like(mesh.points))
