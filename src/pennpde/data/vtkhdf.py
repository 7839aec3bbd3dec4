"""A Case in one file, or many in a shard: VTKHDF, which ParaView and PyVista open with fields and times.

What viewers show lies under `/VTKHDF`: the mesh (a plane one in z = 0, its vectors with a third component), every field
under its own name, `patch:NAME` and `conditions:UNKNOWN` as numbers on the points. An unknown's array holds its initial
values, then those of each target time; the offsets that VTKHDF keeps for each time step choose among these blocks.
The attribute `case` of `/pennpde`, which viewers pass over, says in JSON how to put the Case together again.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from h5py import h5o  # pyright: ignore[reportAttributeAccessIssue]
from torch import Tensor

from pennpde.case import Case, Condition
from pennpde.case.case import counted_points
from pennpde.case.conditions import KINDS
from pennpde.case.conditions.protocol import Role
from pennpde.case.moments import TIME, as_parameter, at_moment
from pennpde.files import check_stored
from pennpde.mesh import Mesh, Patch
from pennpde.mesh.cells import POLYGON, POLYHEDRON, Cells, Facets
from pennpde.mesh.checks import check_layout, checked_points
from pennpde.mesh.files import grid_arrays, grid_group, step_arrays

FORMAT_VERSION = 1
_FURTHER_VERSION = 2
"""Of files with conditions that version 1 does not know."""
SUFFIX = ".vtkhdf"

_PATCH = "patch:"  # as Mesh.read knows it
_CONDITIONS = "conditions:"
_BITS = {"dirichlet": 1, "neumann": 2, "slip": 4}
"""The kinds of conditions of the first version. Their masks are one array; what other arrays leave out is zero."""
_PREFIXES = {
    ("dirichlet", "values"): "dirichlet:",
    ("neumann", "normal_derivative"): "normal derivative:",
    ("neumann", "normals"): "neumann normal:",
    ("slip", "normals"): "slip normal:",
}
"""Of the arrays of these kinds. Other kinds are stored as they are, part by part."""
_ONE_CHUNK = 1 << 18


class CaseFileError(ValueError):
    """A file is not a case file, or is incomplete."""


def pack(
    case: Case,
    times: Sequence[float] | None = None,
    notes: Mapping[str, Any] | None = None,
    *,
    compressed: bool = True,
) -> bytes:
    """The content of a case file; the same case always gives the same bytes.

    Points, normals and prescribed values keep double precision; initial fields, features and targets are rounded to
    single. The mesh's own `fields` and `layer` are not kept: they are no part of the problem.

    Args:
        case: a single one, not a batch.
        times: of the targets, one for each entry of their last axis, or one where they have no such axis; 1, 2, ... by
            default. Initial fields belong to time 0.
        notes: further facts to keep in the file, in JSON's terms.
        compressed: whether arrays are compressed, each with a checksum. A file that goes into a compressed archive
            becomes smaller there without.
    """
    if len(case.sizes) != 1:
        raise ValueError(f"A file holds one case, but this is a batch of {len(case.sizes)}; write them one by one.")
    if case.changes_with_time:
        raise ValueError(
            f"The conditions of {case.name!r} change with time, which a file does not hold. Write the case at the "
            "times that are wanted, case.at(time)."
        )
    series = _Series.of(case, times)
    # h5py must not write on its own to the disk, where it could be interrupted: see `write_atomically`.
    content = io.BytesIO()
    with h5py.File(content, "w", libver=("v110", "v110")) as file:
        writer = _Writer(file, case.mesh, compressed)
        writer.mesh(case.mesh)
        writer.case(case, series)
        own = file.create_group("pennpde")
        for name, facets in _chosen_facets(case.mesh).items():
            own[f"facets/{name}"] = facets
        record = {
            "version": FORMAT_VERSION,
            "name": case.name,
            "space": case.space,
            "unknowns": {name: list(values.shape[1:]) for name, values in case.initial.items()},
            "slip": list(case.slip),
            "features": {name: list(values.shape[1:]) for name, values in case.features.items()},
            "targets": {name: list(values.shape[1:]) for name, values in case.targets.items()},
            "times": list(series.times),
            "parameters": {name: value.tolist() for name, value in case.parameters.items()},
            "patches": list(case.mesh.patches),
            "notes": dict(notes or {}),
        }
        flags = {
            kind: {name: {flag: getattr(each, flag) for flag in each.flags()} for name, each in by_unknown.items()}
            for kind, by_unknown in case.conditions.items()
            if by_unknown and kind not in _BITS
        }
        if flags:
            record |= {"version": _FURTHER_VERSION, "conditions": flags}
        # An attribute of fixed length: h5py gives others a heap of 4 kB.
        own.attrs["case"] = np.bytes_(json.dumps(record, allow_nan=False).encode())
    return content.getvalue()


@dataclass(frozen=True)
class CaseFile:
    """A case as it was read, with what a Case does not hold.

    Attributes:
        times: of the targets.
        notes: what was given to `pack`.
    """

    case: Case
    times: tuple[float, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def moments(self) -> tuple[float, ...]:
        """The times at which the unknowns have targets; none where only the steady state is known."""
        return self.times if any(name in self.case.initial for name in self.case.targets) else ()

    def at_moment(self, number: int) -> Case:
        """The case at one of its times: the unknowns' targets then, and the parameter `time`."""
        parameters = {**self.case.parameters, TIME: as_parameter(self.times[number])}
        return replace(at_moment(self.case, number), parameters=parameters)


