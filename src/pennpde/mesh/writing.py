"""Files of meshes with their fields, at one time or at several, as ParaView plays them.

.vtu, .vtk  by VTK
.vtkhdf     by h5py; one file holds all times
.pvd        a list of times and .vtu files, which lie in a folder next to it

Everything is made in memory: where the disk is full, VTK and HDF5 end the program, or write a part and say nothing.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

import numpy as np

from pennpde.files import replacing_folder, write_atomically
from pennpde.mesh.cells import offsets_of
from pennpde.mesh.contents import Contents
from pennpde.mesh.files import WRITABLE, to_dataset

if TYPE_CHECKING:
    import h5py

    from pennpde.mesh.mesh import Mesh

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

    first, cells, faces = frames[0], frames[0].cells, frames[0].cells.polyhedron_faces
    grids = [to_dataset(frame) for frame in frames]
    numbers = {"Points": len(first.points), "Cells": len(cells), "ConnectivityIds": len(cells.connectivity)}
    arrays = {
        "Points": np.asarray(grids[0].points),
        "Connectivity": cells.connectivity,
        "Offsets": cells.offsets,
        "Types": cells.types,
    }
    if faces is not None:
        numbers |= {"Faces": len(faces), "FaceConnectivityIds": len(faces.connectivity)}
        numbers |= {"PolyhedronToFaceIds": len(faces)}
        arrays |= {
            "FaceConnectivity": faces.connectivity,
            "FaceOffsets": faces.offsets,
            "PolyhedronToFaces": np.arange(len(faces)),
            "PolyhedronOffsets": offsets_of(np.bincount(faces.cells, minlength=len(cells))),
        }
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        group = file.create_group("VTKHDF")
        group.attrs["Version"], group.attrs["Type"] = np.array([2, 5]), np.bytes_("UnstructuredGrid")
        for name in ("PointData", "CellData", "FieldData"):  # readers ask for these also where they are empty
            group.create_group(name)
        for name, number in numbers.items():
            group[f"NumberOf{name}"] = np.array([number], np.int64)
        for name, values in arrays.items():
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


def _store(group: h5py.Group, name: str, values: np.ndarray, rows: int = 0) -> None:
    packed: dict[str, Any] = {"shuffle": True, "compression": "gzip", "compression_opts": 4}
    group.create_dataset(name, data=values, chunks=(rows or len(values), *values.shape[1:]), **packed)


def _steps(group: h5py.Group, times: Sequence[float], varying: Sequence[str], points: int) -> None:
    """Where the fields of each time start; all have the same points and cells."""
    steps, zeros = group.create_group("Steps"), np.zeros(len(times), np.int64)
    steps.attrs["NSteps"] = len(times)
    steps["Values"], steps["NumberOfParts"] = np.array(times, np.float64), zeros + 1
    for name in ("PartOffsets", "PointOffsets"):
        steps[name] = zeros
    for name in ("CellOffsets", "ConnectivityIdOffsets"):
        steps[name] = zeros[:, None]
    for name in varying:
        steps[f"PointDataOffsets/{name}"] = np.arange(len(times)) * points
    # VTK's reader stops at field data of which it does not know the size at each time.
    fields: Any = group["FieldData"]
    for name, values in fields.items():
        steps[f"FieldDataOffsets/{name}"] = zeros
        components = values.shape[1] if values.ndim > 1 else 1
        steps[f"FieldDataSizes/{name}"] = np.tile(np.array([components, len(values)], np.int64), (len(times), 1))
