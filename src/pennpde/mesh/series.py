"""A mesh with fields at several times, as ParaView plays them.

.vtkhdf  one file that holds all times
.pvd     a list of times and .vtu files, which lie in a folder next to it
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np

from pennpde.files import write_atomically
from pennpde.mesh.mesh import Mesh

SERIES = (".vtkhdf", ".pvd")
"""Suffixes of files that hold several times."""


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
    if path.suffix == ".pvd":
        _write_list(path, times, meshes)
    else:
        _write_steps(path, times, meshes)


# One file


def _write_steps(path: Path, times: Sequence[float], meshes: Sequence[Mesh]) -> None:
    """VTK writes the mesh with the first fields; the other times and the table of steps are added in memory."""
    import h5py

    with TemporaryDirectory(prefix="pennpde") as scratch:
        first = Path(scratch) / "first.vtkhdf"
        meshes[0].save(first)  # checked by reading it back
        content = io.BytesIO(first.read_bytes())
    number = len(times)
    with h5py.File(content, "r+") as file:
        group: Any = file["VTKHDF"]
        steps = group.create_group("Steps")
        steps.attrs["NSteps"] = number
        steps["Values"] = np.array(times, np.float64)
        zeros = np.zeros(number, np.int64)
        steps["NumberOfParts"] = zeros + 1
        # All times have the same points and cells.
        for name in ("PartOffsets", "PointOffsets"):
            steps[name] = zeros
        for name in ("CellOffsets", "ConnectivityIdOffsets"):
            steps[name] = zeros[:, None]
        grids = [mesh.to_pyvista() for mesh in meshes]
        for name in meshes[0].fields:
            blocks = [np.asarray(grid.point_data[name]) for grid in grids]
            attributes = dict(group[f"PointData/{name}"].attrs)
            del group[f"PointData/{name}"]
            # A viewer reads one time after the other, so each is packed by itself.
            stored = group.create_dataset(
                f"PointData/{name}",
                data=np.concatenate(blocks),
                chunks=blocks[0].shape,
                shuffle=True,
                compression="gzip",
                compression_opts=4,
            )
            stored.attrs.update(attributes)
            steps[f"PointDataOffsets/{name}"] = np.arange(number) * len(blocks[0])
        # VTK's reader stops at field data of which it does not know the size at each time.
        for name, values in group["FieldData"].items():
            steps[f"FieldDataOffsets/{name}"] = zeros
            components = values.shape[1] if values.ndim > 1 else 1
            steps[f"FieldDataSizes/{name}"] = np.tile(np.array([components, len(values)], np.int64), (number, 1))
    write_atomically(path, content.getvalue())


# A list of files


def _write_list(path: Path, times: Sequence[float], meshes: Sequence[Mesh]) -> None:
    replaced = _listed_folder(path)
    folder = _free_folder(path)
    folder.mkdir()
    try:
        rows = []
        for place, (time, mesh) in enumerate(zip(times, meshes, strict=True)):
            file = folder / f"{path.stem}_{place:04d}.vtu"
            mesh.save(file)
            name = quoteattr(f"{folder.name}/{file.name}")
            rows.append(f'    <DataSet timestep="{time:.12g}" group="" part="0" file={name}/>')
        lines = [
            '<?xml version="1.0"?>',
            '<VTKFile type="Collection" version="0.1" byte_order="LittleEndian">',
            "  <Collection>",
            *rows,
            "  </Collection>",
            "</VTKFile>",
            "",
        ]
        write_atomically(path, "\n".join(lines))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if replaced is not None:
        shutil.rmtree(replaced, ignore_errors=True)


def _free_folder(path: Path) -> Path:
    """A folder next to a list for its files: of its name, or with a number behind it where that is taken."""
    number = 1
    while True:
        folder = path.with_name(path.stem if number == 1 else f"{path.stem}-{number}")
        if not folder.exists():
            return folder
        number += 1


def _listed_folder(path: Path) -> Path | None:
    """The folder whose files a list names, all of them and no others: it goes with the list that is replaced."""
    try:
        entries = ElementTree.fromstring(path.read_text(encoding="utf-8")).iter("DataSet")
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    files = [Path(entry.get("file", "")) for entry in entries]
    names = {file.parent for file in files}
    if len(names) != 1 or len((name := names.pop()).parts) != 1 or name.name in ("", ".."):
        return None
    folder = path.parent / name
    ours = name.name == path.stem or name.name.removeprefix(f"{path.stem}-").isdecimal()
    if not ours or not folder.is_dir() or folder.is_symlink():
        return None
    return folder if {each.name for each in folder.iterdir()} == {file.name for file in files} else None