def unpack(content: bytes, source: str, meshes: MutableMapping[bytes, Mesh] | None = None) -> CaseFile:
    """The case in the content of a case file. It is only data: no code in it is ever run.

    Args:
        content: of the file.
        source: its name, for messages.
        meshes: those read before. A mesh that is the same, byte for byte, is used again with all it has worked out.
    """
    with named(source), h5py.File(io.BytesIO(content), "r") as file:
        if "VTKHDF" not in file or "pennpde" not in file:
            raise CaseFileError(
                f"{source} is an HDF5 file, but no case of pennpde: it has the groups {', '.join(file) or 'none'}. "
                "Mesh.read reads files that contain only a mesh."
            )

        def stored(path: str) -> np.ndarray | None:
            return whole_array(h5py.h5d.open(file.id, path.encode())) if path in file else None

        return assemble(file["pennpde"].attrs["case"], stored, source, meshes)


Stored = Callable[[str], np.ndarray | None]
"""The array of a case by its path in a case file, such as "VTKHDF/Points" and "pennpde/facets/inlet", if it has it."""


def assemble(record: Any, stored: Stored, source: str, meshes: MutableMapping[bytes, Mesh] | None = None) -> CaseFile:
    """Put a case together from its arrays and the attribute `case` of its file; `unpack` explains the rest."""
    return _Reader(stored, _checked_record(record, source), source).case_file({} if meshes is None else meshes)


def is_case_file(path: Path | str) -> bool:
    """Whether a file was written by `pack`: other VTKHDF files contain only a mesh."""
    try:
        with h5py.File(path, "r") as file:
            return "pennpde" in file and "case" in file["pennpde"].attrs
    except OSError:
        return False


@contextmanager
def named(source: str) -> Iterator[None]:
    """Turn what h5py and NumPy say about a damaged file into an error with its name."""
    try:
        yield
    except CaseFileError:
        raise
    except Exception as error:  # of whatever kind: a damaged file leads these libraries anywhere
        raise CaseFileError(
            f"{source} is not a complete case file ({str(error) or type(error).__name__}). It was cut off, changed, or "
            "written by another program; generate it again or take a good copy."
        ) from error


