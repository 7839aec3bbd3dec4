"""What the page can set up without a file: designs with sliders, and problems on a mesh that somebody uploads.

A subject belongs to the unknowns of a network: those of the cases that the subject makes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.triangulation import Polygon, fill, smallest_angles
from pennpde.models import designs
from pennpde.models.designs import CELLS_PER_LENGTH, NUMBER_OF_PARAMETERS, case_name, coarse_mesh, flow_through
from pennpde.viewer.shapes import BY_KIND, SHAPES, Shape, named
from pennpde.viewer.views import number_of


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
    shape: bool = False
    """Whether it changes the domain."""
    toggled: bool = False
    """Whether it is a switch, off at zero and on at one."""

    def read(self, values: Mapping[str, Any]) -> float:
        """Its value, with as many digits as it shows: the same place is then the same picture."""
        number = number_of(values.get(self.name, self.start), self.title)
        return number if self.typed else round(min(self.high, max(self.low, number)), self.digits)


def _typed(name: str, title: str, start: float, step: float = 0.1) -> Slider:
    return Slider(name, title, 0.0, math.inf, step, start, typed=True)


_DEVELOPED = Slider("developed", "Developed inflow (parabola)", 0.0, 1.0, 1.0, 0.0, digits=0, toggled=True)


def _read(sliders: Iterable[Slider], values: Mapping[str, Any]) -> dict[str, float]:
    return {each.name: each.read(values) for each in sliders}


@dataclass(frozen=True)
class Template:
    """A design: the shape of a domain, with sliders."""

    kind: str
    title: str
    sliders: tuple[Slider, ...]
    outline: tuple[str, ...]
    """Points of SVG polygons: the domain, and bodies in it."""
    box: str
    """That they fill."""
    duration: float = 4.0
    """Until which time it is worth looking at, in reference times."""


class Subject(ABC):
    """How the page sets up cases for one kind of network."""

    unknowns: ClassVar[frozenset[str]]
    """Of its cases."""
    datasets: ClassVar[tuple[str, ...]]
    """Kinds of datasets with its cases, first the one that comes with the package."""
    templates: Sequence[Template]
    numbers: Sequence[Slider]
    """What a user says about a mesh of their own."""
    drawing: Sequence[Slider] = ()
    """What a user says about a drawing; none where the network knows only some shapes."""
    hint: ClassVar[str]
    needs: ClassVar[tuple[tuple[str, ...], ...]]
    """Roles that segments of the boundary of a user's mesh must have: all of one of these."""

    @abstractmethod
    def of_template(self, template: Template, values: Mapping[str, Any]) -> Case: ...

    @abstractmethod
    def on_mesh(self, mesh: Mesh, values: Mapping[str, Any]) -> Case:
        """The case on a mesh that has the roles of its boundary as patches."""

    def of_drawing(self, polygons: Sequence[Polygon], values: Mapping[str, Any]) -> Case:  # noqa: ARG002
        raise ValueError("This network knows only its own designs; start the page with --model flow to draw.")

    def template(self, kind: str) -> Template:
        for each in self.templates:
            if each.kind == kind:
                return each
        raise ValueError(f"There is no design {kind!r}; there are {', '.join(each.kind for each in self.templates)}.")


