"""How good the truth is: the same flow with half the spacing and half the time step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from pennlab import running
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.flows import draw_flow, flow_name
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.shapes import FAMILIES
from pennlab.datasets.plane_flow.start import point_areas
from pennlab.datasets.plane_flow.truth import Truth, solve
from pennpde.mesh.triangulation import interpolation

_CANDIDATES = 12
_RANGE = (30.0, 1500.0)
_AWAY = 0.1
_STRIDE = 7
"""Families take Reynolds numbers out of their order, so that neighbours in the list differ."""


def compared_flows() -> list[str]:
    """One flow of each family; together they span the range of Reynolds numbers."""
    families = list(FAMILIES)
    found = []
    for place, family in enumerate(families):
        share = (place * _STRIDE % len(families)) / (len(families) - 1)
        wanted = _RANGE[0] * (_RANGE[1] / _RANGE[0]) ** share
        names = [flow_name(family, number) for number in range(_CANDIDATES)]
        found.append(min(names, key=lambda name: abs(math.log(draw_flow(name).reynolds / wanted))))
    return found


def compare(
    flow: Flow, folder: Path, installation: running.Installation | None = None, timeout: float | None = None
) -> dict[str, Any]:
    """Relative L2 differences of u and p between the dataset's resolution and half of it, by moment."""
    resolution = Resolution.of(flow)
    coarse = solve(flow, folder / "coarse", resolution, installation=installation, timeout=timeout)
    fine = solve(flow, folder / "fine", resolution.halved, installation=installation, timeout=timeout)
    differences = relative_differences(flow, coarse, fine)
    return {
        "name": flow.name,
        "family": flow.family,
        "reynolds": flow.reynolds,
        "times": list(flow.moments),
        **differences,
        "coarse": dict(coarse.facts),
        "fine": dict(fine.facts),
    }


def relative_differences(flow: Flow, coarse: Truth, fine: Truth) -> dict[str, Any]:
    """|coarse - fine| / |fine| in L2 over the domain, for u and p at the moments and in the steady state.

    Where the velocity jumps between two patches, the pressure has a pole whose square has no integral; `p_away` leaves
    out a tenth of an inlet width around such corners.
    """
    matrix, _ = interpolation(fine.mesh.points, fine.mesh.triangles, coarse.mesh.points, 1e-3)
    weights = point_areas(coarse.mesh)

    corners = _jumps(flow)
    away = weights * (KDTree(corners).query(coarse.mesh.points)[0] > _AWAY) if len(corners) else weights

    def difference(one: np.ndarray, other: np.ndarray, weights: np.ndarray = weights) -> list[float]:
        """By entry of the last axis, over points and all axes between."""
        there = (matrix @ other.reshape(len(other), -1)).reshape(len(one), *other.shape[1:])
        weight = weights.reshape(-1, *[1] * (one.ndim - 1))
        axes = tuple(range(one.ndim - 1))
        ratio = np.sqrt((weight * (one - there) ** 2).sum(axis=axes) / (weight * there**2).sum(axis=axes))
        return [round(float(value), 6) for value in ratio]

    found: dict[str, Any] = {
        "u": difference(coarse.velocity, fine.velocity),
        "p": difference(coarse.pressure, fine.pressure),
        "p_away": difference(coarse.pressure, fine.pressure, away),
    }
    if coarse.steady_velocity is not None and fine.steady_velocity is not None:
        assert coarse.steady_pressure is not None
        assert fine.steady_pressure is not None
        found["steady_u"] = difference(coarse.steady_velocity[..., None], fine.steady_velocity[..., None])
        pressures = coarse.steady_pressure[:, None], fine.steady_pressure[:, None]
        found["steady_p"], found["steady_p_away"] = difference(*pressures), difference(*pressures, away)
    return found


def _jumps(flow: Flow) -> np.ndarray:
    """Corners in which two patches prescribe different velocities."""
    found = []
    for loop in flow.domain.loops:
        for piece, following in zip(loop, (*loop[1:], loop[0]), strict=True):
            sides = [flow.prescribed.get(each.patch) for each in (piece, following)]
            if piece.patch != following.patch and sides[0] is not None and sides[1] is not None:
                one, other = (each.velocity(piece.path[-1:]) for each in sides if each is not None)
                if np.abs(one - other).max() > 0.05:
                    found.append(piece.path[-1])
    return np.array(found)
