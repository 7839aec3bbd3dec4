"""The potential flow from which the truth starts, by linear finite elements on its own triangles."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_array
from scipy.sparse.linalg import spsolve

from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.triangles import Triangles
from pennpde.mesh.cells import cross


def potential_velocity(flow: Flow, mesh: Triangles) -> Float[np.ndarray, "points 2"]:
    """∇φ at the points, with the flow's inflow and φ = 0 at outlets; zero in a domain without inlets."""
    load = np.zeros(len(mesh.points))
    for name, condition in flow.prescribed.items():
        edges = mesh.edges[mesh.patches[name]]
        along = mesh.points[edges[:, 1]] - mesh.points[edges[:, 0]]
        velocity = condition.velocity(mesh.points[edges].mean(axis=1))
        inward = velocity[:, 1] * along[:, 0] - velocity[:, 0] * along[:, 1]
        for end in (0, 1):
            load -= 0.5 * np.bincount(edges[:, end], inward, len(load))
    if not flow.inlets:
        return np.zeros_like(mesh.points)
    slopes, areas = gradients(mesh)
    rows = np.repeat(mesh.triangles, 3, axis=1).ravel()
    columns = np.tile(mesh.triangles, (1, 3)).ravel()
    values = (np.einsum("tia,tja->tij", slopes, slopes) * areas[:, None, None]).ravel()
    matrix = csc_array((values, (rows, columns)), shape=(len(load), len(load)))
    fixed = np.zeros(len(load), bool)
    for name in flow.outlets:
        fixed[mesh.edges[mesh.patches[name]]] = True
    free = np.flatnonzero(~fixed)
    potential = np.zeros(len(load))
    # φ has the normal derivative u·n outward; what flows in is negative.
    potential[free] = np.asarray(spsolve(matrix[free][:, free], load[free]))
    return at_points(mesh, np.einsum("tia,ti->ta", slopes, potential[mesh.triangles]), areas)


def gradients(mesh: Triangles) -> tuple[Float[np.ndarray, "triangles 3 2"], Float[np.ndarray, " triangles"]]:
    """Gradients of the three linear functions of each triangle, and its area."""
    corners = mesh.points[mesh.triangles]
    doubled = cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    opposite = corners[:, [2, 0, 1]] - corners[:, [1, 2, 0]]
    slopes = np.stack([-opposite[..., 1], opposite[..., 0]], axis=-1) / doubled[:, None, None]
    return slopes, doubled / 2


def at_points(
    mesh: Triangles, values: Float[np.ndarray, "triangles *axes"], areas: Float[np.ndarray, " triangles"]
) -> Float[np.ndarray, "points *axes"]:
    """Values of triangles as means at the points, weighted by area."""
    flat = values.reshape(len(values), -1) * areas[:, None]
    sums, weights = np.zeros((len(mesh.points), flat.shape[1])), np.zeros(len(mesh.points))
    for place in range(3):
        weights += np.bincount(mesh.triangles[:, place], areas, len(weights))
        for column in range(flat.shape[1]):
            sums[:, column] += np.bincount(mesh.triangles[:, place], flat[:, column], len(weights))
    return (sums / weights[:, None]).reshape(len(weights), *values.shape[1:])


def point_areas(mesh: Triangles) -> Float[np.ndarray, " points"]:
    """A third of each triangle for each of its points."""
    _, areas = gradients(mesh)
    return np.sum([np.bincount(mesh.triangles[:, i], areas / 3, len(mesh.points)) for i in range(3)], axis=0)