def _checked_record(attribute: Any, source: str) -> dict[str, Any]:
    record = json.loads(np.asarray(attribute).item())
    if not isinstance(record, dict) or not isinstance(record.get("version"), int):
        raise CaseFileError(f"{source}: the attribute 'case' of /pennpde is not the record of a case.")
    if record["version"] > _FURTHER_VERSION:
        raise CaseFileError(
            f"{source} has format {record['version']}, but this pennpde reads up to {_FURTHER_VERSION}; install a "
            "newer pennpde."
        )
    return record


@dataclass(frozen=True)
class _Series:
    """Which times the fields of a case belong to.

    Attributes:
        times: of the targets.
        steps: the times that a viewer shows, none for a case without targets of its unknowns.
        first: the block of an unknown's array that the first step shows: its initial values, or its target at time 0.
    """

    times: tuple[float, ...]
    steps: tuple[float, ...]
    first: int

    @staticmethod
    def of(case: Case, times: Sequence[float] | None) -> _Series:
        lengths = {name: len(blocks) for name, blocks in _target_blocks(case).items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"The targets of case {case.name!r} have different numbers of times: {lengths}.")
        number = next(iter(lengths.values()), 0)
        given = tuple(float(time) for time in (times if times is not None else range(1, number + 1)))
        if lengths and len(given) != number:
            raise ValueError(f"The targets of case {case.name!r} have {number} times, but {len(given)} were given.")
        if not lengths:
            return _Series(given, (), 0)
        if not np.isfinite(given).all() or min(given) < 0 or np.any(np.diff(given) <= 0):
            raise ValueError(f"The times of case {case.name!r} must grow from 0 or later; got {given}.")
        return _Series(given, given, 1) if given[0] == 0 else _Series(given, (0.0, *given), 0)


def _target_blocks(case: Case) -> dict[str, list[Tensor]]:
    """By unknown, its target at each time."""
    blocks = {}
    for name, values in case.targets.items():
        if name in case.initial:
            with_times = values.ndim > case.initial[name].ndim
            blocks[name] = list(values.unbind(dim=-1)) if with_times else [values]
    return blocks


