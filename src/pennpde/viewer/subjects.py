"""What the page can set up without a file: designs with sliders, and problems on a mesh that somebody uploads.

A subject belongs to the unknowns of a network: those of the cases that the subject makes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models import designs
from pennpde.models.designs import CELLS_PER_LENGTH, case_name, coarse_mesh, duct, flow_through
from pennpde.viewer.views import number_of

VISCOSITY = 1e-3
_CELLS_OF_A_MARCH = 14.0
"""Across the inlet, for a network that steps through time. Its time grows with the third power of them, and finer
meshes gain little: the step is expected to be wrong by 1.7 % in u at 14 cells and by 1.4 % at 22.5, which takes three
times as long."""
_RAMPS = (("first", "Lower ramp"), ("second", "Upper ramp"))


@dataclass(frozen=True)
class Slider:
    """A number that a user chooses: by a slider, or by typing it."""

    name: str
    title: str
    low: float
    high: float
    step: float
    start: float
    digits: int = 2
    typed: bool = False
    """Whether it is a field to type into, where `low` and `high` are no limits."""

    def read(self, values: Mapping[str, Any]) -> float:
        """Its value, with as many digits as it shows: the same place is then the same picture."""
        number = number_of(values.get(self.name, self.start), self.title)
        return number if self.typed else round(min(self.high, max(self.low, number)), self.digits)


def _typed(name: str, title: str, start: float, step: float = 0.1) -> Slider:
    return Slider(name, title, 0.0, math.inf, step, start, typed=True)


def _read(sliders: Iterable[Slider], values: Mapping[str, Any]) -> dict[str, float]:
    return {each.name: each.read(values) for each in sliders}


@dataclass(frozen=True)
class Template:
    """A design: the shape of a domain, with sliders."""

    kind: str
    title: str
    sliders: tuple[Slider, ...]
    outline: str
    """Points of an SVG polygon."""


class Subject(ABC):
    """How the page sets up cases for one kind of network."""

    datasets: ClassVar[tuple[str, ...]]
    """Kinds of datasets with its cases, first the one that comes with the package."""
    templates: Sequence[Template]
    numbers: Sequence[Slider]
    """What a user says about a mesh of their own."""
    hint: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Roles that some segment of the boundary of a user's mesh must have."""

    @abstractmethod
    def of_template(self, template: Template, values: Mapping[str, Any]) -> Case: ...

    @abstractmethod
    def on_mesh(self, mesh: Mesh, values: Mapping[str, Any]) -> Case:
        """The case on a mesh that has the roles of its boundary as patches."""

    @property
    def unknowns(self) -> frozenset[str]:
        """Of its cases."""
        return frozenset(self.of_template(self.templates[0], {"resolution": 4.0}).initial)

    def template(self, kind: str) -> Template:
        for each in self.templates:
            if each.kind == kind:
                return each
        raise ValueError(f"There is no design {kind!r}; there are {', '.join(each.kind for each in self.templates)}.")


class FlowSubject(Subject):
    """Flow through ducts."""

    datasets = ("flow", "plane-flow", "collected")
    hint = "Lengths are in widths of the inlet."
    needs = ("inlet", "outlet", "wall")

    def __init__(self, cells: float = CELLS_PER_LENGTH) -> None:
        shared = (
            Slider("speed", "Inlet speed", 0.1, 3.0, 0.05, 1.0),
            _typed("viscosity", "Viscosity", VISCOSITY, 1e-4),
            Slider("resolution", "Cells across the inlet", 4.0, 60.0, 0.5, cells, 1),
        )
        lower, upper = (Slider(name, title, 0.0, 1.0, 0.01, 0.37) for name, title in _RAMPS)
        self.templates = (
            Template("a", "Step", (Slider("first", "Ramp", 0.0, 1.0, 0.01, 0.37), *shared), _duct_outline("a", 1)),
            Template("b", "Offset duct", (lower, upper, *shared), _duct_outline("b", 2)),
            Template("c", "Expansion", (lower, upper, *shared), _duct_outline("c", 2)),
        )
        self.numbers = (_typed("speed", "Inlet speed", 1.0), _typed("viscosity", "Viscosity", VISCOSITY, 1e-4))

    def of_template(self, template: Template, values: Mapping[str, Any]) -> Case:
        read = _read(template.sliders, values)
        shape = tuple(read[name] for name, _ in _RAMPS if name in read)
        mesh = coarse_mesh(case_name(template.kind, shape), cells_per_length=read["resolution"])
        return flow_through(mesh, read["speed"], read["viscosity"])

    def on_mesh(self, mesh: Mesh, values: Mapping[str, Any]) -> Case:
        read = _read(self.numbers, values)
        return flow_through(mesh, read["speed"], read["viscosity"])


