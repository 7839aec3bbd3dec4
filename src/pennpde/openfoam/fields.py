"""Fields of a case: cell values and their boundary dictionaries, in time folders."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.files import write_atomically
from pennpde.openfoam.dictionaries import (
    Dimensions,
    FoamFormatError,
    NonUniform,
    Uniform,
    format_entry,
    number_of,
    read_dictionary,
    shown,
)

VELOCITY = Dimensions((0, 1, -1, 0, 0, 0, 0))
PRESSURE = Dimensions((0, 2, -2, 0, 0, 0, 0))
"""Of the kinematic pressure, which incompressible solvers use."""
VISCOSITY = Dimensions((0, 2, -1, 0, 0, 0, 0))
FLUX = Dimensions((0, 3, -1, 0, 0, 0, 0))
TEMPERATURE = Dimensions((0, 0, 0, 1, 0, 0, 0))


@dataclass(frozen=True, eq=False)
class FoamField:
    """What a file such as `0/U` holds.

    Attributes:
        internal: a number or a vector for all cells, or one for each, [cells] or [cells, components]. For a surface
            field it is over the internal faces.
        boundary: one dictionary for each patch, patch group or regular expression of patches.
    """

    internal: Uniform | NonUniform
    boundary: Mapping[str, Mapping[str, Any]]
    dimensions: Dimensions | None = None

    def values(self, number: int) -> np.ndarray:
        """The internal values, one for each of so many cells or internal faces."""
        if isinstance(self.internal, Uniform):
            value = np.asarray(self.internal.value, float)
            return np.broadcast_to(value, (number, *value.shape)).copy()
        if len(self.internal.values) != number:
            raise FoamFormatError(
                f"A field has {len(self.internal.values)} values, but the mesh {number}; they do not belong together."
            )
        return self.internal.values


def on_faces(given: Any, count: int, axes: tuple[int, ...]) -> np.ndarray | None:
    """The values of an entry, `uniform ...` or `nonuniform List<...>`, on so many faces; None where it has others."""
    if isinstance(given, Uniform) and np.shape(given.value) == axes:
        return np.broadcast_to(np.asarray(given.value, float), (count, *axes))
    if isinstance(given, NonUniform) and given.values.shape == (count, *axes):
        return given.values
    return None


def read_field(path: Path | str, root: Path | str | None = None) -> FoamField:
    """Read the file of a field, text or binary. `root` is the case folder, inside which `#include` is followed."""
    entries = read_dictionary(path, root)
    internal = entries.get("internalField")
    if not isinstance(internal, Uniform | NonUniform):
        found = "nothing" if internal is None else shown(internal)
        raise FoamFormatError(f"{path}: internalField must be 'uniform ...' or 'nonuniform List<...>', found {found}.")
    boundary = entries.get("boundaryField")
    if not isinstance(boundary, Mapping) or not all(isinstance(patch, Mapping) for patch in boundary.values()):
        raise FoamFormatError(f"{path} needs a boundaryField with one dictionary for each patch.")
    dimensions = entries.get("dimensions")
    return FoamField(internal, boundary, dimensions if isinstance(dimensions, Dimensions) else None)


def write_field(
    path: Path | str,
    values: np.ndarray,
    dimensions: Dimensions,
    boundary: Mapping[str, Mapping[str, Any]],
    location: str | None = None,
    kind: str | None = None,
    *,
    binary: bool = True,
) -> None:
    """Write cell values, [cells] or [cells, 3], as a file that OpenFOAM's programs read.

    Args:
        path: TIME/NAME in a case; the file appears when it is complete.
        values: must be finite.
        dimensions: of the field.
        boundary: one dictionary for each patch, as `read_field` gives it or with strings in OpenFOAM's words.
        location: the time, where the folder is not named by it (yet).
        kind: OpenFOAM's class of the field; by default that of cell values, volScalarField or volVectorField.
        binary: or else text, with all digits.
    """
    path, values = Path(path), np.asarray(values, float)
    if not np.isfinite(values).all():
        raise ValueError(f"{path.name} holds values that are not finite; OpenFOAM would stop at once.")
    header = {
        "version": "2.0",
        "format": "binary" if binary else "ascii",
        "arch": '"LSB;label=32;scalar=64"',
        "class": kind or ("volScalarField" if values.ndim == 1 else "volVectorField"),
        "location": f'"{location or path.parent.name}"',
        "object": path.name,
    }
    entries = {"dimensions": dimensions, "internalField": NonUniform(values), "boundaryField": boundary}
    content = b"".join(format_entry(name, value, binary=binary) for name, value in entries.items())
    write_atomically(path, format_entry("FoamFile", header) + content)


def time_folders(folder: Path | str) -> list[Path]:
    """The folders of a case that are named by a time, earliest first."""
    found: list[tuple[float, Path]] = []
    for path in Path(folder).iterdir():
        try:
            time = float(path.name)
        except ValueError:
            continue
        if path.is_dir() and math.isfinite(time):
            found.append((time, path))
    return [path for _, path in sorted(found)]


def writes_binary(folder: Path | str) -> bool:
    """Whether the `writeFormat` of a case is binary; OpenFOAM's own default is text."""
    try:
        control = read_dictionary(Path(folder) / "system" / "controlDict", folder)
    except (FoamFormatError, OSError):
        return False
    return str(control.get("writeFormat", "ascii")) == "binary"


def start_time(folder: Path | str) -> float:
    """When a case starts: at the `startTime` of its controlDict, where it says so and has such a folder with fields.

    Otherwise at its earliest time: `latestTime` is the end of a run that is finished. 0 where it has no time at all.
    """
    pieces = Path(folder) / "processor0"
    folders = time_folders(folder) or (time_folders(pieces) if pieces.is_dir() else [])
    times = [float(path.name) for path in folders]
    try:
        control = read_dictionary(Path(folder) / "system" / "controlDict", folder)
    except (FoamFormatError, OSError):
        control = {}
    given = number_of(control.get("startTime"))
    if given is not None and str(control.get("startFrom", "latestTime")) == "startTime":
        near = [time for time in times if math.isclose(time, given, rel_tol=1e-6, abs_tol=1e-12)]
        if near:
            return near[0]
    return times[0] if times else 0.0