class _Writer:
    def __init__(self, file: h5py.File, mesh: Mesh, compressed: bool) -> None:
        self.group = grid_group(file, (2, 0) if mesh.polyhedron_faces is None else (2, 5))
        # Bytes of the same significance lie together either way: they are what repeats.
        self.filters: dict[str, Any] = {"shuffle": True}
        if compressed:
            self.filters |= {"compression": "gzip", "compression_opts": 9, "fletcher32": True}
        self.points, self.space = mesh.number_of_points, mesh.space

    def mesh(self, mesh: Mesh) -> None:
        points = np.pad(mesh.points.detach().numpy(), ((0, 0), (0, 3 - mesh.space)))
        cells = Cells(mesh.connectivity, mesh.offsets, mesh.cell_types, mesh.polyhedron_faces)
        for name, values in grid_arrays(points, cells).items():
            is_index = values.dtype == np.int64 and not name.startswith("NumberOf")
            self.add(name, _indices(values) if is_index else values)
        for name, patch in mesh.patches.items():
            mask = np.zeros(self.points, np.uint8)
            mask[patch.points] = 1
            self.point_field(_PATCH + name, mask)

    def case(self, case: Case, series: _Series) -> None:
        targets = _target_blocks(case)
        offsets = {}
        for name, initial in case.initial.items():
            blocks = [initial, *targets.get(name, [])]
            self.point_field(name, np.concatenate([_single(block, name) for block in blocks]))
            steps = np.arange(len(series.steps)) + series.first if len(blocks) > 1 else np.zeros(len(series.steps))
            offsets[name] = steps.astype(np.int64) * self.points
            self.conditions(name, case)
        for name, values in case.features.items():
            self.point_field(name, _single(values, name))
        for name, values in case.targets.items():
            if name not in case.initial:
                self.point_field(name, _single(values, name))
        if series.steps:
            for name, values in step_arrays(self.group, series.steps, offsets).items():
                self.add(name, values)

    def conditions(self, name: str, case: Case) -> None:
        known = {kind: by_unknown[name] for kind, by_unknown in case.conditions.items() if name in by_unknown}
        parts = {(kind, part): getattr(each, part).cpu() for kind, each in known.items() for part in each.roles()}
        kinds = np.zeros(self.points, np.uint8)
        for kind, bit in _BITS.items():
            if kind in known:
                kinds += bit * parts.pop((kind, "mask")).numpy().astype(np.uint8)
        self.point_field(_CONDITIONS + name, kinds)
        for key, prefix in _PREFIXES.items():
            if key in parts and (values := parts.pop(key)).any():
                self.point_field(prefix + name, _finite(values, prefix + name))
        for (kind, part), values in parts.items():
            whole = values.numpy()
            self.point_field(f"{kind} {part}:{name}", whole.astype(np.uint8) if whole.dtype == bool else whole)

    def point_field(self, name: str, values: np.ndarray) -> None:
        if not name or "/" in name or name in (".", ".."):
            raise ValueError(f"A field cannot be called {name!r} in a file; choose a name without '/'.")
        if f"PointData/{name}" in self.group:
            raise ValueError(
                f"Two fields of the case are called {name!r}; unknowns, features and other targets must have "
                "different names."
            )
        axes = values.shape[1:]
        if _is_plane_tensor(axes, self.space):
            values = np.pad(values, [(0, 0), *[(0, 1)] * len(axes)])
        self.add(f"PointData/{name}", values.reshape(len(values), -1) if axes else values, self.points)

    def add(self, name: str, values: np.ndarray, rows: int = 0) -> None:
        if values.nbytes < 100:
            self.group.create_dataset(name, data=values)
            return
        # A viewer reads one time step at a time, so large arrays are packed block by block.
        chunks = values.shape if values.nbytes <= _ONE_CHUNK or not rows else (rows, *values.shape[1:])
        # Chunks get their place in the file now. Else they get it when Python forgets the array, which is later where
        # another thread looks at this frame, as Dask's profiler does: then the same case gives other bytes.
        self.group.create_dataset(name, data=values, chunks=chunks, **self.filters).flush()