class FlowSubject(Subject):
    """Plane flow: all shapes for a network that steps through time, ducts for one that knows those."""

    unknowns = frozenset({"u", "p"})
    datasets = ("flow", "plane-flow", "collected")
    hint = "Lengths are in widths of the inlet."
    needs = (("inlet", "outlet"), ("moving", "wall"))

    def __init__(self, every_shape: bool = True) -> None:
        shapes = SHAPES if every_shape else [BY_KIND[kind] for kind in NUMBER_OF_PARAMETERS]
        self.templates = tuple(self._template(each, each.cells if every_shape else CELLS_PER_LENGTH) for each in shapes)
        self.numbers = (_typed("speed", "Inlet speed", 1.0), _typed("viscosity", "Viscosity", 1e-3, 1e-4))
        if every_shape:
            speed = Slider("speed", "Speed of inlets and moving walls", 0.1, 3.0, 0.05, 1.0)
            points = Slider(
                name="points", title="Points of the mesh", low=300.0, high=8000.0, step=100.0, start=1500.0, digits=0
            )
            self.numbers += (_DEVELOPED,)
            self.drawing = (speed, _typed("viscosity", "Viscosity", 2e-3, 1e-4), points, _DEVELOPED)

    @staticmethod
    def _template(shape: Shape, cells: float) -> Template:
        sliders = [
            Slider(
                name=each.name,
                title=each.title,
                low=each.low,
                high=each.high,
                step=each.step,
                start=each.start,
                digits=0 if each.step >= 1 else 2,
                shape=True,
            )
            for each in shape.measures
        ]
        sliders += [
            Slider("speed", "Speed of the lid" if shape.kind == "cavity" else "Inlet speed", 0.1, 3.0, 0.05, 1.0),
            _typed("viscosity", "Viscosity", float(f"{1 / shape.reynolds:.3g}"), 1e-4),
            Slider(
                name="resolution", title="Cells across the inlet", low=4.0, high=60.0, step=0.5, start=cells, digits=1
            ),
        ]
        drawn = shape.polygons({each.name: each.start for each in shape.measures})
        return Template(shape.kind, shape.title, tuple(sliders), *_drawn(drawn), shape.duration)

    def of_template(self, template: Template, values: Mapping[str, Any]) -> Case:
        read = _read(template.sliders, values)
        kind, cells = template.kind, read["resolution"]
        if kind in NUMBER_OF_PARAMETERS:  # on meshes like those of training
            shape = tuple(read[each.name] for each in template.sliders if each.shape)
            mesh = coarse_mesh(case_name(kind, shape), cells_per_length=cells)
        else:
            mesh = fill(named(BY_KIND[kind].polygons(read)), 1 / cells)
        return flow_through(mesh, read["speed"], read["viscosity"])

    def of_drawing(self, polygons: Sequence[Polygon], values: Mapping[str, Any]) -> Case:
        if not self.drawing:
            return super().of_drawing(polygons, values)
        read = _read(self.drawing, values)
        roles = {role for polygon in polygons for role in polygon.patches}
        if not any(set(needed) <= roles for needed in self.needs):
            raise ValueError("A drawing needs an inlet and an outlet, or a moving wall: choose one of its sides.")
        area = abs(polygons[0].area) - sum(abs(each.area) for each in polygons[1:])
        if not area > 0:
            raise ValueError("The bodies leave no room for the fluid.")
        mesh = fill(named(polygons), math.sqrt(area / read["points"]))
        return flow_through(mesh, read["speed"], read["viscosity"], developed=read["developed"] > 0)

    def on_mesh(self, mesh: Mesh, values: Mapping[str, Any]) -> Case:
        read = _read(self.numbers, values)
        return flow_through(mesh, read["speed"], read["viscosity"], developed=read.get("developed", 0) > 0)


class TransportSubject(Subject):
    """A temperature in a known flow."""

    unknowns = frozenset({"T"})
    datasets = ("advection-diffusion", "collected")
    hint = "A square of size one, cold at the start and heated from the left."
    needs = (("inlet",),)

    templates = (
        Template(
            "plate",
            "Plate",
            (
                Slider("velocity", "Velocity", 0.0, 1.0, 0.05, 0.5),
                Slider("diffusivity", "Diffusivity", 0.0, 1.0, 0.05, 0.1),
                Slider("temperature", "Inlet temperature", 0.05, 1.0, 0.05, 1.0),
                Slider(
                    name="resolution",
                    title="Cells along a side",
                    low=4.0,
                    high=60.0,
                    step=1.0,
                    start=float(designs.PLATE_POINTS - 1),
                    digits=0,
                ),
            ),
            ("0,0 1,0 1,1 0,1",),
            "0 0 1 1",
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


def quality_of(mesh: Mesh) -> str:
    """How good the triangles of a mesh are, in a few words."""
    angles = smallest_angles(mesh.points.numpy()[mesh.connectivity.reshape(-1, 3)])
    return f"smallest angle {angles.min():.0f}°, in half of the triangles above {np.median(angles):.0f}°"


def subject_of(unknowns: Iterable[str], name: str, takes_times: bool = False) -> Subject:
    """The subject of a network's unknowns; a ValueError says that the page has none for what the user calls `name`."""
    wanted, subjects = frozenset(unknowns), (FlowSubject(takes_times), TransportSubject())
    for subject in subjects:
        if subject.unknowns == wanted:
            return subject
    known = "; ".join(", ".join(sorted(subject.unknowns)) for subject in subjects)
    raise ValueError(f"{name} solves for {', '.join(sorted(wanted))}; the page has designs for {known}.")


def _drawn(polygons: Sequence[Polygon]) -> tuple[tuple[str, ...], str]:
    """Polygons as SVG has them, and their box; SVG counts downward."""
    low, high = (getattr(polygons[0].corners, end)(axis=0) for end in ("min", "max"))
    texts = tuple(" ".join(f"{x:.3f},{low[1] + high[1] - y:.3f}" for x, y in each.corners) for each in polygons)
    width, height = high - low
    return texts, f"{low[0]:.3f} {low[1]:.3f} {width:.3f} {height:.3f}"
