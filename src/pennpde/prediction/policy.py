"""When a case is predicted on another mesh than its own.

A plane mesh that is finer, coarser or more graded than those of training gets a companion of their kind: triangles of
the same domain at the network's spacing, from which the fields are interpolated.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from pennpde.case import Case
from pennpde.case.companion import ends_of_conditions, on_companion
from pennpde.case.units import Units
from pennpde.mesh import Mesh
from pennpde.mesh.remesh import CompanionError, companion_mesh, spacing_of
from pennpde.trust.ranges import Comparison, Ranges, compare, describe_mesh

Resolution = Literal["auto", "own", "network"]
"""On which mesh a network works: the user's own, a companion of its own spacing, or whichever it was trained for."""

_CELL_SIZE, _NEIGHBOURS = "mean cell size", "typical number of neighbours"
_NEIGHBOURS_OF_TRIANGLES = 6.0
_GRADED = 1.5
"""Times beyond the sizes of training that a tenth of the cells must be for a mesh to count as graded."""
_MOST_POINTS = 100_000
"""Of a companion that nobody asked for."""


def companion_of(
    case: Case, units: Units | None, ranges: Ranges, resolution: Resolution
) -> tuple[Case | None, tuple[str, ...]]:
    """The case on a companion, if it is to be predicted on one, and the notes about that.

    Args:
        case: In the user's units.
        units: In which the network sees it.
        ranges: What the network was trained on.
        resolution: What the user asks for.
    """
    if resolution not in get_args(Resolution):
        raise ValueError(f"The resolution is {resolution!r}; it may be {', '.join(map(repr, get_args(Resolution)))}.")
    if resolution == "own" or (resolution == "auto" and not _knows_triangles(case, ranges)):
        return None, ()
    if case.space != 2:
        raise ValueError(
            'Resolution "network" was requested, but only two-dimensional cases can be remeshed; this one has three. '
            'Leave the resolution out, or take "own".'
        )
    if _CELL_SIZE not in ranges:
        raise ValueError(
            'Resolution "network" was requested, but the network does not record the cell sizes of its training. '
            'Take the resolution "own".'
        )
    one = 1.0 if units is None else units.length
    if resolution == "auto" and _is_like_training(case.mesh, one, ranges):
        return None, ()
    spacing = spacing_of(case.mesh, one * math.sqrt(math.prod(ranges[_CELL_SIZE])))
    points = float(case.mesh.cell_volumes.sum()) / spacing**2
    try:
        if resolution == "auto" and points > _MOST_POINTS:
            raise CompanionError(
                f"At the network's spacing of {spacing:.4g} the domain has about {points:.1e} points; ask for them "
                'with the resolution "network".'
            )
        mesh = companion_mesh(case.mesh, spacing, keep=ends_of_conditions(case))
    except CompanionError as error:
        if resolution == "network":
            raise
        return None, (f"The mesh is unlike the training meshes, but could not be remeshed. {error}",)
    note = (
        f"Predicted on a companion mesh of {mesh.number_of_cells} triangles of the network's cell size, interpolated "
        f"to your {case.number_of_points} points."
    )
    return on_companion(case, mesh), (note,)


def _knows_triangles(case: Case, ranges: Ranges) -> bool:
    """Whether a companion of this case would be one of the meshes that the network was trained on, as far as known."""
    if case.space != 2 or _CELL_SIZE not in ranges or _NEIGHBOURS not in ranges:
        return False
    return Comparison(_NEIGHBOURS, _NEIGHBOURS_OF_TRIANGLES, *ranges[_NEIGHBOURS]).inside


def _is_like_training(mesh: Mesh, one: float, ranges: Ranges) -> bool:
    """Whether cells have sizes and shapes of training, in units of the length that counts as one."""
    numbers = describe_mesh(mesh)
    numbers[_CELL_SIZE] /= one
    compared = {each.name: each for each in compare(numbers, ranges)}
    low, high = ranges[_CELL_SIZE]
    within = np.setdiff1d(np.arange(mesh.number_of_points), mesh.boundary_points)
    sizes = mesh.point_volumes.sqrt().numpy()[within if len(within) else slice(None)] / one
    finest, coarsest = np.quantile(sizes, [0.1, 0.9])
    stretching = compared.get("mean stretching of cells")
    return bool(
        compared[_CELL_SIZE].inside
        and compared[_NEIGHBOURS].inside
        and _GRADED * finest >= low
        and coarsest <= _GRADED * high
        # Less stretched than in training can only be better.
        and (stretching is None or stretching.inside or stretching.value < stretching.low)
    )