class _Reader:
    def __init__(self, stored: Stored, record: Mapping[str, Any], source: str) -> None:
        self.stored, self.record, self.source = stored, record, source
        self.space = int(record["space"])
        if self.space not in (2, 3):
            raise CaseFileError(f"{source}: space has {self.space} dimensions; 2 and 3 are possible.")

    def case_file(self, meshes: MutableMapping[bytes, Mesh]) -> CaseFile:
        mesh = self.mesh(meshes)
        record, self.points = self.record, mesh.number_of_points
        times = tuple(map(float, record["times"]))
        initial, targets = {}, {}
        shapes = {name: tuple(axes) for name, axes in record["targets"].items()}
        for name, axes in record["unknowns"].items():
            blocks = self.field(name, tuple(axes))
            initial[name] = blocks[0]
            if name in shapes:
                later = list(blocks[1:])
                targets[name] = torch.stack(later, dim=-1) if len(shapes[name]) > len(axes) else later[0]
        for name, axes in shapes.items():
            if name not in initial:
                targets[name] = self.field(name, axes)[0]
            if targets[name].shape[1:] != axes:
                raise CaseFileError(f"{self.source}: target {name!r} is {list(targets[name].shape[1:])}, not {axes}.")
        conditions = self.conditions(record["unknowns"])
        case = Case(
            mesh,
            initial,
            parameters={name: torch.tensor(value, dtype=torch.float64) for name, value in record["parameters"].items()},
            features={name: self.field(name, tuple(axes))[0] for name, axes in record["features"].items()},
            targets={name: targets[name] for name in shapes},
            name=str(record["name"]),
            sizes=(self.points,),
            present=counted_points(conditions, initial),
            conditions=conditions,
        )
        return CaseFile(case, times, record["notes"])

    def mesh(self, meshes: MutableMapping[bytes, Mesh]) -> Mesh:
        points, connectivity = self.array("Points"), self.array("Connectivity")
        offsets, types = self.array("Offsets"), self.array("Types")
        masks = {name: self.array(f"PointData/{_PATCH}{name}") != 0 for name in self.record["patches"]}
        facets = {name: self.stored(f"pennpde/facets/{name}") for name in masks}
        chosen = {name: values.astype(np.int64) for name, values in facets.items() if values is not None}
        parts = [points, connectivity, offsets, types, *masks.values(), *chosen.values()]
        digest = hashlib.sha256(repr((self.space, list(masks), list(chosen))).encode())
        for part in parts:
            digest.update(repr(part.shape).encode() + part.tobytes())
        key = digest.digest()
        if key in meshes:
            return meshes[key]
        faces = self.faces(len(types)) if (types == POLYHEDRON).any() else None
        cells = Cells(connectivity.astype(np.int64), offsets.astype(np.int64), types, faces)
        positions = checked_points(points)[:, : self.space].contiguous()
        # Compiled code further on would follow numbers that point outside of their arrays.
        check_layout(cells, len(positions))
        if faces is not None:
            check_layout(
                Cells(faces.connectivity, faces.offsets, np.full(len(faces), POLYGON, np.uint8)), len(positions)
            )
        mesh = Mesh(positions, cells.connectivity, cells.offsets, types, faces)
        mesh = mesh.with_patches({name: np.flatnonzero(mask) for name, mask in masks.items()})
        patches = dict(mesh.patches)
        for name, facets in chosen.items():
            if not np.isin(facets, patches[name].facets).all():
                raise CaseFileError(f"{self.source}: patch {name!r} lists facets that are not among its points.")
            patches[name] = Patch(patches[name].points, facets)
        meshes[key] = mesh = mesh._with(patches=patches) if chosen else mesh
        return mesh

    def faces(self, cells: int) -> Facets:
        order = self.array("PolyhedronToFaces").astype(np.int64)
        sizes = np.diff(self.array("PolyhedronOffsets").astype(np.int64))
        offsets = self.array("FaceOffsets").astype(np.int64)
        if not np.array_equal(order, np.arange(len(offsets) - 1)) or len(sizes) != cells:
            raise CaseFileError(f"{self.source}: the faces of polyhedra are not in the order of the cells.")
        return Facets(self.array("FaceConnectivity").astype(np.int64), offsets, np.repeat(np.arange(cells), sizes))

    def field(self, name: str, axes: Sequence[int]) -> Tensor:
        """The blocks of a field, [blocks, points, *axes]."""
        return self.blocks(self.array(f"PointData/{name}"), name, axes)

    def blocks(self, array: np.ndarray, name: str, axes: Sequence[int]) -> Tensor:
        values = array.astype(np.float64)
        stored = tuple(axes)
        if _is_plane_tensor(stored, self.space):
            stored = (3,) * len(stored)
        values = values.reshape(-1, self.points, *stored)[(slice(None), slice(None), *(slice(size) for size in axes))]
        if not np.isfinite(values).all():
            raise CaseFileError(f"{self.source}: field {name!r} holds values that are not finite; generate it again.")
        return torch.from_numpy(np.ascontiguousarray(values))

    def conditions(self, unknowns: Mapping[str, Sequence[int]]) -> dict[str, dict[str, Condition]]:
        known = {kind.kind: kind for kind in KINDS}
        further = self.record.get("conditions", {})
        if unknown := sorted(further.keys() - (known.keys() - _BITS.keys())):
            raise CaseFileError(f"{self.source} has conditions of the kind {unknown[0]!r}; known are {sorted(known)}.")
        made: dict[str, dict[str, Condition]] = {kind: {} for kind in known}
        for name, axes in unknowns.items():
            bits = torch.from_numpy(self.array(f"PointData/{_CONDITIONS}{name}"))
            if len(bits) != self.points:
                raise CaseFileError(f"{self.source}: the conditions of {name!r} are not over {self.points} points.")

            def shape(role: Role, unknown: int = len(axes)) -> tuple[int, ...]:
                return (self.space,) * role.rank_for(unknown)

            for kind, bit in _BITS.items():
                if kind == "slip" and name not in self.record["slip"]:
                    continue
                roles = known[kind].roles()
                tensors: dict[str, Any] = {"mask": (bits & bit) != 0}
                for (of, part), prefix in _PREFIXES.items():
                    if of == kind:
                        tensors[part] = self.field_or_zero(prefix + name, shape(roles[part]))
                made[kind][name] = known[kind](**tensors)
            for kind, by_unknown in further.items():
                if name not in by_unknown:
                    continue
                tensors = {}
                for part, role in known[kind].roles().items():
                    label = f"{kind} {part}:{name}"
                    values = self.field(label, shape(role))[0]
                    is_mask = self.array(f"PointData/{label}").dtype == np.uint8
                    tensors[part] = values.bool() if is_mask else values.long() if role.is_point else values
                made[kind][name] = known[kind](**tensors, **by_unknown[name])
        return made

    def field_or_zero(self, name: str, axes: Sequence[int]) -> Tensor:
        values = self.stored(f"VTKHDF/PointData/{name}")
        if values is None:
            return torch.zeros(self.points, *axes, dtype=torch.float64)
        return self.blocks(values, name, axes)[0]

    def array(self, name: str) -> np.ndarray:
        found = self.stored(f"VTKHDF/{name}")
        if found is None:
            raise LookupError(f"it has no array {name!r}")
        return found


