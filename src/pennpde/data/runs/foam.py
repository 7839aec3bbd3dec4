"""Runs of OpenFOAM: text or binary, packed or not, whole or decomposed, plane or in space."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.data.runs.source import FLOW, NOT_KNOWN, SCALAR, Quantities, RunError, Source, with_patches
from pennpde.mesh import Mesh
from pennpde.openfoam.cases import read_case, with_pressure_reference
from pennpde.openfoam.dictionaries import Uniform, number_of
from pennpde.openfoam.fields import PointValues, control_dictionary, is_there, read_field, time_folders
from pennpde.openfoam.poly_mesh import Body, pieces_of, plane_of
from pennpde.openfoam.unread import is_steady, unread

_SCALAR_SOLVERS = ("scalarTransportFoam", "laplacianFoam")
_DIMENSIONLESS = (0,) * 7
_KINEMATIC, _PASCAL = (0, 2, -2, 0, 0, 0, 0), (1, -1, -2, 0, 0, 0, 0)
_CLOSE = 1e-6
_LOG_END = 4000


def is_foam_case(path: Path) -> bool:
    """Whether a folder is an OpenFOAM case."""
    return (path / "system" / "controlDict").is_file() or (
        (path / "constant").is_dir() and any(path.glob("processor*"))
    )


class FoamSource(Source):
    """One OpenFOAM case."""

    def __init__(self, folder: Path, wanted: Quantities | None) -> None:
        super().__init__(wanted)
        self.folder = folder
        if wanted is not None:
            missing = [each.name for each in wanted.fields.values() if not self._ever(each.name)]
            if missing:
                raise RunError(f"it has no field {' and no '.join(missing)} at any time")

    @property
    def format(self) -> str:
        return "OpenFOAM, decomposed" if self.in_pieces else "OpenFOAM"

    # Fields and times

    def quantities(self) -> Quantities:
        if self.wanted is not None:
            return self.wanted
        scalar = self._ever("T") and (self._control.get("application") in _SCALAR_SOLVERS or not self._ever("p"))
        if not scalar and self._ever("U") and self._ever("p"):
            return FLOW
        if self._ever("T"):
            return SCALAR
        known = sorted({path.name.removesuffix(".gz") for time in self._folders.values() for path in time.iterdir()})
        raise RunError(
            f"it has neither U and p nor T, but {', '.join(known[:8]) or 'no fields'}; name its fields with --fields"
        )

    @cached_property
    def in_pieces(self) -> bool:
        """Whether the fields have to be put together from those of the processors."""
        return self._last_of(self.folder) < max(
            (self._last_of(piece) for piece in pieces_of(self.folder)), default=-1.0
        )

    @cached_property
    def _places(self) -> list[Path]:
        """The folders that hold the fields: that of the case, or those of the processors."""
        return pieces_of(self.folder) if self.in_pieces else [self.folder]

    @cached_property
    def _folders(self) -> dict[float, Path]:
        """The folders of the times, of the first processor where there are several."""
        return {float(path.name): path for path in time_folders(self._places[0])}

    @staticmethod
    def _last_of(folder: Path) -> float:
        return max((float(path.name) for path in time_folders(folder)), default=-1.0)

    def _ever(self, name: str) -> bool:
        return any(is_there(folder / name) for folder in self._folders.values())

    def times(self) -> tuple[float, Sequence[float]]:
        collated = [each for each in self.folder.iterdir() if re.fullmatch(r"processors\d+.*", each.name)]
        if max(map(self._last_of, collated), default=-1.0) > max(self._folders, default=-1.0):
            raise RunError("its results are collated files (processors...); put them together with reconstructPar")
        complete = [time for time, folder in self._folders.items() if not self._missing(folder)]
        if not complete:
            names = (each.name for each in self.quantities().fields.values())
            raise RunError(f"it has no time with all of its fields, {', '.join(names)}")
        return min(complete), sorted(self._folders)

    def check(self, times: Sequence[float]) -> None:
        for time in times:
            for place in self._places:
                folder = place / self._folders[time].name
                if missing := self._missing(folder):
                    where = f" of {place.name}" if self.in_pieces else ""
                    raise RunError(f"time {folder.name}{where} has no field {' and no '.join(missing)}")

    def _missing(self, folder: Path) -> list[str]:
        return [each.name for each in self.quantities().fields.values() if not is_there(folder / each.name)]

    def counts_iterations(self) -> bool:
        return is_steady(self.folder)

    # Its end

    @cached_property
    def _control(self) -> Mapping[str, Any]:
        return control_dictionary(self.folder)

    def unfinished(self) -> str | None:
        if str(self._control.get("stopAt", "endTime")) != "endTime":
            return None
        wanted = number_of(self._control.get("endTime"))
        if wanted is None:  # nobody can tell
            return None
        # A run stops within a step of its end, and writes no later than that.
        step = number_of(self._control.get("deltaT")) or 0.0
        last = max(self._folders, default=0.0)
        if last >= wanted - max(_CLOSE * abs(wanted), step) or self._log_says_end():
            return None
        return f"its last time is {last:g}, but its endTime is {wanted:g}"

    def _log_says_end(self) -> bool:
        """A steady solver that has converged stops before its endTime, and says so."""
        for path in [*self.folder.glob("log*"), *self.folder.glob("*.log")]:
            if path.is_file():
                with path.open("rb") as stream:
                    stream.seek(max(0, path.stat().st_size - _LOG_END))
                    said = stream.read().decode(errors="replace")
                if re.search(r"solution converged in", said) and re.search(r"^End\s*$", said, re.MULTILINE):
                    return True
        return False

    # Its content

    @cached_property
    def _body(self) -> Body:
        return Body.read(self.folder, in_pieces=self.in_pieces)

    def problem(self) -> Case:
        quantities, start = self.quantities(), self.times()[0]
        parameters = dict(quantities.parameters)
        if all(patch.type == "empty" for patch in self._body.patches.values()):
            raise RunError("its mesh has no patches but empty ones, so it has no boundary conditions")
        unknown = [each.text for each in unread(self.folder, quantities.fields, parameters.values()) if each.severe]
        self.notes += [NOT_KNOWN + text.rstrip(".") for text in dict.fromkeys(unknown)]
        carried = self._carrying_velocity(parameters)
        case = with_patches(read_case(self.folder, quantities.fields, parameters, start, self._body))
        if "velocity" in quantities.parameters and "velocity" not in case.parameters and carried is None:
            # laplacianFoam: nothing carries the scalar.
            resting = torch.zeros(case.space, dtype=torch.float64)
            case = replace(case, parameters={**case.parameters, "velocity": resting})
        for ours, theirs in parameters.items():
            if ours not in case.parameters:
                raise RunError(
                    f"it gives no {ours} {theirs}: constant/transportProperties has no such entry, and no time has "
                    "such a field"
                )
        for name, foam in quantities.fields.items():
            if foam.has_reference and not bool(case.dirichlet[name].mask.any()):
                if self.in_pieces:  # pRefCell counts the cells of the whole mesh
                    raise RunError(f"no patch prescribes {foam.name}, and it is decomposed; run reconstructPar first")
                case = with_pressure_reference(case, self.folder, name)
        remarks = case.remarks if quantities.network is not None else ()
        self.notes += [each.text.rstrip(".") for each in remarks if each.severe and each.text not in unknown]
        if carried is not None:
            values = torch.from_numpy(PointValues.of(self._body, case.mesh).read(carried, start))
            case = replace(case, features={**case.features, "velocity": values})
        return case

    def _carrying_velocity(self, parameters: dict[str, str]) -> str | None:
        """The field of a velocity that is not the same everywhere, which then is no parameter."""
        name = parameters.get("velocity")
        if name is None:
            return None
        written = [folder / name for folder in self._folders.values() if is_there(folder / name)]
        if not written:
            del parameters["velocity"]
            return None
        if isinstance(read_field(written[0], self.folder).internal, Uniform):
            return None
        self.notes.append(
            f"{name} is not the same everywhere: it becomes the feature `velocity`, which no shipped network takes"
        )
        del parameters["velocity"]
        return name

    @cached_property
    def _point_values(self) -> PointValues:
        return PointValues.of(self._body, self._mesh)

    @cached_property
    def _mesh(self) -> Mesh:
        return plane_of(self._body, self.folder) if self._body.is_plane else self._body.mesh

    def fields(self, time: float) -> dict[str, Tensor]:
        return {
            name: torch.from_numpy(self._point_values.read(foam.name, time))
            for name, foam in self.quantities().fields.items()
        }

    def fluxes(self, time: float) -> dict[str, float]:
        velocity = self.quantities().fields.get("u")
        return {} if velocity is None else self._point_values.fluxes(velocity.name, time)

    def units(self) -> Mapping[str, tuple[int, ...]]:
        found = {}
        folder = self._folders[self.times()[0]]
        for name, foam in self.quantities().fields.items():
            dimensions = read_field(folder / foam.name, self.folder).dimensions
            powers = tuple(map(int, (dimensions and dimensions.powers) or _DIMENSIONLESS))
            if foam.dimensions == _KINEMATIC and powers == _PASCAL:
                raise RunError(
                    f"{foam.name} is in Pa, not the kinematic pressure in m²/s²; divide it by the density, or run an "
                    "incompressible solver"
                )
            if name in ("u", "p") and foam.dimensions and powers not in (foam.dimensions, _DIMENSIONLESS):
                raise RunError(
                    f"{foam.name} has the dimensions {list(powers)} of kg, m, s, K, ...; expected are "
                    f"{list(foam.dimensions)}"
                )
            found[name] = powers
        return found

    def files(self, times: Sequence[float]) -> list[Path]:
        start = self.times()[0]
        files = [self._places[0] / "constant" / "polyMesh" / "points", self.folder / "constant" / "transportProperties"]
        for place in self._places:
            for time in sorted({start, *times}):
                folder = place / self._folders[time].name
                files += [folder / each.name for each in self.quantities().fields.values()]
        either = ((path, path.with_name(f"{path.name}.gz")) for path in files)
        return [found for pair in either if (found := next(filter(Path.is_file, pair), None)) is not None]
