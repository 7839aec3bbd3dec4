"""The same mesh as the programs of others write it: SU2, universal files, CGNS. Patches are sets of facets."""

from collections.abc import Callable, Mapping
from pathlib import Path

import h5py
import numpy as np

import mesh_writers
from mesh_writers import Row
from pennpde.mesh import Mesh

UNIVERSAL = {3: 11, 5: 91, 9: 94, 10: 111, 12: 115, 13: 112, 14: 101}
_CGNS_KINDS = {"int32": "I4", "float32": "R4", "float64": "R8", "int8": "C1"}
CGNS = {3: 3, 5: 5, 9: 7, 10: 10, 12: 17, 13: 14, 14: 12}


def write_su2(path: Path, points: np.ndarray, cells: list[Row], patches: Mapping[str, list[Row]]) -> None:
    dimension = 2 if {code for code, _ in cells} <= {5, 9} else 3

    def listed(rows: list[Row]) -> list[str]:
        return [f"{code} {' '.join(map(str, row))}" for code, row in rows]

    lines = ["% as SU2 has it", f"NDIME= {dimension}", f"NELEM= {len(cells)}"]
    lines += [f"{row} {number}" for number, row in enumerate(listed(cells))]
    lines += [f"NPOIN= {len(points)} {len(points)}"]
    lines += [" ".join([*map(repr, at[:dimension]), str(number)]) for number, at in enumerate(points.tolist())]
    lines += [f"NMARK= {len(patches)}"]
    for name, rows in patches.items():
        lines += [f"MARKER_TAG= {name}", f"MARKER_ELEMS= {len(rows)}", *listed(rows)]
    path.write_text("\n".join(lines) + "\n")


def write_unv(path: Path, points: np.ndarray, cells: list[Row], patches: Mapping[str, list[Row]]) -> None:
    lines = ["    -1", "   164", "         1  SI: Meters", "  1.0D+00", "    -1", "    -1", "  2411"]
    for label, at in enumerate(points.tolist(), start=1):
        lines += [f"{label:10d}{1:10d}{1:10d}{11:10d}", " ".join(f"{x:25.16E}".replace("E", "D") for x in at)]
    lines += ["    -1", "    -1", "  2412"]
    label, members = 0, {}
    for name, rows in [*patches.items(), (None, cells)]:
        for code, row in rows:
            label += 1
            members.setdefault(name, []).append(label)
            lines.append("".join(f"{each:10d}" for each in (label, UNIVERSAL[code], 2, 1, 7, len(row))))
            lines += ["         0         1         1"] * (code == 3)
            lines.append("".join(f"{point + 1:10d}" for point in row))
    lines += ["    -1", "    -1", "  2467"]
    for number, name in enumerate(patches, start=1):
        lines += ["".join(f"{each:10d}" for each in (number, 0, 0, 0, 0, 0, 0, len(members[name]))), name]
        entries = [f"{8:10d}{each:10d}{0:10d}{0:10d}" for each in members[name]]
        lines += ["".join(entries[at : at + 2]) for at in range(0, len(entries), 2)]
    path.write_text("\n".join([*lines, "    -1", ""]))


def write_cgns(
    path: Path, points: np.ndarray, cells: list[Row], patches: Mapping[str, list[Row]], mixed: bool = True
) -> None:
    dimension = 2 if {code for code, _ in cells} <= {5, 9} else 3

    def node(parent: h5py.Group, name: str, label: str, values: np.ndarray | None = None) -> h5py.Group:
        made = parent.create_group(name)
        kind = "MT" if values is None else _CGNS_KINDS[values.dtype.name]
        for attribute, text, size in (("name", name, 33), ("label", label, 33), ("type", kind, 3)):
            made.attrs.create(attribute, np.bytes_(text), dtype=f"S{size}")
        made.attrs["flags"] = np.array([1], np.int32)
        if values is not None:
            made[" data"] = values
        return made

    def letters(text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.int8)

    with h5py.File(path, "w") as file:
        for attribute, text, size in (("name", "HDF5 MotherNode", 33), ("label", "Root Node of HDF5 File", 33)):
            file.attrs.create(attribute, np.bytes_(text), dtype=f"S{size}")
        file.attrs.create("type", np.bytes_("MT"), dtype="S3")
        file[" format"] = letters("IEEE_LITTLE_32\0")
        file[" hdf5version"] = letters("HDF5 Version 1.8.17".ljust(33, "\0"))
        node(file, "CGNSLibraryVersion", "CGNSLibraryVersion_t", np.array([3.4], np.float32))
        base = node(file, "Base", "CGNSBase_t", np.array([dimension, dimension], np.int32))
        zone = node(base, "Zone", "Zone_t", np.array([[len(points)], [len(cells)], [0]], np.int32))
        node(zone, "ZoneType", "ZoneType_t", letters("Unstructured"))
        coordinates = node(zone, "GridCoordinates", "GridCoordinates_t")
        for axis, column in zip("XYZ"[:dimension], points.T, strict=False):
            node(coordinates, f"Coordinate{axis}", "DataArray_t", column)
        conditions = node(zone, "ZoneBC", "ZoneBC_t")
        first = 1
        for name, rows in [("cells", cells), *patches.items()]:
            codes = {code for code, _ in rows}
            kind = 20 if mixed or len(codes) > 1 else CGNS[codes.pop()]
            values = [[CGNS[code]] * (kind == 20) + [point + 1 for point in row] for code, row in rows]
            section = node(zone, f"of {name}", "Elements_t", np.array([kind, 0], np.int32))
            span = np.array([first, first + len(rows) - 1], np.int32)
            node(section, "ElementRange", "IndexRange_t", span)
            node(section, "ElementConnectivity", "DataArray_t", np.concatenate(values).astype(np.int32))
            if name in patches:
                condition = node(conditions, name, "BC_t", letters("BCWall"))
                node(condition, "PointRange", "IndexRange_t", span[None])
                node(
                    condition,
                    "GridLocation",
                    "GridLocation_t",
                    letters("EdgeCenter" if dimension == 2 else "FaceCenter"),
                )
            first += len(rows)


WRITERS: dict[str, tuple[str, Callable[..., None]]] = {
    "su2": (".su2", write_su2),
    "unv": (".unv", write_unv),
    "cgns mixed": (".cgns", write_cgns),
    "cgns": (".cgns", lambda *given: write_cgns(*given, mixed=False)),
}


def write_as(kind: str, folder: Path, mesh: Mesh) -> Path:
    return mesh_writers.write_as(kind, folder, mesh, WRITERS)