class TransportSubject(Subject):
    """A temperature in a known flow."""

    datasets = ("advection-diffusion", "collected")
    hint = "A square of size one, cold at the start and heated from the left."
    needs = ("inlet",)

    templates = (
        Template(
            "plate",
            "Plate",
            (
                Slider("velocity", "Velocity", 0.0, 1.0, 0.05, 0.5),
                Slider("diffusivity", "Diffusivity", 0.0, 1.0, 0.05, 0.1),
                Slider("temperature", "Inlet temperature", 0.05, 1.0, 0.05, 1.0),
                Slider("resolution", "Cells along a side", 4.0, 60.0, 1.0, float(designs.PLATE_POINTS - 1), 0),
            ),
            "0.00,0.00 2.00,0.00 2.00,2.00 0.00,2.00",
        ),
    )
    numbers = (
        _typed("velocity", "Velocity along x", 0.5),
        _typed("across", "Velocity along y", 0.0),
        _typed("diffusivity", "Diffusivity", 0.1),
        _typed("temperature", "Inlet temperature", 1.0),
    )

    def of_template(self, template: Template, values: Mapping[str, Any]) -> Case:
        read = _read(template.sliders, values)
        if not (read["velocity"] or read["diffusivity"]):
            raise ValueError("Without velocity and diffusivity nothing happens: choose one of them above zero.")
        mesh = designs.plate_mesh("plate", int(read["resolution"]) + 1)
        return designs.advection_diffusion_case(mesh, read["velocity"], read["diffusivity"], read["temperature"])

    def on_mesh(self, mesh: Mesh, values: Mapping[str, Any]) -> Case:
        read = _read(self.numbers, values)
        if read["diffusivity"] < 0:
            raise ValueError(f"The diffusivity is {read['diffusivity']:g}; it must not be negative.")
        velocity = (read["velocity"], read["across"])
        return designs.heated_at_inlet(mesh, velocity, read["diffusivity"], read["temperature"])


def subject_of(unknowns: Iterable[str], name: str, takes_times: bool = False) -> Subject:
    """The subject of a network's unknowns; a ValueError says that the page has none for what the user calls `name`."""
    cells = _CELLS_OF_A_MARCH if takes_times else CELLS_PER_LENGTH
    wanted, subjects = frozenset(unknowns), (FlowSubject(cells), TransportSubject())
    for subject in subjects:
        if subject.unknowns == wanted:
            return subject
    known = "; ".join(", ".join(sorted(subject.unknowns)) for subject in subjects)
    raise ValueError(f"{name} solves for {', '.join(sorted(wanted))}; the page has designs for {known}.")


def _duct_outline(kind: str, ramps: int) -> str:
    sides = [side for sides in duct(case_name(kind, (0.4,) * ramps)).patches.values() for side in sides]
    following = dict(sides)
    place, points = sides[0][0], []
    for _ in sides:
        points.append(f"{place[0]:.2f},{place[1]:.2f}")
        place = following[place]
    return " ".join(points)
