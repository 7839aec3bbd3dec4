"""Points, the cells they span, the graph of the cells, outward normals and named patches of the boundary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from scipy.sparse import csr_array
from torch import Tensor

from pennpde.mesh_topology import (
    CELL_TYPES,
    Cells,
    Facets,
    cell_facets,
    exterior_facets,
    facet_areas,
    signed_volumes,
)
from pennpde.mesh_validation import CellsLike, cells_from, checked_cells, checked_points

PatchLike = Callable[[np.ndarray], np.ndarray] | np.ndarray | Tensor | Sequence[int] | str


@dataclass(frozen=True, eq=False)
class Patch:
    """A named part of the boundary.

    Attributes:
        points: its points, sorted. A point may be in several patches, or inside the mesh when it was given by index.
        facets: its facets, as indices into `Mesh.facets`: those all of whose points belong to the patch, unless
            they were given one by one.
    """

    points: Int64[np.ndarray, " patch_points"]
    facets: Int64[np.ndarray, " patch_facets"]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Points in the plane or in space, and the cells they span.

    Make one with `from_arrays`, `from_pyvista`, `read` or `plane_of`, which check what they are given; the class
    itself checks nothing.

    Attributes:
        points: positions, with 2 coordinates for a plane mesh.
        connectivity: the points of all cells, one cell after the other, in VTK's order; plane cells run
            counter-clockwise.
        offsets: where each cell starts in `connectivity`, and the end.
        cell_types: VTK's codes. Pixels and voxels have become quads and hexahedra.
        polyhedron_faces: the faces of polyhedra, where there are any.
        patches: named parts of the boundary.
        fields: point fields that are saved with the mesh.
        layer: for a mesh made by `plane_of`, the indices of its points in the mesh it was taken from.
    """

    points: Float[Tensor, "points space"]
    connectivity: Int64[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " cells+1"]
    cell_types: UInt8[np.ndarray, " cells"]
    polyhedron_faces: Facets | None = None
    patches: Mapping[str, Patch] = field(default_factory=lambda: MappingProxyType({}))
    fields: Mapping[str, Tensor] = field(default_factory=lambda: MappingProxyType({}))
    layer: Int64[np.ndarray, " points"] | None = None

    @staticmethod
    def from_arrays(
        points: np.ndarray | Tensor | Sequence,
        cells: CellsLike,
        cell_types: str | int | np.ndarray | None = None,
        patches: Mapping[str, PatchLike] | None = None,
    ) -> Mesh:
        """A mesh from positions and the points of its cells.

        Args:
            points: [points, 2 or 3]. Plane cells with three coordinates must lie in a plane z = constant.
            cells: [cells, points of one cell], or {"quad": [...], "triangle": [...]}, or connectivity and offsets.
                Polyhedra are lists of faces, {"polyhedron": [[face, face, ...], ...]}, or `Facets`.
            cell_types: a name, a VTK code or one code for each cell. May be left out where the number of points
                and of coordinates tell: 3, 4 and more in the plane are triangles, quads and polygons; 4, 5, 6 and
                8 in space are tetrahedra, pyramids, wedges and hexahedra.
            patches: as for `with_patches`.
        """
        positions = checked_points(points)
        positions, sound = checked_cells(positions, cells_from(cells, cell_types, positions.shape[1]))
        mesh = Mesh(positions, sound.connectivity, sound.offsets, sound.types, sound.polyhedron_faces)
        _ = mesh.facets  # refuses cells that overlap
        return mesh.with_patches(patches) if patches else mesh

    @property
    def space(self) -> int:
        """The number of coordinates, 2 or 3."""
        return self.points.shape[1]

    @property
    def number_of_points(self) -> int:
        return self.points.shape[0]

    @property
    def number_of_cells(self) -> int:
        return len(self.cell_types)

    def __repr__(self) -> str:
        codes, counts = np.unique(self.cell_types, return_counts=True)
        cells = ", ".join(f"{count} {CELL_TYPES[int(code)].name}" for code, count in zip(codes, counts, strict=True))
        patches = ", ".join(f"{name} ({len(patch.points)})" for name, patch in self.patches.items())
        return f"Mesh({self.number_of_points} points in {self.space}D; {cells}; patches: {patches or 'none'})"

    # The graph

    @cached_property
    def edges(self) -> Int64[np.ndarray, "2 edges"]:
        """Ordered pairs (i, j) of neighbours, sorted by i, then j. Two points are neighbours if a cell holds both."""
        entries = len(self.connectivity)
        membership = csr_array(
            (np.ones(entries, dtype=bool), self.connectivity, self.offsets),
            shape=(self.number_of_cells, self.number_of_points),
        )
        neighbours = membership.T.tocsr() @ membership
        neighbours.sort_indices()
        first = np.repeat(np.arange(self.number_of_points), np.diff(neighbours.indptr))
        second = neighbours.indices
        other = first != second
        return np.stack([first[other], second[other].astype(np.int64)])

    # The boundary

    @cached_property
    def facets(self) -> Facets:
        """The exterior facets, those of one cell only, sorted by cell: polygons in space, edges in the plane."""
        return exterior_facets(cell_facets(self._cells), self.number_of_points)

    @cached_property
    def facet_areas(self) -> Float[Tensor, "facets space"]:
        """The outward normal of each exterior facet, as long as the facet is large."""
        return torch.from_numpy(facet_areas(self._positions, self.facets))

    @cached_property
    def facet_normals(self) -> Float[Tensor, "facets space"]:
        """The outward unit normal of each exterior facet."""
        return torch.nn.functional.normalize(self.facet_areas, dim=1, eps=np.finfo(float).tiny)

    @cached_property
    def normals(self) -> Float[Tensor, "points space"]:
        """The outward unit normal of each point of the boundary, zero inside."""
        return self.normals_of_facets(np.arange(len(self.facets)))

    def point_normals(self, patch_names: Iterable[str]) -> Float[Tensor, "points space"]:
        """The unit normals of points from the facets of these patches alone, zero elsewhere."""
        chosen = [self.patch(name).facets for name in patch_names]
        return self.normals_of_facets(np.unique(np.concatenate([np.zeros(0, np.int64), *chosen])))

    def normals_of_facets(self, chosen: np.ndarray) -> Float[Tensor, "points space"]:
        """The unit normals of points from these facets alone, zero elsewhere."""
        # Each facet gives its unit normal divided by its number of points, whatever its area: a corner's normal then
        # does not depend on how finely the mesh is graded towards it, and it is what the published networks use.
        facets = self.facets.take(chosen)
        shares = np.repeat(self.facet_normals.numpy()[chosen] / facets.sizes[:, None], facets.sizes, axis=0)
        sums = np.stack(
            [np.bincount(facets.connectivity, share, minlength=self.number_of_points) for share in shares.T], axis=1
        )
        sums = sums.astype(float)  # without facets NumPy counts in integers
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # The two sides of a thin plate cancel: what rounding leaves has no direction.
        return torch.from_numpy(np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 1e-12))

    @cached_property
    def boundary_points(self) -> Int64[np.ndarray, " boundary_points"]:
        return np.unique(self.facets.connectivity)

    # Named patches

    def patch(self, name: str) -> Patch:
        try:
            return self.patches[name]
        except KeyError:
            raise KeyError(
                f"The mesh has no patch {name!r}. Its patches: {', '.join(self.patches) or 'none'}. "
                "Add one with mesh.with_patches({...})."
            ) from None

    def with_patches(self, patches: Mapping[str, PatchLike]) -> Mesh:
        """The mesh with further named patches.

        Args:
            patches: by name, either a test on positions (it sees the points of the boundary, [points, space], and
                returns one bool for each), or indices of points, or one bool for each point of the mesh, or the name
                of a field that is not zero on the patch. A patch that exists is replaced.
        """
        made = {name: self._patch_of(self._points_of(name, given)) for name, given in patches.items()}
        return self._with(patches=MappingProxyType({**self.patches, **made}))

    def _patch_of(self, points: np.ndarray) -> Patch:
        mask = np.zeros(self.number_of_points, dtype=bool)
        mask[points] = True
        inside = np.logical_and.reduceat(mask[self.facets.connectivity], self.facets.offsets[:-1])
        return Patch(points, np.flatnonzero(inside))

    def _points_of(self, name: str, given: PatchLike) -> Int64[np.ndarray, " patch_points"]:
        if callable(given):
            positions = self._positions[self.boundary_points]
            chosen = np.asarray(given(positions))
            if chosen.shape != (len(positions),) or chosen.dtype != bool:
                raise ValueError(
                    f"The test of patch {name!r} returned {chosen.dtype} of shape {chosen.shape} for positions of shape "
                    f"{positions.shape}; it must return one bool for each position."
                )
            points = self.boundary_points[chosen]
            reason = "its test holds at no boundary point"
        else:
            if isinstance(given, str):
                if given not in self.fields:
                    raise KeyError(
                        f"Patch {name!r} is to be taken from the field {given!r}, which the mesh does not have. "
                        f"Its fields: {', '.join(self.fields) or 'none'}."
                    )
                given = self.fields[given] != 0
            chosen = np.atleast_1d(np.asarray(given))
            if chosen.size == 0:
                chosen = chosen.astype(np.int64)
            if chosen.dtype == bool and chosen.shape == (self.number_of_points,):
                points = np.flatnonzero(chosen)
            elif np.issubdtype(chosen.dtype, np.integer) and chosen.ndim == 1:
                points = np.unique(chosen.astype(np.int64))
            else:
                raise ValueError(
                    f"Patch {name!r} is given as {chosen.dtype} of shape {chosen.shape}; give a test on positions, a list "
                    f"of point indices, or one bool for each of the {self.number_of_points} points."
                )
            if points.size and (points[0] < 0 or points[-1] >= self.number_of_points):
                wrong = points[0] if points[0] < 0 else points[-1]
                raise ValueError(
                    f"Patch {name!r} names point {wrong}; the mesh has points 0 to {self.number_of_points - 1}."
                )
            reason = "it was given no points"
        if points.size == 0:
            low, high = self._positions.min(axis=0), self._positions.max(axis=0)
            raise ValueError(
                f"Patch {name!r} is empty: {reason}. The mesh spans {low} to {high}; compare positions with np.isclose "
                "rather than ==."
            )
        return points

    def with_fields(self, fields: Mapping[str, Tensor | np.ndarray]) -> Mesh:
        """The mesh with further point fields, [points, *axes], to be saved with it."""
        made = {name: torch.as_tensor(values) for name, values in fields.items()}
        for name, values in made.items():
            if values.ndim == 0 or len(values) != self.number_of_points:
                raise ValueError(
                    f"Field {name!r} has shape {tuple(values.shape)}; its first axis must be the mesh's "
                    f"{self.number_of_points} points."
                )
        return self._with(fields=MappingProxyType({**self.fields, **made}))

    # Sizes

    @cached_property
    def cell_volumes(self) -> Float[Tensor, " cells"]:
        """The area (plane) or volume (space) of each cell."""
        return torch.from_numpy(signed_volumes(self._positions, self._cells))

    @cached_property
    def point_volumes(self) -> Float[Tensor, " points"]:
        """Each cell's volume shared equally among its points."""
        sizes = np.diff(self.offsets)
        shares = np.repeat(self.cell_volumes.numpy() / sizes, sizes)
        return torch.from_numpy(np.bincount(self.connectivity, shares, minlength=self.number_of_points))

    # Inside

    @property
    def _positions(self) -> Float[np.ndarray, "points space"]:
        return self.points.detach().numpy()

    @property
    def _cells(self) -> Cells:
        return Cells(self.connectivity, self.offsets, self.cell_types, self.polyhedron_faces)

    def _with(self, **changes: object) -> Mesh:
        """A copy with other patches or fields, which keeps the graph and the boundary already worked out."""
        changed = replace(self, **changes)
        known = {name: value for name, value in self.__dict__.items() if name not in self.__dataclass_fields__}
        changed.__dict__.update(known)
        return changed