def _chosen_facets(mesh: Mesh) -> dict[str, np.ndarray]:
    """The facets of patches that do not follow from the points, having been chosen one by one."""
    chosen = {}
    for name, patch in mesh.patches.items():
        mask = np.zeros(mesh.number_of_points, bool)
        mask[patch.points] = True
        if not np.array_equal(patch.facets, np.flatnonzero(mesh.facets.within(mask))):
            chosen[name] = patch.facets
    return chosen


def _is_plane_tensor(axes: Sequence[int], space: int) -> bool:
    """Whether a field is to get a third component: viewers draw arrows only for vectors of three components."""
    return space == 2 and len(axes) > 0 and set(axes) == {2}


def whole_array(dataset: h5py.h5d.DatasetID) -> np.ndarray:
    """A whole dataset. A small file has twenty of them, and h5py's own way takes many times longer than reading it."""
    check_stored(dataset, "an array")
    values = np.empty(dataset.shape, dataset.dtype)
    dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
    return values


def _indices(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32 if values.max(initial=0) < 2**31 else np.int64)


def _finite(values: Tensor, name: str) -> np.ndarray:
    array = values.detach().cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(bad):
        raise ValueError(
            f"Field {name!r} is not finite at {len(bad)} points, the first of them point {bad[0]}; mend it before "
            "writing the case."
        )
    return array


def _single(values: Tensor, name: str) -> np.ndarray:
    return _finite(values, name).astype(np.float32)


# Shards
#
# A shard is a VTKHDF file of type MultiBlockDataSet, a block per case for ParaView and PyVista: `/VTKHDF/CASE` is what
# `/VTKHDF` is in the file of one case, and `/pennpde/CASE` what `/pennpde` is there. Arrays that cases have in common
# are stored once and appear in all blocks by hard links of HDF5, which readers do not notice.

RESERVED = ("Assembly", "Steps")
"""Names that no case can have: groups of the format of shards itself."""
_DEEPEST = 4  # VTKHDF/CASE/Steps/PointDataOffsets/NAME: more than that is no shard of ours, or a ring of links


