"""Points, the cells they span, the graph of the cells, outward normals and named patches of the boundary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped, UInt8
from scipy.sparse import csr_array
from torch import Tensor

from pennpde.mesh import files as mesh_files
from pennpde.mesh.cells import (
    CELL_TYPES,
    POLYGON,
    QUAD,
    TRIANGLE,
    Cells,
    Facets,
    cell_facets,
    exterior_facets,
    facet_areas,
    facet_keys,
    joined,
    matched,
    mirrored,
    offsets_of,
    signed_volumes,
)
from pennpde.mesh.checks import (
    CellsLike,
    NotConnectedError,
    PatchLike,
    cells_from,
    check_one_piece,
    checked_cells,
    checked_points,
    joined_cells,
    patch_points,
)
from pennpde.mesh.contents import Contents, first_order, glued, slit_note, without_unused
from pennpde.mesh.distance import distances, parts_of
from pennpde.registry import did_you_mean

if TYPE_CHECKING:
    import pyvista

    from pennpde.pictures import Picture

FacetsLike = np.ndarray | Sequence[Sequence[int]] | Facets


# Quantities derived from the cells and points of a mesh, computed once, on first use.
#
# It lies apart from `Mesh` so that copies of a mesh share it: one with other patches or fields has the same graph,
# boundary, normals and volumes; one that was moved or scaled still has the same graph and boundary.


@dataclass(frozen=True, eq=False)
class Topology:
    """What follows from the cells, wherever their points lie.

    Attributes:
        known_facets: the exterior facets, where they are known already.
    """

    cells: Cells
    number_of_points: int
    known_facets: Facets | None = None

    def is_of(self, cells: Cells, number_of_points: int) -> bool:
        """Whether it belongs to these very arrays. To compare their content would take longer than it could save."""
        mine = self.cells
        return (
            mine.connectivity is cells.connectivity
            and mine.offsets is cells.offsets
            and mine.types is cells.types
            and mine.polyhedron_faces is cells.polyhedron_faces
            and self.number_of_points == number_of_points
        )

    @cached_property
    def edges(self) -> Int64[np.ndarray, "2 edges"]:
        entries = len(self.cells.connectivity)
        membership = csr_array(
            (np.ones(entries, dtype=bool), self.cells.connectivity, self.cells.offsets),
            shape=(len(self.cells), self.number_of_points),
        )
        neighbours = membership.T.tocsr() @ membership
        neighbours.sort_indices()
        first = np.repeat(np.arange(self.number_of_points), np.diff(neighbours.indptr))
        second = neighbours.indices
        other = first != second
        return np.stack([first[other], second[other].astype(np.int64)])

    @cached_property
    def first_edges(self) -> Int64[np.ndarray, " points"]:
        """Where in `edges` those of each point begin."""
        return np.flatnonzero(np.diff(self.edges[0], prepend=-1))

    @cached_property
    def typical_neighbours(self) -> float:
        # The median, as points of the boundary have fewer, and a fine mesh has few of those.
        return float(np.median(np.diff(self.first_edges, append=self.edges.shape[1])))

    @cached_property
    def facets(self) -> Facets:
        if self.known_facets is not None:
            return self.known_facets
        return exterior_facets(cell_facets(self.cells), self.number_of_points)

    @cached_property
    def boundary_points(self) -> Int64[np.ndarray, " boundary_points"]:
        return np.unique(self.facets.connectivity)


@dataclass(frozen=True, eq=False)
class Geometry:
    """What follows from the cells and where their points lie.

    Attributes:
        parts: the meshes that were put together side by side to make this one, if any.
    """

    topology: Topology
    points: Float[Tensor, "points space"]
    parts: tuple[Mesh, ...] = ()

    @staticmethod
    def of(cells: Cells, points: Float[Tensor, "points space"], known: Geometry | None) -> Geometry:
        """That of these cells and points, with as much of what is known of another mesh as holds for them."""
        if known is None or not known.topology.is_of(cells, len(points)):
            return Geometry(Topology(cells, len(points)), points)
        return known if known.points is points else Geometry(known.topology, points)

    @property
    def positions(self) -> Float[np.ndarray, "points space"]:
        return self.points.detach().numpy()

    @cached_property
    def facet_areas(self) -> Float[Tensor, "facets space"]:
        return torch.from_numpy(facet_areas(self.positions, self.topology.facets))

    @cached_property
    def facet_normals(self) -> Float[Tensor, "facets space"]:
        return torch.nn.functional.normalize(self.facet_areas, dim=1, eps=np.finfo(float).tiny)

    @cached_property
    def normals(self) -> Float[Tensor, "points space"]:
        return self.normals_of_facets(np.arange(len(self.topology.facets)))

    def normals_of_facets(self, chosen: np.ndarray) -> Float[Tensor, "points space"]:
        # Each facet gives its unit normal divided by its number of points, whatever its area: a corner's normal then
        # does not depend on how finely the mesh is graded towards it, and it is what the published networks use.
        facets = self.topology.facets.take(chosen)
        shares = np.repeat(self.facet_normals.numpy()[chosen] / facets.sizes[:, None], facets.sizes, axis=0)
        sums = np.stack([np.bincount(facets.connectivity, share, minlength=len(self.points)) for share in shares.T], 1)
        sums = sums.astype(float)  # without facets NumPy counts in integers
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        # The two sides of a thin plate cancel: what rounding leaves has no direction.
        return torch.from_numpy(np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 1e-12))

    @cached_property
    def cell_volumes(self) -> Float[Tensor, " cells"]:
        return torch.from_numpy(signed_volumes(self.positions, self.topology.cells))

    @cached_property
    def stretching(self) -> float:
        first, second = self.topology.edges
        lengths = np.sqrt(sum((x[first] - x[second]) ** 2 for x in np.ascontiguousarray(self.positions.T)))
        starts = self.topology.first_edges
        return float((np.maximum.reduceat(lengths, starts) / np.minimum.reduceat(lengths, starts)).mean())

    @cached_property
    def point_volumes(self) -> Float[Tensor, " points"]:
        cells = self.topology.cells
        shares = np.repeat(self.cell_volumes.numpy() / cells.sizes, cells.sizes)
        return torch.from_numpy(np.bincount(cells.connectivity, shares, minlength=len(self.points)))


# The mesh itself


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
        notes: what was repaired when the mesh was read, a sentence each.
        known: what was worked out for a mesh of the same cells; as much of it is used as holds for this one.
        facts: what is saved with the mesh as VTK's field data: texts, or a few numbers.
    """

    points: Float[Tensor, "points space"]
    connectivity: Int64[np.ndarray, " entries"]
    offsets: Int64[np.ndarray, " cells+1"]
    cell_types: UInt8[np.ndarray, " cells"]
    polyhedron_faces: Facets | None = None
    patches: Mapping[str, Patch] = field(default_factory=dict)
    fields: Mapping[str, Tensor] = field(default_factory=dict)
    layer: Int64[np.ndarray, " points"] | None = None
    notes: tuple[str, ...] = ()
    known: Geometry | None = field(default=None, repr=False)
    facts: Mapping[str, str | Sequence[float]] = field(default_factory=dict)

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
        facets = cell_facets(sound)
        exterior, pairs = matched(facets, len(positions))
        check_one_piece(positions, sound, facets, pairs)
        known = Geometry(Topology(sound, len(positions), facets.take(exterior)), positions)
        mesh = Mesh(positions, sound.connectivity, sound.offsets, sound.types, sound.polyhedron_faces, known=known)
        return mesh.with_patches(patches) if patches else mesh

    @staticmethod
    def from_pyvista(dataset: pyvista.DataObject, repair: bool = False) -> Mesh:
        """A mesh from a PyVista dataset, with its point arrays as fields.

        Vertices, lines, and the surface cells of a body are left out. Arrays `patch:NAME` become patches.

        Args:
            dataset: anything with points and cells.
            repair: as for `read`.
        """
        return Mesh.from_contents(mesh_files.from_dataset(dataset), repair)

    @staticmethod
    def read(source: str | Path | pyvista.DataObject, repair: bool = True) -> Mesh:
        """A mesh from a file of Gmsh (.msh), any that PyVista reads, or that an installed package reads.

        Named parts of the boundary become patches: physical groups, markers, boundary conditions, groups.

        Args:
            source: path of the file, or what PyVista has read or made already.
            repair: bring cells of second order to first order, leave out points of no cell, and merge points at the
                same place where the mesh would fall apart; `notes` of the mesh say what was done. Without it such files
                are refused.
        """
        if not isinstance(source, str | PathLike):
            return Mesh.from_pyvista(source, repair)
        return Mesh.from_contents(mesh_files.read(source), repair)

    @staticmethod
    def from_contents(contents: Contents, repair: bool = True) -> Mesh:
        """A mesh from what a file says, checked; see `read`."""
        if repair:
            contents = without_unused(first_order(contents))
        try:
            mesh = Mesh.from_arrays(contents.points, contents.cells)
        except NotConnectedError:
            whole = glued(contents) if repair else contents
            if whole is contents:
                raise
            contents = whole
            mesh = Mesh.from_arrays(contents.points, contents.cells)
        mesh = mesh._with(notes=contents.notes)
        if repair:
            size = float(np.ptp(mesh._positions, axis=0).max())
            slit = slit_note(mesh._positions[mesh.boundary_points], size)
            mesh = mesh._with(notes=(*mesh.notes, slit)) if slit else mesh
        mesh = mesh.with_fields(contents.fields)
        # A patch that has been cut away since the file was written is gone, not an error.
        mesh = mesh.with_patches({name: mask for name, mask in contents.patch_points.items() if mask.any()})
        chosen = {}
        for name, facets in contents.patch_facets.items():
            # Likewise, other facets than the patch's mean that these numbers are those of another mesh.
            if name in mesh.patches and np.isin(facets, mesh.patches[name].facets).all():
                chosen[name] = Patch(mesh.patches[name].points, facets.astype(np.int64))
        # Files also name surfaces inside a body; they are no part of the boundary.
        outside = {name: facets.take(mesh._find_facets(facets)[1]) for name, facets in contents.chosen_facets.items()}
        named = {name: facets for name, facets in outside.items() if len(facets)}
        return mesh._with_patches(chosen).with_patch_facets(named)

    @staticmethod
    def plane_of(mesh: Mesh) -> Mesh:
        """The plane mesh under a mesh that is one cell thick in z, such as OpenFOAM's plane cases.

        Points are those of the lower side, in the order they have in `mesh`; `layer` holds their indices there. Cells
        keep their order. Patches keep their upright facets; patches that consist only of the two flat sides are
        dropped. Fields keep their values on the lower side, vectors and tensors without the components of z.
        """
        if mesh.space == 2:
            raise ValueError("The mesh is plane already.")
        floor = _Floor.under(mesh._positions, mesh.facets, mesh.number_of_cells)
        layer = torch.from_numpy(floor.layer)
        plane = replace(Mesh.from_arrays(mesh.points[layer, :2], floor.cells), layer=floor.layer, notes=mesh.notes)
        kept = {}
        for name, patch in mesh.patches.items():
            upright = patch.facets[~floor.flat[patch.facets]]
            edges = floor.edges_of(mesh.facets.take(upright))
            points = floor.points_of(patch.points) if len(upright) == len(patch.facets) else np.unique(edges)
            if points.size:
                kept[name] = Patch(points, np.unique(plane._facet_indices(name, Facets.of(edges))))
        fields = {name: _without_third(values[layer]) for name, values in mesh.fields.items()}
        return plane._with_patches(kept).with_fields(fields)

    @staticmethod
    def concatenate(meshes: Sequence[Mesh]) -> Mesh:
        """One mesh of several, side by side and not connected; with the patches of any and the fields of all."""
        if not meshes:
            raise ValueError("There are no meshes to concatenate.")
        if len({mesh.space for mesh in meshes}) > 1:
            raise ValueError("Plane meshes and meshes in space cannot be concatenated.")
        # The numbers that the first point, cell and exterior facet of each mesh get.
        sizes = np.array([(mesh.number_of_points, mesh.number_of_cells, len(mesh.facets)) for mesh in meshes])
        parts = list(zip(meshes, *(offsets_of(column)[:-1] for column in sizes.T), strict=True))
        cells = joined_cells(
            [mesh._cells.renumbered(point + np.arange(mesh.number_of_points)) for mesh, point, _, _ in parts]
        )
        patches = {}
        for name in dict.fromkeys(name for mesh in meshes for name in mesh.patches):
            having = [(mesh.patches[name], *starts) for mesh, *starts in parts if name in mesh.patches]
            patches[name] = Patch(
                np.concatenate([patch.points + point for patch, point, _, _ in having]),
                np.concatenate([patch.facets + facet for patch, _, _, facet in having]),
            )
        shared = [name for name in meshes[0].fields if all(name in mesh.fields for mesh in meshes)]
        # Facets are sorted by cell, so those of the union are those of the parts, one part after the other.
        facets = joined(
            [
                Facets(mesh.facets.connectivity + point, mesh.facets.offsets, mesh.facets.cells + cell)
                for mesh, point, cell, _ in parts
            ]
        )
        points = torch.cat([mesh.points for mesh in meshes])
        return Mesh(
            points=points,
            connectivity=cells.connectivity,
            offsets=cells.offsets,
            cell_types=cells.types,
            polyhedron_faces=cells.polyhedron_faces,
            patches=patches,
            fields={name: torch.cat([mesh.fields[name] for mesh in meshes]) for name in shared},
            known=Geometry(
                Topology(cells, len(points), facets), points, tuple(part for mesh in meshes for part in mesh.parts)
            ),
        )

    @cached_property
    def geometry(self) -> Geometry:
        """What follows from points and cells; worked out as far as it is asked for, and shared with copies."""
        return Geometry.of(self._cells, self.points, self.known)

    @property
    def parts(self) -> tuple[Mesh, ...]:
        """The meshes that `concatenate` put together, so that what was worked out for one of them is of use here."""
        return self.geometry.parts or (self,)

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

    @property
    def edges(self) -> Int64[np.ndarray, "2 edges"]:
        """Ordered pairs (i, j) of neighbours, sorted by i, then j. Two points are neighbours if a cell holds both."""
        return self.geometry.topology.edges

    @property
    def stretching(self) -> float:
        """The mean over all points of their longest edge over their shortest one."""
        return self.geometry.stretching

    # The boundary

    @property
    def facets(self) -> Facets:
        """The exterior facets, those of one cell only, sorted by cell: polygons in space, edges in the plane."""
        return self.geometry.topology.facets

    @property
    def facet_areas(self) -> Float[Tensor, "facets space"]:
        """The outward normal of each exterior facet, as long as the facet is large."""
        return self.geometry.facet_areas

    @property
    def facet_normals(self) -> Float[Tensor, "facets space"]:
        """The outward unit normal of each exterior facet."""
        return self.geometry.facet_normals

    @property
    def normals(self) -> Float[Tensor, "points space"]:
        """The outward unit normal of each point of the boundary, zero inside."""
        return self.geometry.normals

    def point_normals(self, patch_names: str | Iterable[str]) -> Float[Tensor, "points space"]:
        """The unit normals of points from only the facets of these patches, zero elsewhere."""
        chosen = [patch.facets for patch in self._chosen(patch_names)]
        return self.normals_of_facets(np.unique(np.concatenate([np.zeros(0, np.int64), *chosen])))

    def normals_of_facets(self, chosen: np.ndarray) -> Float[Tensor, "points space"]:
        """The unit normals of points from only these facets, zero elsewhere."""
        return self.geometry.normals_of_facets(chosen)

    def with_streams(self, directions: Mapping[str, np.ndarray]) -> Mesh:
        """With two further patches for each that is crossed in a direction: "NAME inflow" and "NAME outflow"."""
        made = {}
        for name, direction in directions.items():
            facets = self.patch(name).facets
            through = self.facet_areas.double().numpy()[facets] @ direction[: self.space]
            entered = through < -1e-9 * np.abs(through).max(initial=0.0)
            for part, chosen in (("inflow", facets[entered]), ("outflow", facets[~entered])):
                made[f"{name} {part}"] = Patch(np.unique(self.facets.take(chosen).connectivity), chosen)
        return self._with_patches(made)

    @property
    def boundary_points(self) -> Int64[np.ndarray, " boundary_points"]:
        return self.geometry.topology.boundary_points

    # Named patches

    def patch(self, name: str) -> Patch:
        try:
            return self.patches[name]
        except KeyError:
            raise KeyError(
                f"The mesh has no patch {name!r}. Its patches: {', '.join(self.patches) or 'none'}."
                f"{did_you_mean(str(name), self.patches)} Add one with mesh.with_patches({{...}})."
            ) from None

    def _chosen(self, patch_names: str | Iterable[str]) -> list[Patch]:
        return [self.patch(name) for name in ([patch_names] if isinstance(patch_names, str) else patch_names)]

    def with_patches(self, patches: Mapping[str, PatchLike]) -> Mesh:
        """The mesh with further named patches.

        Args:
            patches: by name, comparisons such as "x == 0 and y < 1" or another choice of a problem file (a box, a
                half-space, "rest" for what no other patch has), or a test on positions (it sees the points of the
                boundary, [points, space], and returns one bool for each), or indices of points, or one bool for each
                point of the mesh, or the name of a field that is not zero on the patch. A patch that exists is
                replaced.
        """
        if not isinstance(patches, Mapping):
            raise TypeError(f"The patches are {patches!r:.60}; give them by name, as {{'inlet': 'x == 0'}}.")
        made = {
            name: self._patch_of(patch_points(name, given, self._positions, self.boundary_points, self.fields))
            for name, given in patches.items()
            if not _is_rest(given)
        }
        mesh = self._with_patches(made)
        for name in [name for name, given in patches.items() if _is_rest(given)]:
            others = [patch.facets for other, patch in mesh.patches.items() if other != name]
            left = np.setdiff1d(np.arange(len(self.facets)), np.concatenate([np.zeros(0, np.int64), *others]))
            if not len(left):
                raise ValueError(f"Patch {name!r} is empty: the other patches cover the whole boundary.")
            mesh = mesh.with_patch_facets({name: self.facets.take(left)})
        return mesh

    def _with_patches(self, patches: Mapping[str, Patch]) -> Mesh:
        return self._with(patches={**self.patches, **patches})

    def _patch_of(self, points: np.ndarray) -> Patch:
        return Patch(points, np.flatnonzero(self.facets.within(self._mask(points))))

    def _mask(self, points: np.ndarray) -> Bool[np.ndarray, " points"]:
        mask = np.zeros(self.number_of_points, dtype=bool)
        mask[points] = True
        return mask

    def with_patch_facets(self, patches: Mapping[str, FacetsLike]) -> Mesh:
        """The mesh with further named patches, made only of these facets, each given by its points in any order.

        Where a boundary is thin or a patch fills a corner, points do not determine which facets are meant; facets do.
        """
        made = {}
        for name, given in patches.items():
            facets = np.unique(self._facet_indices(name, Facets.of(given)))
            if facets.size == 0:
                raise ValueError(f"Patch {name!r} is empty: it was given no facets.")
            made[name] = Patch(np.unique(self.facets.take(facets).connectivity), facets)
        return self._with_patches(made)

    def _facet_indices(self, name: str, given: Facets) -> Int64[np.ndarray, " given_facets"]:
        indices, found = self._find_facets(given)
        if not found.all():
            points = given.take(np.flatnonzero(~found)[:1]).connectivity
            raise ValueError(
                f"Patch {name!r} names {(~found).sum()} facets that the boundary does not have, the first with the "
                f"points {points.tolist()}."
            )
        return indices

    def _find_facets(
        self, given: Facets
    ) -> tuple[Int64[np.ndarray, " given_facets"], Bool[np.ndarray, " given_facets"]]:
        """Indices of exterior facets by their points, and which of them are found at all."""
        if len(given) == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool)
        outside = given.connectivity[(given.connectivity < 0) | (given.connectivity >= self.number_of_points)]
        if outside.size:
            raise ValueError(f"A patch names point {outside[0]}; the mesh has points 0 to {self.number_of_points - 1}.")
        known = facet_keys(self.facets, self.number_of_points)
        wanted = facet_keys(given, self.number_of_points)
        order = np.argsort(known)
        indices = order[np.minimum(np.searchsorted(known, wanted, sorter=order), len(known) - 1)]
        return indices, known[indices] == wanted

    def with_fields(self, fields: Mapping[str, Tensor | np.ndarray]) -> Mesh:
        """The mesh with further point fields, `[points, ...]`, to be saved with it."""
        made = {name: torch.as_tensor(values) for name, values in fields.items()}
        for name, values in made.items():
            if values.ndim == 0 or len(values) != self.number_of_points:
                raise ValueError(
                    f"Field {name!r} has shape {tuple(values.shape)}; its first axis must be the mesh's "
                    f"{self.number_of_points} points."
                )
        return self._with(fields={**self.fields, **made})

    def with_facts(self, facts: Mapping[str, str | Sequence[float]]) -> Mesh:
        """The mesh with facts about its fields, such as how wrong they may be, to be saved with it."""
        return self._with(facts={**self.facts, **facts})

    # Distances and sizes

    def distance_to(
        self, patch_names: str | Iterable[str], images: Float[np.ndarray, "images space"] | None = None
    ) -> Float[Tensor, " points"]:
        """The distance from each point to the nearest place on these patches, on a facet or at a point without one.

        Args:
            patch_names: of the patches.
            images: shifts under which the mesh repeats itself: the nearest place may be on a shifted copy of a patch.
        """
        chosen = self._chosen(patch_names)
        if not chosen:
            raise ValueError(f"The distance to no patch at all; name some of {', '.join(self.patches) or 'none'}.")
        facets = self.facets.take(np.unique(np.concatenate([patch.facets for patch in chosen])))
        points = np.setdiff1d(np.concatenate([patch.points for patch in chosen]), facets.connectivity)
        nearest = np.full(self.number_of_points, np.inf)
        for shift in [np.zeros(self.space), *([] if images is None else images)]:
            positions = self._positions + shift if shift.any() else self._positions
            if len(facets):
                nearest = np.minimum(nearest, distances(positions, parts_of(self._positions, facets)))
            if len(points):
                nearest = np.minimum(nearest, distances(positions, self._positions[points][:, None]))
        return torch.from_numpy(nearest)

    @property
    def cell_volumes(self) -> Float[Tensor, " cells"]:
        """The area (plane) or volume (space) of each cell."""
        return self.geometry.cell_volumes

    @property
    def point_volumes(self) -> Float[Tensor, " points"]:
        """Each cell's volume shared equally among its points."""
        return self.geometry.point_volumes

    # Elsewhere

    def moved(self, rotation: Float[Tensor, "space space"], translation: Float[Tensor, " space"]) -> Mesh:
        """The mesh turned (or reflected) about the origin, then shifted; its vectors and tensors turn along.

        A reflection turns cells inside out, so their points are listed in another order to keep volumes positive.
        """
        rotation = torch.as_tensor(rotation, dtype=self.points.dtype)
        translation = torch.as_tensor(translation, dtype=self.points.dtype)
        if rotation.shape != (self.space, self.space) or not torch.allclose(
            rotation @ rotation.T, torch.eye(self.space, dtype=rotation.dtype), atol=1e-6
        ):
            raise ValueError(
                f"Moving this mesh takes an orthogonal {self.space} x {self.space} matrix; got {rotation.tolist()}."
            )
        points = self.points @ rotation.T + translation
        fields = {
            name: turned(values, rotation, values.ndim - 1 if _is_tensor(values, self.space) else 0)
            for name, values in self.fields.items()
        }
        if torch.linalg.det(rotation) > 0:
            return self._with(points=points, fields=fields)
        cells = mirrored(self._cells)
        moved = replace(
            self,
            points=points,
            connectivity=cells.connectivity,
            polyhedron_faces=cells.polyhedron_faces,
            patches={},
            fields=fields,
        )
        return moved.with_patches_of(self)

    def with_points(self, points: Float[Tensor, "points space"]) -> Mesh:
        """The same cells between other points, which must leave every cell sound: a scaled mesh, a jittered one."""
        return self._with(points=points)

    def with_patches_of(self, other: Mesh) -> Mesh:
        """The mesh with the patches of one that has the same points and the same boundary."""
        return self._with_patches(
            {
                name: Patch(patch.points, np.sort(self._facet_indices(name, other.facets.take(patch.facets))))
                for name, patch in other.patches.items()
            }
        )

    def to_pyvista(self) -> pyvista.UnstructuredGrid:
        """A PyVista grid with all fields and patches; a plane mesh gets z = 0, its vectors a third component."""
        return mesh_files.to_dataset(self.contents)

    def save(self, path: str | Path) -> None:
        """Write the mesh with its fields and patches, as .vtu, .vtk or .vtkhdf; `read` gives the same mesh back."""
        mesh_files.write(path, self.contents)

    def plot(self, path: str | Path | None = None) -> Picture:
        """A picture of a plane mesh, its cells and its patches; `to_pyvista().plot()` shows any in PyVista's window.

        Args:
            path: where it is written as well, as .png, .pdf or .svg.
        """
        # By name: pictures are drawn by a layer above.
        return import_module("pennpde.pictures").picture_of_mesh(self, path)

    # Inside

    @property
    def contents(self) -> Contents:
        by_points = {name: self._patch_of(patch.points) for name, patch in self.patches.items()}
        return Contents(
            self._positions,
            self._cells,
            {name: values.detach().cpu().numpy() for name, values in self.fields.items()},
            {name: self._mask(patch.points) for name, patch in self.patches.items()},
            {
                name: patch.facets
                for name, patch in self.patches.items()
                if not np.array_equal(patch.facets, by_points[name].facets)
            },
            facts=self.facts,
        )

    @property
    def _positions(self) -> Float[np.ndarray, "points space"]:
        return self.points.detach().numpy()

    @property
    def _cells(self) -> Cells:
        return Cells(self.connectivity, self.offsets, self.cell_types, self.polyhedron_faces)

    def _with(self, **changes: Any) -> Mesh:
        """A copy with other points, patches or fields, which keeps what still holds of the graph and the boundary."""
        return replace(self, known=self.geometry, **changes)


