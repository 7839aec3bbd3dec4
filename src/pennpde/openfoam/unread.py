"""What an OpenFOAM case says and an equation does not take into account, as remarks for the user.

A reader takes the mesh, the conditions, the initial fields and the parameters. Everything else in the case that changes
the flow is named here, so that a prediction of another problem than the user's does not look like one of the user's.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pennpde.case import Remark
from pennpde.openfoam.dictionaries import Dimensions, FoamFormatError, Uniform, is_on, number_of, read_dictionary, shown
from pennpde.openfoam.fields import FoamField, control_dictionary, is_same_time, time_folders
from pennpde.penn.equation import FoamName

_SOURCES = ("fvOptions", "fvModels", "fvConstraints")
_TURBULENCE = ("turbulenceProperties", "momentumTransport", "RASProperties", "LESProperties")
_HEAD = 4000
_STEADY = ("simpleFoam", "porousSimpleFoam", "SRFSimpleFoam", "rhoSimpleFoam", "buoyantSimpleFoam")
_OTHER_PHYSICS = re.compile(
    r"buoyant|[iI]nter|[mM]ultiphase|cavitating|[cC]ompressible|rho|sonic|nonNewtonian|SRF|porous|[rR]eacting|fire|film|"
    r"[pP]arcel|spray|[rR]egion|shallowWater|mhd|FreeSurface|LiquidMixing|[sS]olid|driftFlux|Euler|VoF"
)
"""In the names of OpenFOAM's programs that solve other equations of flow. A program of the user's own is not known."""
_FIELDS_OF_TURBULENCE = frozenset(("k", "epsilon", "omega", "nut", "nuTilda", "nuSgs", "alphat", "mut", "R", "B"))
_FIELDS_OF_TURBULENCE |= {"v2", "f", "gammaInt", "ReThetat", "kt", "kl", "delta", "y"}
_DERIVED = frozenset(["phi", "phi_0", "Uf", "Uf_0", "U_0", "p_0", "meshPhi", "C", "V", "Cx", "Cy", "Cz"])
"""Written by solvers and tools next to the fields; they follow from those and from the mesh."""
_PARTS = {
    "MRFProperties": "rotating zones",
    "SRFProperties": "a rotating frame of reference",
    "porosityProperties": "porous zones",
    "thermophysicalProperties": "heat and compressibility",
    "phaseProperties": "several phases",
    "regionProperties": "several regions",
    "radiationProperties": "radiation",
    "combustionProperties": "combustion",
    "chemistryProperties": "chemical reactions",
    "waveProperties": "waves",
    "kinematicCloudProperties": "particles",
    "cloudProperties": "particles",
}
"""Dictionaries of `constant` and what they add to the equations."""
_DIMENSIONS = {"nu": (0.0, 2.0, -1.0, 0.0, 0.0, 0.0, 0.0), "DT": (0.0, 2.0, -1.0, 0.0, 0.0, 0.0, 0.0)}
"""Of entries that are read as parameters: square metres per second."""
_KNOWN_FILES = frozenset(("transportProperties", "physicalProperties", "g", "dynamicMeshDict", *_TURBULENCE, *_SOURCES))


def unread(
    folder: Path,
    fields: Mapping[str, FoamName],
    parameters: Iterable[str],
    solvers: Iterable[str] = (),
    sources: Iterable[str] = (),
) -> tuple[Remark, ...]:
    """Everything of a case that changes its solution and that an equation with these fields does not know.

    Args:
        folder: Of the case.
        fields: By unknown, its field in OpenFOAM.
        parameters: Entries and fields that are read as parameters.
        solvers: OpenFOAM's programs that solve the same equation; none: not known, so none is questioned.
        sources: Entries of `fvOptions` that are part of the case already.
    """
    parameters = list(parameters)
    return (
        *_sources(folder, set(sources)),
        *_turbulence(folder),
        *_application(folder, tuple(solvers)),
        *_constant(folder),
        *_about_parameters(folder, parameters),
        *_other_fields(folder, {each.name for each in fields.values()} | set(parameters)),
        *_start(folder),
    )


def is_steady(folder: Path | str) -> bool:
    """Whether the case is for a solver whose times count iterations; False where it does not say."""
    return str(control_dictionary(folder).get("application")) in _STEADY


def about_field(name: FoamName, field: FoamField, path: Path, folder: Path) -> list[Remark]:
    """Remarks about one field that is read: dimensions of another quantity."""
    if (found := _other_than(field.dimensions, tuple(map(float, name.dimensions)))) is None:
        return []
    return [
        Remark(
            f"{_short(path, folder)} has the dimensions {found}, but the network's {name.name} has "
            f"{_exponents(name.dimensions)}: it is taken as that."
        )
    ]


def _other_than(dimensions: Dimensions | None, wanted: tuple[float, ...]) -> str | None:
    """Dimensions that are given and differ from those that are wanted, as they are written; else None."""
    powers = None if dimensions is None else dimensions.powers
    if dimensions is None or powers == wanted or (powers is not None and not any(powers)):
        return None
    return f"[{dimensions.symbols}]" if dimensions.symbols else _exponents(dimensions.exponents)


def _about_parameters(folder: Path, parameters: Iterable[str]) -> Iterator[Remark]:
    """Parameters whose dimensions are those of another quantity: a dynamic viscosity is a thousand times that of water.

    OpenFOAM's own solvers stop there.
    """
    for name in ("transportProperties", "physicalProperties"):
        entries = yield from _entries(folder / "constant" / name, folder)
        for parameter in parameters:
            given, wanted = entries.get(parameter), _DIMENSIONS.get(parameter)
            items = given if isinstance(given, tuple) else ()
            found = next((each for each in items if isinstance(each, Dimensions)), None)
            if wanted is not None and (shown := _other_than(found, wanted)) is not None:
                yield Remark(
                    f"constant/{name}: {parameter} has the dimensions {shown}, but the network's {parameter} has "
                    f"{_exponents(wanted)}: its number is taken as that."
                )


def _sources(folder: Path, known: set[str]) -> Iterator[Remark]:
    for place in ("system", "constant"):
        for name in _SOURCES:
            entries = yield from _entries(folder / place / name, folder)
            active = [
                f"{key} ({each.get('type', 'of no type')})"
                for key, each in entries.items()
                if isinstance(each, Mapping) and key not in {"FoamFile", *known} and is_on(each.get("active"))
            ]
            if active:
                yield Remark(
                    f"{place}/{name} adds {_listed(active)} to the equations; the network does not know such terms.",
                    other_physics=True,
                )


def _turbulence(folder: Path) -> Iterator[Remark]:
    for name in _TURBULENCE:
        entries = yield from _entries(folder / "constant" / name, folder)
        kind = str(entries.get("simulationType", entries.get("RASModel", entries.get("LESModel", "laminar"))))
        family = "laminar" if kind == "laminar" else "LES" if kind.startswith("LES") or name[0] == "L" else "RAS"
        settings = entries.get(family, {})
        settings = {**entries, **settings} if isinstance(settings, Mapping) else entries
        model = str(settings.get(f"{family}Model", settings.get("model", "")))
        if model in ("Stokes", "laminar") or (family == "laminar" and not model):
            continue
        if family != "laminar":
            if not is_on(settings.get("turbulence")):
                continue
            named = f" with the model {model}" if model not in ("", kind) else ""
            text = f"the flow is turbulent, simulationType {kind}{named}; the network knows laminar flow only."
        elif model == "Maxwell":
            text = (
                "the fluid is viscoelastic (Maxwell). It is taken as a Newtonian fluid with the viscosity that it has "
                "at rest, nu + nuM."
            )
        else:
            text = f"the laminar model is {model}; the network knows Newtonian fluids only."
        yield Remark(f"constant/{name}: {text}", other_physics=True)


def _application(folder: Path, solvers: tuple[str, ...]) -> Iterator[Remark]:
    entries = yield from _entries(folder / "system" / "controlDict", folder)
    application = str(entries.get("application", ""))
    if application == "foamRun":
        application = str(entries.get("solver", ""))
    if solvers and application and application not in solvers:
        yield Remark(
            f"system/controlDict: the application is {application}; the network solves the equation of "
            f"{_listed(solvers, 'or')}.",
            other_physics=_OTHER_PHYSICS.search(application) is not None,
        )
    if application in _STEADY:
        yield Remark(
            f"{application} seeks the steady state; the prediction holds at the time that is printed with it.", False
        )


def _constant(folder: Path) -> Iterator[Remark]:
    constant = folder / "constant"
    if not constant.is_dir():  # a decomposed case may have it in its parts only
        return
    gravity = yield from _entries(constant / "g", folder)
    value = gravity.get("value")
    numbers = [number_of(each) for each in _vector(value)]
    if any(number for number in numbers if number is not None):
        yield Remark(f"constant/g: gravity is {_written(_vector(value))}; the network knows no gravity.")
    moving = yield from _entries(constant / "dynamicMeshDict", folder)
    kind = str(moving.get("dynamicFvMesh", "staticFvMesh" if "mover" not in moving else "a mover"))
    if moving and kind != "staticFvMesh":
        yield Remark(
            f"constant/dynamicMeshDict: the mesh moves ({kind}); the network takes it as it is at the start.",
            other_physics=True,
        )
    for name, what in _PARTS.items():
        entries = yield from _entries(constant / name, folder)
        parts = {key: each for key, each in entries.items() if isinstance(each, Mapping) and key != "FoamFile"}
        switched_off = parts and not any(is_on(each.get("active")) for each in parts.values())
        if entries and not switched_off:
            named = f" ({_listed(list(parts))})" if parts and name in ("MRFProperties", "porosityProperties") else ""
            yield Remark(f"constant/{name}: {what}{named}; the network does not know them.", other_physics=True)
    others = sorted(
        path.name.removesuffix(".gz")
        for path in constant.iterdir()
        if path.is_file()
        and not path.name.startswith(".")
        and path.name.removesuffix(".gz") not in (_KNOWN_FILES | _PARTS.keys())
    )
    if others:
        yield Remark(f"constant has {_listed(others)}, which the network does not read.", False)


def _other_fields(folder: Path, known: set[str]) -> Iterator[Remark]:
    times = time_folders(folder) or time_folders(folder / "processor0" if (folder / "processor0").is_dir() else folder)
    if not times:
        return
    names = {
        path.name.removesuffix(".gz")
        for path in times[0].iterdir()
        if not path.name.startswith(".") and not path.name.endswith((".orig", "~", ".bak")) and _is_cell_field(path)
    }
    others = sorted(names - known - _DERIVED)
    turbulent = [name for name in others if name in _FIELDS_OF_TURBULENCE]
    rest = [name for name in others if name not in _FIELDS_OF_TURBULENCE]
    if rest:
        phases = [name for name in rest if name.startswith("alpha.")]
        about = f"; {_listed(phases)} belongs to a flow of several phases" if phases else ""
        yield Remark(
            f"{times[0].name}/ also has {_listed(rest)}{about}. The network neither uses nor predicts "
            f"{'it' if len(rest) == 1 else 'them'}."
        )
    if turbulent:
        yield Remark(f"{times[0].name}/ also has {_listed(turbulent)} of turbulence models, which are not used.", False)


def _start(folder: Path) -> Iterator[Remark]:
    entries = yield from _entries(folder / "system" / "controlDict", folder)
    times, given = time_folders(folder), number_of(entries.get("startTime"))
    kind, words = str(entries.get("startFrom")), ""
    if len(times) > 1 and kind == "latestTime":
        words = f"from the latest time {times[-1].name}"
    elif kind == "startTime" and given is not None and not any(is_same_time(float(each.name), given) for each in times):
        words = f"at {given:g}, but there is no such time"
    if words and times:
        read = f"conditions and initial fields were read from {times[0].name}/."
        yield Remark(f"controlDict starts {words}; {read}", False)


def _entries(path: Path, folder: Path) -> Any:
    """The entries of a dictionary; none where it is not there. One that cannot be read is remarked on."""
    # A pipe, a folder or a link to nothing is there, too, and cannot be read.
    if not os.path.lexists(path) and not os.path.lexists(path.with_name(f"{path.name}.gz")):
        return {}
    try:
        return read_dictionary(path, folder)
    except (FoamFormatError, OSError) as error:
        reason = " ".join(str(error).replace(str(path), "").strip(" ,:").split())
        yield Remark(f"{_short(path, folder)} cannot be read, so that nothing of it is taken into account: {reason}")
        return {}


def _is_cell_field(path: Path) -> bool:
    """Whether a file says that it holds a value for each cell: not a flux, and not a dictionary that others include."""
    if not path.is_file():
        return False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            head = stream.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return True  # damaged: worth a word
    return re.search(rb"class\s+vol\w*Field\b", head) is not None


def _vector(value: Any) -> list[Any]:
    value = value[-1] if isinstance(value, tuple) and value else value
    value = value.value if isinstance(value, Uniform) else value
    return list(value) if isinstance(value, list | np.ndarray) else []


def _written(values: Iterable[Any]) -> str:
    return f"({' '.join(f'{each:g}' if isinstance(each, int | float) else shown(each) for each in values)})"


def _exponents(exponents: Iterable[float]) -> str:
    return f"[{' '.join(f'{each:g}' for each in exponents)}]"


def _listed(names: Iterable[str], word: str = "and") -> str:
    """A few names in a sentence; of many the first."""
    names = list(names)
    if len(names) > 6:
        names = [*names[:6], f"{len(names) - 6} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def _short(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