class Shard:
    """A shard that is open for reading; arrays that its cases share are read once."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        with named(str(path)):
            self.file = h5py.File(path, "r")
        self.objects = Objects()

    @property
    def names(self) -> list[str]:
        """Its cases."""
        own = self.file["pennpde"]
        return list(map(str, own)) if isinstance(own, h5py.Group) else []

    def read(
        self, name: str, expected: str | None = None, meshes: MutableMapping[bytes, Mesh] | None = None
    ) -> CaseFile:
        """One case, without reading the others.

        Args:
            name: of the case.
            expected: the hash of its content; any content will do by default.
            meshes: those read before, as for `unpack`.
        """
        source = f"case {name!r} of {self.path}"
        with named(source):
            grid_digest, grid = self.objects.read(self.file.id, f"VTKHDF/{name}".encode())
            own_digest, own = self.objects.read(self.file.id, f"pennpde/{name}".encode())
            found = content_hash(grid_digest, own_digest)
            if expected is not None and found != expected:
                raise CaseFileError(f"{source} changed: the hash of its content is {found}, not {expected}.")
            arrays = {f"VTKHDF/{path}": values for path, values in grid.items()}
            arrays |= {f"pennpde/{path}": values for path, values in own.items()}
            return assemble(self.file[f"pennpde/{name}"].attrs["case"], arrays.get, source, meshes)

    def __enter__(self) -> Shard:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()


def is_shard(path: Path | str) -> bool:
    """Whether a file is a shard."""
    try:
        with h5py.File(path, "r") as file:
            return "pennpde" in file and "VTKHDF/Assembly" in file
    except OSError:
        return False


class Objects:
    """Arrays and groups of one file with their hashes.

    The hash of an array is of its type, shape, values and attributes; that of a group of its attributes, and of the
    names and hashes of what it contains. Neither depends on the file that holds them, nor on the compression.
    """

    def __init__(self, remember_all: bool = False) -> None:
        self.remember_all = remember_all
        self.remembered: dict[int, tuple[bytes, dict[str, np.ndarray]]] = {}

    def read(self, parent: Any, name: bytes, depth: int = 0) -> tuple[bytes, dict[str, np.ndarray]]:
        """The hash of an array or a group, and by their paths in it all arrays that it contains."""
        about = h5o.get_info(parent, name)
        if about.addr in self.remembered:
            return self.remembered[about.addr]
        if depth > _DEEPEST:
            raise CaseFileError(f"groups are nested deeper than {_DEEPEST}, at {name.decode(errors='replace')!r}")
        item = h5o.open(parent, name)
        digest = hashlib.sha256()
        for attribute in sorted(h5py.h5a.open(item, index=number).name for number in range(about.num_attrs)):
            digest.update(attribute + b"\0" + _bytes(_attribute(item, attribute)))
        if isinstance(item, h5py.h5d.DatasetID):
            values = whole_array(item)
            digest.update(_bytes(values))
            found = digest.digest(), {"": values}
        elif isinstance(item, h5py.h5g.GroupID):
            arrays: dict[str, np.ndarray] = {}
            for child in sorted(item):
                part, below = self.read(item, child, depth + 1)
                digest.update(child + b"\0" + part)
                label = child.decode()
                arrays |= {f"{label}/{path}" if path else label: values for path, values in below.items()}
            found = digest.digest(), arrays
        else:
            raise CaseFileError(f"{name.decode(errors='replace')!r} is neither an array nor a group")
        if self.remember_all or about.rc > 1:
            self.remembered[about.addr] = found
        return found


def _attribute(item: Any, name: bytes) -> np.ndarray:
    attribute = h5py.h5a.open(item, name)
    values = np.empty(attribute.shape, attribute.dtype)
    attribute.read(values)
    return values


def _bytes(values: np.ndarray) -> bytes:
    if values.dtype.hasobject:
        raise CaseFileError("it holds strings of variable length, which no case has")
    return f"{values.dtype.str}{values.shape}".encode() + values.tobytes()


def content_hash(grid: bytes, own: bytes) -> str:
    """Of a case, from the hashes of its two groups."""
    return hashlib.sha256(grid + own).hexdigest()