def turned(
    values: Shaped[Tensor, "points *axes"], rotation: Float[Tensor, "space space"], rank: int
) -> Shaped[Tensor, "points *axes"]:
    """A field after an orthogonal map: its first `rank` axes behind the points are axes of space, others stay."""
    for axis in range(1, rank + 1):
        values = (values.movedim(axis, -1) @ rotation.T.to(values)).movedim(-1, axis)
    return values


def _is_rest(given: PatchLike) -> bool:
    return isinstance(given, str) and given == "rest"


def _is_tensor(values: Tensor, space: int) -> bool:
    """Whether a field is a vector or a tensor: all axes but that of the points are as long as space has dimensions."""
    return values.is_floating_point() and values.ndim > 1 and set(values.shape[1:]) == {space}


def _without_third(values: Tensor) -> Tensor:
    return values[(slice(None), *[slice(2)] * (values.ndim - 1))] if _is_tensor(values, 3) else values


# The plane mesh under a mesh one cell thick


_CLOSE = 1e-3
"""Of the thickness: how close a point of a flat side is to it. It is what float32 files lose, and more."""


@dataclass(frozen=True, eq=False)
class _Floor:
    """The lower side of a mesh that is one cell thick in z.

    Attributes:
        layer: the points of the lower side, in the order they have in the mesh.
        cells: one plane cell for each cell of the mesh, in the same order, numbered by place in `layer`.
        flat: which exterior facets of the mesh lie in its lower or upper side.
    """

    layer: Int64[np.ndarray, " layer"]
    cells: Cells
    flat: Bool[np.ndarray, " facets"]
    _lower: Bool[np.ndarray, " points"]
    _number: Int64[np.ndarray, " points"]

    @staticmethod
    def under(positions: Float[np.ndarray, "points 3"], facets: Facets, number_of_cells: int) -> _Floor:
        height = positions[:, 2]
        low, high = height.min(), height.max()
        lower, upper = height - low < _CLOSE * (high - low), high - height < _CLOSE * (high - low)
        bottom, top = facets.within(lower), facets.within(upper)
        reaches = np.ones(number_of_cells, dtype=bool)
        for side in (bottom, top):
            reaches &= np.bincount(facets.cells[side], minlength=number_of_cells) == 1
        between = ~(lower | upper)
        if between.any() or not reaches.all():
            raise ValueError(
                f"The mesh is not one cell thick in z: it spans z = {low:.6g} to {high:.6g}, {between.sum()} of its "
                f"points lie between, and {(~reaches).sum()} of its cells do not have one facet on each side. "
                "A mesh that is thin along another axis must be turned first."
            )
        number = np.cumsum(lower) - 1
        floor = facets.take(np.flatnonzero(bottom))
        types = np.select([floor.sizes == 3, floor.sizes == 4], [TRIANGLE, QUAD], POLYGON).astype(np.uint8)
        cells = Cells(number[floor.connectivity], floor.offsets, types)
        return _Floor(np.flatnonzero(lower), cells, bottom | top, lower, number)

    def points_of(self, points: Int64[np.ndarray, " some"]) -> Int64[np.ndarray, " fewer"]:
        """The plane mesh's own numbers of those of the points that it has."""
        return self._number[points[self._lower[points]]]

    def edges_of(self, upright: Facets) -> Int64[np.ndarray, "facets 2"]:
        """The edges on which facets that are not flat stand."""
        return self.points_of(upright.connectivity).reshape(-1, 2)


read = Mesh.read
