"""Values of cells, which belong to their centroids, as values at the points of a triangulation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from pennlab import running
from pennlab.datasets.plane_flow.dual import Dual
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.start import at_points, gradients
from pennlab.datasets.plane_flow.triangles import Triangles
from pennpde import openfoam


@dataclass(frozen=True, eq=False)
class PointValues:
    """Cell values, which belong to centroids, as values at the points of the triangulation.

    At interior points the two nearly coincide; cells of the boundary have their centroid a third of a cell inside.
    """

    mesh: Triangles
    offset: Float[np.ndarray, "points 2"]
    slopes: Float[np.ndarray, "triangles 3 2"]
    areas: Float[np.ndarray, " triangles"]
    velocity: Float[np.ndarray, "points 2"]
    velocity_known: np.ndarray
    pressure_known: np.ndarray

    @staticmethod
    def of(flow: Flow, mesh: Triangles, dual: Dual) -> PointValues:
        slopes, areas = gradients(mesh)
        known, zero = np.zeros(len(mesh.points), bool), np.zeros(len(mesh.points), bool)
        values = np.zeros_like(mesh.points)
        for name, condition in flow.prescribed.items():
            of_patch = np.unique(mesh.edges[mesh.patches[name]])
            values[of_patch], known[of_patch] = condition.velocity(mesh.points[of_patch]), True
        for name in flow.outlets:
            zero[np.unique(mesh.edges[mesh.patches[name]])] = True
        return PointValues(mesh, mesh.points - dual.centres, slopes, areas, values, known, zero)

    def of_cells(
        self, cells: Float[np.ndarray, " cells"], known: np.ndarray, prescribed: np.ndarray | float
    ) -> Float[np.ndarray, " points"]:
        found = np.where(known, prescribed, cells)
        for _ in range(2):
            slope = np.einsum("tia,ti->ta", self.slopes, found[self.mesh.triangles])
            gradient = at_points(self.mesh, slope, self.areas)
            found = np.where(known, prescribed, cells + (gradient * self.offset).sum(axis=1))
        return found


def read_frame(
    frame: Path, flow: Flow, points: PointValues
) -> tuple[Float[np.ndarray, "points 2"], Float[np.ndarray, " points"]]:
    cells = len(points.mesh.points)
    u = openfoam.read_field(frame / "U").values(cells)
    p = openfoam.read_field(frame / "p").values(cells)
    if not (np.isfinite(u).all() and np.isfinite(p).all()) or np.abs(u).max() > 50:
        raise running.DivergenceError(f"The fields at {frame.name} of {flow.name} reach |U| = {np.abs(u).max():.3g}.")
    velocity = np.stack(
        [points.of_cells(u[:, axis], points.velocity_known, points.velocity[:, axis]) for axis in range(2)], axis=1
    )
    pressure = points.of_cells(p, points.pressure_known, 0.0)
    if flow.pressure_point is not None:
        nearest = int(((points.mesh.points - np.array(flow.pressure_point)) ** 2).sum(axis=1).argmin())
        pressure = pressure - pressure[nearest]
    return velocity, pressure
