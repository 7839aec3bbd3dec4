"""The boundary of a plane mesh in pieces that a person can point at: inlet, outlet, wall.

Exterior facets that follow each other without a corner and belong to the same patch of the file make a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pennpde.mesh import Mesh
from pennpde.mesh.boundary import CORNER, Ring, edges_of
from pennpde.viewer.requests import MOST_SEGMENTS, ROLES, Role

_NAMES: dict[Role, tuple[str, ...]] = {
    "inlet": ("inlet", "inflow", "entrance"),
    "outlet": ("outlet", "outflow", "exit"),
}


@dataclass(frozen=True, eq=False)
class Segment:
    """A piece of the boundary.

    Attributes:
        facets: Indices into `Mesh.facets`.
        place: Where it lies, in words.
        length: Of all its facets together.
        patch: The patch of the mesh that it belongs to.
    """

    facets: Int64[np.ndarray, " facets"]
    place: str
    length: float
    patch: str | None

    @property
    def role(self) -> Role:
        """What the name of its patch says it is."""
        name = (self.patch or "").lower()
        for role, words in _NAMES.items():
            if any(word in name for word in words):
                return role
        return "wall"


def segments(mesh: Mesh, corner: float = CORNER) -> list[Segment]:
    """The boundary of a plane mesh in segments, from left to right.

    Args:
        mesh: A plane mesh.
        corner: The least angle, in radians, by which the boundary turns at a corner.
    """
    ring = Ring.of(mesh)
    edges = ring.edges
    label = np.full(len(edges), -1)
    names = list(mesh.patches)
    for number, name in enumerate(names):
        facets = mesh.patches[name].facets
        label[facets[label[facets] < 0]] = number
    first, second = ring.before, ring.after
    together = (np.abs(ring.turns(mesh.points.numpy())) < corner) & (label[first] == label[second])
    graph = coo_array(
        (np.ones(together.sum(), bool), (first[together], second[together])), shape=(len(edges), len(edges))
    )
    number, owner = connected_components(graph, directed=False)
    if number > MOST_SEGMENTS:
        raise ValueError(
            f"The boundary has {number} segments between its corners, too many to choose from on a page. Name the "
            "patches in the file, or use `penn predict` with a case file."
        )
    pieces = [np.flatnonzero(owner == piece) for piece in range(number)]
    pieces.sort(key=lambda facets: tuple(mesh.points.numpy()[edges[facets]].mean(axis=(0, 1)).round(9)))
    return [
        Segment(
            facets,
            _place(mesh, edges[facets]),
            float(mesh.facet_areas[facets].norm(dim=1).sum()),
            names[label[facets[0]]] if label[facets[0]] >= 0 else None,
        )
        for facets in pieces
    ]


def with_roles(mesh: Mesh, pieces: Sequence[Segment], roles: Sequence[Role]) -> Mesh:
    """The mesh with the patches inlet, outlet and wall, as far as any segment has that role."""
    edges = edges_of(mesh)
    chosen = {
        role: np.concatenate([piece.facets for piece, own in zip(pieces, roles, strict=True) if own == role])
        for role in ROLES
        if role in roles
    }
    return mesh.with_patch_facets({role: edges[facets] for role, facets in chosen.items()})


def _place(mesh: Mesh, edges: np.ndarray) -> str:
    points, count = np.unique(edges, return_counts=True)
    positions = mesh.points.numpy()[points]
    low, high = positions.min(axis=0), positions.max(axis=0)
    nearness = 1e-6 * float(np.ptp(mesh.points.numpy(), axis=0).max())
    for axis, other in ((0, 1), (1, 0)):
        if high[axis] - low[axis] <= nearness:
            names = "xy"
            return f"{names[axis]} = {low[axis]:.3g}, {names[other]} from {low[other]:.3g} to {high[other]:.3g}"
    ends = positions[count == 1]
    if len(ends) != 2:
        centre = (low + high) / 2
        return f"closed, around ({centre[0]:.3g}, {centre[1]:.3g})"
    (a, b), (c, d) = sorted(map(tuple, ends))
    return f"({a:.3g}, {b:.3g}) to ({c:.3g}, {d:.3g})"
