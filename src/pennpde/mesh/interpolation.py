"""Fields of a plane mesh at any points: linear in triangles, into which other cells are cut."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int64
from scipy.sparse import csr_array, eye_array, vstack

from pennpde.mesh import Mesh, triangulation
from pennpde.mesh.cells import next_in_row


def interpolation(mesh: Mesh, targets: Float[np.ndarray, "targets 2"]) -> csr_array:
    """The matrix [targets, points] that interpolates linearly in the triangles of a plane mesh; its rows sum to one.

    Other cells are cut into triangles around their centres, which have the mean of their points. A target outside takes
    the values of the nearest triangle.
    """
    triangles, extension = cut_into_triangles(mesh)
    positions = np.asarray(extension @ mesh.points.numpy())
    in_triangles, _ = triangulation.interpolation(positions, triangles, targets)
    return csr_array(in_triangles @ extension)


def cut_into_triangles(mesh: Mesh) -> tuple[Int64[np.ndarray, "triangles 3"], csr_array]:
    """Cells as triangles, and the matrix [points and centres, points] of the points that they span."""
    sizes = np.diff(mesh.offsets)
    cell = np.repeat(np.arange(len(sizes)), sizes)
    whole, number = sizes == 3, mesh.number_of_points
    identity = csr_array(eye_array(number, format="csr"))
    triangles = mesh.connectivity[whole[cell]].reshape(-1, 3)
    if whole.all():
        return triangles, identity
    centre = number + np.cumsum(~whole) - 1
    following = next_in_row(mesh.connectivity, mesh.offsets)
    around = np.stack([centre[cell], mesh.connectivity, following], axis=1)[~whole[cell]]
    shares = csr_array((1.0 / sizes[cell], mesh.connectivity, mesh.offsets), shape=(len(sizes), number))
    extension = csr_array(vstack([identity, shares[np.flatnonzero(~whole)]], format="csr"))
    return np.concatenate([triangles, around]), extension
