"""Meshes in PyVista's datasets and in files: what a mesh consists of, in and out, unchecked.

Patches travel as point arrays `patch:NAME` of zeros and ones, which every viewer shows. What such arrays cannot say
goes into field data, where viewers ignore it: `patch facets:NAME` for facets that were chosen one by one, and
`axes:NAME` for the shape of a field that VTK stores flat or with a third component.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np
from jaxtyping import Float, Int64

from pennpde import registry
from pennpde.files import ALWAYS_FINE, MOST_PACKED, check_stored, replacing_folder, write_atomically
from pennpde.mesh.cells import PLANE_TYPES, POINTS_AND_LINES, POLYHEDRON, Cells, Facets, offsets_of, take_rows
from pennpde.mesh.contents import Contents

if TYPE_CHECKING:
    import h5py
    import pyvista

    from pennpde.mesh.mesh import Mesh

WRITABLE = (".vtu", ".vtk", ".vtkhdf")
_READERS = {".msh": "pennpde.mesh.gmsh"}
_IN_PENNFORMATS = (".cgns", ".su2", ".unv", ".inp", ".med", ".bdf", ".nas", ".mesh")
_TIME_NAMES = ("TimeValue", "TIME", "Time", "time")
_HEAD = 1_000_000
_ANNOUNCED = re.compile(rb'NumberOf(Points|Cells|Verts|Lines|Strips|Polys|Tuples)\s*=\s*"\s*(\d{1,40})')
_LEGACY = re.compile(rb"^[ \t]*(POINTS|CELLS|CELL_TYPES|POLYGONS|POINT_DATA|CELL_DATA)[ \t]+(\d{1,40})", re.MULTILINE)


def read(path: str | Path) -> Contents:
    """What a file says, by a reader of its own for formats of mesh generators, else by PyVista."""
    path = Path(path)
    _check_file(path)
    suffix = path.suffix.lower()
    reader = _READERS.get(suffix)
    if reader is None and suffix not in WRITABLE:
        reader = registry.formats().get(suffix)
    if reader is None and suffix in _IN_PENNFORMATS:
        # Not left to PyVista, which finds no patches in them.
        raise ValueError(
            f"{path}: files that end in {suffix} are read by the package pennformats, which is not installed. Install "
            "it from the folder `formats` of pennpde's repository (pip install ./formats), or save the mesh as .msh."
        )
    if reader is None:
        return from_dataset(_dataset(path))
    try:
        return import_module(reader).read(path)
    except MemoryError as error:
        raise ValueError(f"{path} does not fit into the memory: {error}") from None


def suffixes_with_reader() -> tuple[str, ...]:
    """Of files that PyVista does not read: their patches come along, their fields are at points."""
    return tuple(dict.fromkeys((*_READERS, *_IN_PENNFORMATS, *registry.formats())))


def read_parts(paths: Sequence[str | Path], step: int | None = None) -> Contents:
    """One mesh of all files that a series lists for a time; blocks within a file are put together as well.

    Args:
        paths: of files that PyVista reads.
        step: which of the times of a VTKHDF file that holds several.
    """
    import pyvista

    for path in paths:
        _check_file(Path(path))
    parts = [_dataset(Path(path), step) for path in paths]
    whole = parts[0] if len(parts) == 1 else pyvista.MultiBlock(parts)
    if isinstance(whole, pyvista.MultiBlock):
        whole = whole.combine(merge_points=True)
    return from_dataset(whole)


def _check_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"There is no mesh file {path}.")
    if not path.is_file():
        folder = "a folder; Case.from_openfoam reads an OpenFOAM case, otherwise"
        raise ValueError(f"{path} is {folder if path.is_dir() else 'not a regular file;'} give a mesh file.")


def _dataset(path: Path, step: int | None = None) -> Any:
    import pyvista

    check_announced(path)
    try:
        # meshio, which PyVista asks for formats that VTK does not know if it is there, prints, and leaves the program.
        with silence(), redirect_stdout(StringIO()):
            if step is None:
                return pyvista.read(path)
            reader = pyvista.HDFReader(str(path))
            reader.reader.SetStep(step)
            return reader.read()
    except SystemExit:
        raise ValueError(f"{path} is damaged, or no mesh file that meshio reads.") from None
    except (RuntimeError, ValueError, TypeError, OSError, UserWarning, LookupError, MemoryError, ImportError) as error:
        # VTK's own words, if there are any, without the place in the memory where it stood.
        reason = " ".join(str(error).partition("while reading the file.")[2].split() or str(error).split())
        reason = re.sub(r" on algorithm \w+ ?\(0x[0-9a-f]+\)", "", reason).strip('"')
        raise ValueError(f"{path} is damaged, or no mesh file that PyVista reads: {reason}") from error


@contextmanager
def silence() -> Iterator[None]:
    """Silences VTK, which prints pages about a damaged file, and PyVista, which repeats them in the log."""
    import pyvista

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with pyvista.vtk_verbosity("off"), warnings.catch_warnings():
            # Where VTK has failed, newer versions of PyVista warn and go on with an empty mesh.
            warnings.filterwarnings("error", message="(?s).*raised an error while reading", category=UserWarning)
            yield
    finally:
        logging.disable(before)


def from_dataset(dataset: pyvista.DataObject) -> Contents:
    """What a PyVista dataset says. Vertices, lines, and surfaces of bodies are left out: they are no cells here."""
    import pyvista

    if isinstance(dataset, pyvista.MultiBlock):
        names = [str(name) for name in dataset.keys()[:5]] + ["..."] * (dataset.n_blocks > 5)
        raise ValueError(
            f"The dataset has {dataset.n_blocks} blocks ({', '.join(names)}); choose one, as in "
            "Mesh.from_pyvista(dataset[0])."
        )
    if not isinstance(dataset, pyvista.DataSet):
        raise TypeError(f"A {type(dataset).__name__} is not a mesh; give a path or a PyVista dataset.")
    grid = dataset if isinstance(dataset, pyvista.UnstructuredGrid) else dataset.cast_to_unstructured_grid()
    notes = {name: np.asarray(grid.field_data[name]) for name in grid.field_data}
    cells, kept = _cells_of(grid)
    plane = bool(np.isin(cells.types, PLANE_TYPES).all())
    fields, patch_points = {}, {}
    for name in grid.point_data:
        values = np.array(grid.point_data[name])
        if name.startswith("patch:"):
            patch_points[name.removeprefix("patch:")] = values != 0
        elif values.dtype.kind in "biuf":
            fields[name] = _unflattened(values, notes.get(f"axes:{name}"), plane)
    prefix, arrays = "patch facets:", {name: np.array(grid.cell_data[name]) for name in grid.cell_data}
    return Contents(
        np.array(grid.points, dtype=np.float64),
        cells,
        fields,
        patch_points,
        {name.removeprefix(prefix): facets for name, facets in notes.items() if name.startswith(prefix)},
        cell_fields={name: values[kept] for name, values in arrays.items() if values.dtype.kind in "biuf"},
        time=_stated_time(notes),
    )


def _stated_time(notes: Mapping[str, np.ndarray]) -> float | None:
    for name in _TIME_NAMES:
        values = notes.get(name)
        if values is not None and values.size == 1 and values.dtype.kind in "iuf":
            time = float(values.ravel()[0])
            return time if time > 0 else None  # many programs write zero where there is no time
    return None


def _cells_of(grid: pyvista.UnstructuredGrid) -> tuple[Cells, Int64[np.ndarray, " kept"]]:
    """The cells, and their numbers in the grid."""
    types = np.array(grid.celltypes, dtype=np.uint8)
    if len(types) == 0:
        return Cells(np.zeros(0, np.int64), np.zeros(1, np.int64), types), np.zeros(0, np.int64)
    arrays = grid.GetCells()
    offsets, connectivity = _integers(arrays.GetOffsetsArray()), _integers(arrays.GetConnectivityArray())
    plane = np.isin(types, PLANE_TYPES)
    left_out = np.isin(types, POINTS_AND_LINES)
    if (~plane & ~left_out).any():
        left_out |= plane
    kept = np.flatnonzero(~left_out)
    faces = _faces_of(grid) if (types == POLYHEDRON).any() else None
    if faces is not None:
        number = np.cumsum(~left_out) - 1
        faces = Facets(faces.connectivity, faces.offsets, number[faces.cells])
    return Cells(*take_rows(connectivity, offsets, kept), types[kept], faces), kept


def _faces_of(grid: pyvista.UnstructuredGrid) -> Facets:
    faces, locations = grid.GetPolyhedronFaces(), grid.GetPolyhedronFaceLocations()
    arrays = (faces.GetConnectivityArray(), faces.GetOffsetsArray(), locations.GetConnectivityArray())
    connectivity, offsets, order = map(_integers, arrays)
    sizes = np.diff(_integers(locations.GetOffsetsArray()))
    return Facets(*take_rows(connectivity, offsets, order), np.repeat(np.arange(len(sizes)), sizes))


def _integers(array: Any) -> Int64[np.ndarray, " entries"]:
    """VTK counts in `long long`; np.array(..., dtype=np.int64) would leave that as it is, a type of its own."""
    import pyvista

    return np.array(pyvista.convert_array(array)).astype(np.int64)


def _unflattened(values: np.ndarray, axes: np.ndarray | None, plane: bool) -> np.ndarray:
    """A field in the shape that it had before `to_dataset`, or vectors without the third component they do not need."""
    if axes is None:
        flat = plane and values.ndim == 2 and values.shape[1] == 3 and not values[:, 2].any()
        return values[:, :2] if flat else values
    stored = axes if np.prod(axes) == values.shape[1] else np.full(len(axes), 3)
    return values.reshape(-1, *stored)[(slice(None), *(slice(length) for length in axes))]


def to_dataset(contents: Contents) -> pyvista.UnstructuredGrid:
    """A PyVista grid. Plane meshes lie in z = 0, and their vectors and tensors get a third component."""
    grid = _grid(np.pad(contents.points, ((0, 0), (0, 3 - contents.points.shape[1]))), contents.cells)
    for name, values in contents.fields.items():
        axes = values.shape[1:]
        plane_tensor = contents.cells.dimension == 2 and set(axes) == {2}
        if plane_tensor:
            values = np.pad(values, [(0, 0), *[(0, 1)] * len(axes)])  # noqa: PLW2901
        if plane_tensor or len(axes) > 1:
            grid.field_data[f"axes:{name}"] = np.array(axes, dtype=np.int64)
        grid.point_data[name] = values.reshape(len(values), -1) if axes else values
    for name, mask in contents.patch_points.items():
        grid.point_data[f"patch:{name}"] = mask.astype(np.uint8)
    for name, facets in contents.patch_facets.items():
        grid.field_data[f"patch facets:{name}"] = facets
    for name, note in contents.facts.items():
        grid.field_data[name] = [note] if isinstance(note, str) else np.asarray(note, dtype=np.float64)
    return grid


def _grid(points: Float[np.ndarray, "points 3"], cells: Cells) -> pyvista.UnstructuredGrid:
    import pyvista

    grid = pyvista.UnstructuredGrid()
    grid.points = points
    types = pyvista.convert_array(cells.types)
    rows = pyvista.CellArray.from_arrays(cells.offsets, cells.connectivity, deep=True)
    faces = cells.polyhedron_faces
    if faces is None:
        grid.SetCells(types, rows)
        return grid
    locations = offsets_of(np.bincount(faces.cells, minlength=len(cells)))
    grid.SetPolyhedralCells(
        types,
        rows,
        pyvista.CellArray.from_arrays(locations, np.arange(len(faces)), deep=True),
        pyvista.CellArray.from_arrays(faces.offsets, faces.connectivity, deep=True),
    )
    return grid


# Counts that a file announces are compared with its size before anything is allocated for them: libraries trust such
# counts, and a wrong one takes all memory, or ends the program.


def check_announced(path: Path) -> None:
    """Refuse a file of VTK that announces more than it can hold."""
    suffix, size = path.suffix.lower(), path.stat().st_size
    if suffix in (".vtkhdf", ".hdf"):
        _check_vtkhdf(path)
    elif suffix == ".vtk":
        for match in _LEGACY.finditer(path.read_bytes()):
            _check(path, match[1].decode().lower(), int(match[2]), size)
    elif suffix.startswith(".vt"):
        with path.open("rb") as stream:
            for match in _ANNOUNCED.finditer(stream.read(_HEAD)):
                _check(path, match[1].decode().lower(), int(match[2]), MOST_PACKED * size)


def _check(path: Path, what: str, count: int, most: int) -> None:
    if count > max(most, ALWAYS_FINE):
        raise ValueError(f"{path} is damaged: it announces {count:,} {what} and has {path.stat().st_size:,} bytes.")


def _check_vtkhdf(path: Path) -> None:
    import h5py

    try:
        with h5py.File(path) as file:
            check_hdf5(file, path)
    except (OSError, RuntimeError):
        return  # not HDF5, or damaged: VTK says what is wrong


def check_hdf5(file: h5py.File | h5py.Group, path: Path | str) -> None:
    """Refuse a file of HDF5 that has an array of more values than its bytes can hold."""
    import h5py

    def check(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            check_stored(item.id, f"{path} is damaged: its array {name!r}")

    file.visititems(check)


# Files of meshes with their fields, at one time or at several, as ParaView plays them.
#
# .vtu, .vtk  by VTK
# .vtkhdf     by h5py; one file holds all times
# .pvd        a list of times and .vtu files, which lie in a folder next to it
#
# Everything is made in memory: where the disk is full, VTK and HDF5 end the program, or write a part and say nothing.


SERIES = (".vtkhdf", ".pvd")
"""Suffixes of files that hold several times."""


def write(path: str | Path, contents: Contents) -> None:
    """Write a mesh with its patches and fields; the suffix says how."""
    path = Path(path)
    if path.suffix not in WRITABLE:
        raise ValueError(f"Cannot save a mesh as {path.name!r}: choose one of {', '.join(WRITABLE)}.")
    write_atomically(path, _hdf([contents], ()) if path.suffix == ".vtkhdf" else _by_vtk(path.suffix, contents))


def write_series(path: Path | str, times: Sequence[float], meshes: Sequence[Mesh]) -> None:
    """Write fields at several times for ParaView. What was there under this name stays until all of it is written.

    Args:
        path: Ends in .vtkhdf or .pvd. The folder must exist.
        times: Increasing and finite.
        meshes: One for each time: the same points, cells and names of fields, other values.
    """
    path = Path(path)
    if path.suffix not in SERIES:
        raise ValueError(f"Cannot save several times as {path.name!r}: choose one of {', '.join(SERIES)}.")
    if len(times) != len(meshes) or len(meshes) == 0:
        raise ValueError(f"There are {len(times)} times, but {len(meshes)} meshes with fields; give one for each time.")
    if not np.isfinite(times).all() or np.any(np.diff(times) <= 0):
        raise ValueError(f"The times of a series must be finite and increase; got {list(times)}.")
    names = [set(mesh.fields) for mesh in meshes]
    if any(each != names[0] for each in names):
        raise ValueError(f"Fields must be there at all times; some have only {sorted(set.intersection(*names))}.")
    if path.suffix == ".vtkhdf":
        write_atomically(path, _hdf([mesh.contents for mesh in meshes], times))
        return
    files = [f"{path.stem}_{place:04d}.vtu" for place in range(len(meshes))]
    # A name that nobody gives to a folder of his own: it is replaced whole.
    folder = path.with_name(f"{path.name}.files")
    with replacing_folder(folder) as new:
        for file, mesh in zip(files, meshes, strict=True):
            mesh.save(new / file)
    entries = [
        f'<DataSet timestep="{time:.12g}" group="" part="0" file={quoteattr(f"{folder.name}/{file}")}/>'
        for time, file in zip(times, files, strict=True)
    ]
    head = '<?xml version="1.0"?>\n<VTKFile type="Collection" version="0.1" byte_order="LittleEndian">\n<Collection>'
    write_atomically(path, "\n".join([head, *entries, "</Collection>\n</VTKFile>\n"]))


def _by_vtk(suffix: str, contents: Contents) -> bytes | str:
    from vtkmodules.vtkIOLegacy import vtkUnstructuredGridWriter
    from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridWriter

    if suffix == ".vtk":
        writer: Any = vtkUnstructuredGridWriter()
        writer.SetFileTypeToBinary()
    else:
        writer = vtkXMLUnstructuredGridWriter()
        writer.SetDataModeToBinary()
        writer.SetCompressorTypeToZLib()
    writer.SetInputDataObject(to_dataset(contents))
    writer.SetWriteToOutputString(True)
    writer.Write()
    return writer.GetOutputStdString() if suffix == ".vtk" else writer.GetOutputString()


def _hdf(frames: Sequence[Contents], times: Sequence[float]) -> bytes:
    """VTKHDF: the points and cells of the first, and the fields of all; without times a file of one."""
    import h5py

    first, grids = frames[0], [to_dataset(frame) for frame in frames]
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        group = grid_group(file, (2, 5))
        for name, values in grid_arrays(np.asarray(grids[0].points), first.cells).items():
            _store(group, name, values)
        for name in grids[0].point_data:
            if "/" in name:
                raise ValueError(f"A field or patch cannot be called {name!r} in a .vtkhdf file; save it as .vtu.")
            shown = grids if times and name in first.fields else grids[:1]
            blocks = [np.asarray(grid.point_data[name]) for grid in shown]
            # A viewer reads one time after the other, so each is packed by itself.
            _store(group, f"PointData/{name}", np.concatenate(blocks), len(blocks[0]))
        for name in grids[0].field_data:
            values = np.asarray(grids[0].field_data[name])
            texts = h5py.string_dtype("ascii") if values.dtype.kind == "U" else None
            group.create_dataset(f"FieldData/{name}", data=values.tolist() if texts else values, dtype=texts)
        if times:
            _steps(group, times, [name for name in grids[0].point_data if name in first.fields], len(first.points))
    return content.getvalue()


def grid_group(file: h5py.File, version: tuple[int, int]) -> h5py.Group:
    """The group of a mesh in a VTKHDF file. Readers ask for its parts also where they are empty."""
    group = file.create_group("VTKHDF")
    group.attrs["Version"], group.attrs["Type"] = np.array(version), np.bytes_("UnstructuredGrid")
    for name in ("PointData", "CellData", "FieldData"):
        group.create_group(name)
    return group


def grid_arrays(points: Float[np.ndarray, "points 3"], cells: Cells) -> dict[str, np.ndarray]:
    """The arrays of a mesh as VTKHDF has them, by name; those that are only numbers come first."""
    faces = cells.polyhedron_faces
    numbers = {"Points": len(points), "Cells": len(cells), "ConnectivityIds": len(cells.connectivity)}
    arrays = {"Points": points, "Connectivity": cells.connectivity, "Offsets": cells.offsets, "Types": cells.types}
    if faces is not None:
        numbers |= {"Faces": len(faces), "FaceConnectivityIds": len(faces.connectivity)}
        numbers |= {"PolyhedronToFaceIds": len(faces)}
        arrays |= {"FaceConnectivity": faces.connectivity, "FaceOffsets": faces.offsets}
        arrays["PolyhedronToFaces"] = np.arange(len(faces))
        arrays["PolyhedronOffsets"] = offsets_of(np.bincount(faces.cells, minlength=len(cells)))
    return {f"NumberOf{name}": np.array([number], np.int64) for name, number in numbers.items()} | arrays


def step_arrays(group: h5py.Group, times: Sequence[float], offsets: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of the time steps of one mesh; by field, where its values at each time start, or else all the same."""
    group.create_group("Steps").attrs["NSteps"] = len(times)
    zeros = np.zeros(len(times), np.int64)
    arrays = {"Values": np.array(times, np.float64), "NumberOfParts": zeros + 1, "PartOffsets": zeros}
    arrays |= {"PointOffsets": zeros, "CellOffsets": zeros[:, None], "ConnectivityIdOffsets": zeros[:, None]}
    arrays |= {f"PointDataOffsets/{name}": values for name, values in offsets.items()}
    return {f"Steps/{name}": values for name, values in arrays.items()}


def _store(group: h5py.Group, name: str, values: np.ndarray, rows: int = 0) -> None:
    packed: dict[str, Any] = {"shuffle": True, "compression": "gzip", "compression_opts": 4}
    group.create_dataset(name, data=values, chunks=(rows or len(values), *values.shape[1:]), **packed)


def _steps(group: h5py.Group, times: Sequence[float], varying: Sequence[str], points: int) -> None:
    """Where the fields of each time start; all have the same points and cells."""
    offsets = {name: np.arange(len(times)) * points for name in varying}
    for name, values in step_arrays(group, times, offsets).items():
        group[name] = values
    # VTK's reader stops at field data of which it does not know the size at each time.
    fields: Any = group["FieldData"]
    steps: Any = group["Steps"]
    for name, values in fields.items():
        steps[f"FieldDataOffsets/{name}"] = np.zeros(len(times), np.int64)
        components = values.shape[1] if values.ndim > 1 else 1
        steps[f"FieldDataSizes/{name}"] = np.tile(np.array([components, len(values)], np.int64), (len(times), 1))
