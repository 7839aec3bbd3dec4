"""Ready problems with a few parameters: flow through ducts, and heat that a stream carries across a plate.

The paper's drawing of its ducts was not available. Type A (a step) was recovered from the authors' samples; B (an
offset duct) and C (an expansion) are our own shapes, with the same inlet and Reynolds number.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models.potential_flow import potential_flow

Side = tuple[tuple[float, float], tuple[float, float]]
"""Of a patch: a straight line from one place to another."""
INLET_VELOCITY = (1.0, 0.0)
VISCOSITY = 1e-3
CELLS_PER_LENGTH = 22.5
JITTER = 0.15
PLATE_POINTS = 11
"""Along each side of the coarse mesh of the plate, as the authors have it."""
NUMBER_OF_PARAMETERS = {"a": 1, "b": 2, "c": 2}
"""Of each type of duct."""


# Shapes of ducts


@dataclass(frozen=True)
class Region:
    """A four-sided part of a duct, which becomes one block of cells.

    Attributes:
        corners: counter-clockwise.
        reference: the rectangle (left, right, bottom, top) that the region is when all parameters are zero. Only
            it determines the numbers of cells, so that neighbouring regions match for all parameters.
    """

    corners: tuple[tuple[float, float], tuple[float, float], tuple[float, float], tuple[float, float]]
    reference: tuple[float, float, float, float]

    def cells(self, per_length: float) -> tuple[int, int]:
        """Cells along and across: grid lines of the reference rectangle at rounded multiples of the cell size."""
        left, right, bottom, top = (math.floor(per_length * value + 0.5) for value in self.reference)
        return max(1, right - left), max(1, top - bottom)


@dataclass(frozen=True)
class Duct:
    """The domain of one case: its regions, and the sides of its patches inlet, wall and outlet."""

    name: str
    regions: tuple[Region, ...]
    patches: Mapping[str, tuple[Side, ...]]

    def grid(self, cells_per_length: float) -> tuple[Float[np.ndarray, "points 2"], Int64[np.ndarray, "cells 4"]]:
        """Points and counter-clockwise quads of the mesh that `blockMesh` would make."""
        positions, quads, count = [], [], 0
        for region in self.regions:
            along, across = region.cells(cells_per_length)
            s, t = np.meshgrid(np.linspace(0, 1, along + 1), np.linspace(0, 1, across + 1))
            shape = np.stack([(1 - s) * (1 - t), s * (1 - t), s * t, (1 - s) * t], axis=-1).reshape(-1, 4)
            positions.append(shape @ np.array(region.corners, float))
            first = np.arange(along)[None, :] + (along + 1) * np.arange(across)[:, None] + count
            quads.append(np.stack([first, first + 1, first + along + 2, first + along + 1], axis=-1).reshape(-1, 4))
            count += len(positions[-1])
        # Regions share the points of their common sides.
        points = np.concatenate(positions)
        _, kept, number = np.unique(np.round(points, 9), axis=0, return_index=True, return_inverse=True)
        return points[kept], number.reshape(-1)[np.concatenate(quads)].astype(np.int64)

    def on_patch(self, name: str, points: Float[np.ndarray, "points 2"]) -> np.ndarray:
        """True at points that lie on a patch."""
        found = np.zeros(len(points), bool)
        for start, end in self.patches[name]:
            origin, direction = np.array(start, float), np.subtract(end, start).astype(float)
            place = np.clip((points - origin) @ direction / (direction @ direction), 0.0, 1.0)
            found |= np.linalg.norm(points - origin - place[:, None] * direction, axis=1) < 1e-9
        return found


def case_name(kind: str, parameters: tuple[float, ...]) -> str:
    """Such as `a_0.30`, `b_0.10_0.70`."""
    return "_".join([kind, *(f"{value:.2f}" for value in parameters)])


def parse_name(name: str) -> tuple[str, tuple[float, ...]]:
    """Type and design parameters of a case; each parameter is from 0 to 1."""
    kind, *texts = name.split("_")
    if len(texts) != NUMBER_OF_PARAMETERS.get(kind):
        raise ValueError(f"{name!r} names no flow case; names look like 'a_0.30', 'b_0.10_0.70' or 'c_0.00_1.00'.")
    try:
        parameters = tuple(float(text) for text in texts)
    except ValueError:
        raise ValueError(f"{name!r} names no flow case: its parameters must be numbers, as in 'b_0.10_0.70'.") from None
    for value in parameters:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name!r}: the design parameter {value:g} is outside of its range from 0 to 1.")
    return kind, parameters


def duct(name: str) -> Duct:
    """The duct of a case."""
    kind, parameters = parse_name(name)
    build = {"a": _step, "b": _offset_duct, "c": _expansion}[kind]
    regions, patches = build(*parameters)
    return Duct(name, regions, patches)


def _step(ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    regions = (
        Region(((0, 1), (1, 1), (1, 2), (0, 2)), (0, 1, 1, 2)),
        Region(((1, 1), (3, 1), (3, 2), (1, 2)), (1, 3, 1, 2)),
        Region(((1 + ramp, 0), (3, 0), (3, 1), (1, 1)), (1, 3, 0, 1)),
    )
    lower = (((0, 1), (1, 1)), ((1, 1), (1 + ramp, 0)), ((1 + ramp, 0), (3, 0)))
    upper = (((3, 2), (1, 2)), ((1, 2), (0, 2)))
    return regions, {
        "inlet": (((0, 2), (0, 1)),),
        "wall": lower + upper,
        "outlet": (((3, 0), (3, 1)), ((3, 1), (3, 2))),
    }


def _offset_duct(lower_ramp: float, upper_ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    # The outlet lies at x = 5, not 4: there a vortex would just cross it at t = 4, and the pressure would not converge.
    bottom, top = 1 + lower_ramp, 3 - upper_ramp
    regions = (
        Region(((0, 1), (1, 1), (1, 2), (0, 2)), (0, 1, 1, 2)),
        Region(((1, 1), (3, 1), (top, 2), (1, 2)), (1, 3, 1, 2)),
        Region(((bottom, 0), (3, 0), (3, 1), (1, 1)), (1, 3, 0, 1)),
        Region(((3, 0), (5, 0), (5, 1), (3, 1)), (3, 5, 0, 1)),
    )
    lower = (((0, 1), (1, 1)), ((1, 1), (bottom, 0)), ((bottom, 0), (3, 0)), ((3, 0), (5, 0)))
    upper = (((5, 1), (3, 1)), ((3, 1), (top, 2)), ((top, 2), (1, 2)), ((1, 2), (0, 2)))
    return regions, {"inlet": (((0, 2), (0, 1)),), "wall": lower + upper, "outlet": (((5, 0), (5, 1)),)}


def _expansion(lower_ramp: float, upper_ramp: float) -> tuple[tuple[Region, ...], dict[str, tuple[Side, ...]]]:
    bottom, top = 1 + lower_ramp, 1 + upper_ramp
    regions = (
        Region(((0, 0.5), (1, 0.5), (1, 1.5), (0, 1.5)), (0, 1, 0.5, 1.5)),
        Region(((1, 0.5), (3, 0.5), (3, 1.5), (1, 1.5)), (1, 3, 0.5, 1.5)),
        Region(((bottom, 0), (3, 0), (3, 0.5), (1, 0.5)), (1, 3, 0, 0.5)),
        Region(((1, 1.5), (3, 1.5), (3, 2), (top, 2)), (1, 3, 1.5, 2)),
    )
    lower = (((0, 0.5), (1, 0.5)), ((1, 0.5), (bottom, 0)), ((bottom, 0), (3, 0)))
    upper = (((3, 2), (top, 2)), ((top, 2), (1, 1.5)), ((1, 1.5), (0, 1.5)))
    outlet = (((3, 0), (3, 0.5)), ((3, 0.5), (3, 1.5)), ((3, 1.5), (3, 2)))
    return regions, {"inlet": (((0, 1.5), (0, 0.5)),), "wall": lower + upper, "outlet": outlet}


# Flow through ducts, on coarse plane meshes


def coarse_mesh(name: str, seed: int = 0, cells_per_length: float = CELLS_PER_LENGTH, jitter: float = JITTER) -> Mesh:
    """The plane mesh of quads on which networks see a case, with the patches inlet, wall and outlet.

    Grid lines stand at rounded multiples of the cell size, so 1, 2 and 3 unit lengths get 23 (or 22), 45 and 68 cells.

    Args:
        name: of the case.
        seed: of the jitter; each case has its own random numbers.
        cells_per_length: may be fractional.
        jitter: how far interior points are moved at most, as a share of their shortest edge, so that no network sees
            a lattice.
    """
    shape = duct(name)
    points, quads = shape.grid(cells_per_length)
    patches = {patch: np.flatnonzero(shape.on_patch(patch, points)) for patch in shape.patches}
    if jitter:
        boundary = np.zeros(len(points), bool)
        boundary[np.concatenate(list(patches.values()))] = True
        # To a millionth of a unit length: the digits below would be noise that takes a fifth of a stored case.
        points = _jittered(points, ~boundary, jitter * _shortest_edge(points, quads), name, seed, bits=20)
    return Mesh.from_arrays(points, quads, patches=patches)


def _jittered(
    points: np.ndarray, inside: np.ndarray, radius: np.ndarray | float, name: str, seed: int, bits: int
) -> np.ndarray:
    """The points with those inside moved by a random share of a radius, and rounded to so many binary digits."""
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    length = radius * np.sqrt(random.random(len(points)))
    angle = 2 * np.pi * random.random(len(points))
    moved = points + length[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.where(inside[:, None], np.round(moved * 2.0**bits) / 2.0**bits, points)


def _shortest_edge(points: Float[np.ndarray, "points 2"], quads: Int64[np.ndarray, "cells 4"]) -> np.ndarray:
    shortest = np.full(len(points), np.inf)
    for first, second in ((0, 1), (1, 2), (2, 3), (3, 0)):
        ends = quads[:, [first, second]]
        length = np.linalg.norm(points[ends[:, 1]] - points[ends[:, 0]], axis=1)
        np.minimum.at(shortest, ends, length[:, None])
    return shortest


def flow_case(
    mesh: Mesh, name: str = "", targets: Mapping[str, Any] | None = None, viscosity: float = VISCOSITY
) -> Case:
    """The flow problem on a mesh with the patches inlet, wall and outlet, started from its potential flow.

    Where the wall meets the inlet or the outlet, the velocity is the wall's: zero.
    """
    inlet = (*INLET_VELOCITY, *[0.0] * (mesh.space - 2))
    sides = {"frontAndBack": 0.0} if "frontAndBack" in mesh.patches else {}
    start = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": inlet, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0, **sides}, "p": {"wall": 0.0, "inlet": 0.0, **sides}},
        parameters={"viscosity": viscosity},
        features={"wall_distance": mesh.distance_to("wall")},
        targets=targets or {},
        name=name,
    )
    return replace(start, initial={**start.initial, "u": potential_flow(start)})


def flow_through(mesh: Mesh, speed: float, viscosity: float, *, developed: bool = False) -> Case:
    """The flow in a mesh with some of the patches inlet, outlet, wall, body, moving and slip, or outlet_1 and outlet_2.

    Fluid enters at right angles to an inlet, everywhere at this speed, or developed: as a parabola of this mean. A
    moving wall moves along itself, to the right where it is above the fluid; a body is a wall.
    """
    for name, value in (("speed", speed), ("viscosity", viscosity)):
        if not value > 0:
            raise ValueError(f"The {name} is {value:g}; it must be larger than zero.")
    kinds = ("inlet", "moving", "wall", "body", "outlet", "slip")
    named = {kind: [name for name in mesh.patches if name.partition("_")[0] == kind] for kind in kinds}
    parabola = {"profile": "parabola", "mean": speed}
    velocity: dict[str, Any] = {
        name: parabola if developed else -speed * mesh.point_normals(name) for name in named["inlet"]
    }
    for name in named["moving"]:
        velocity[name] = speed * mesh.point_normals(name)[:, [1, 0]] * torch.tensor([1.0, -1.0])
    velocity |= dict.fromkeys([*named["wall"], *named["body"]], 0.0)
    open_end = dict.fromkeys(named["outlet"], 0.0)
    return Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": velocity, "p": open_end},
        neumann={"u": open_end, "p": dict.fromkeys([*velocity, *named["slip"]], 0.0)},
        slip={"u": named["slip"]} if named["slip"] else None,
        parameters={"viscosity": viscosity},
    )


# Heat across a plate


def plate_mesh(name: str, points: int = PLATE_POINTS, jitter: float = 0.0, seed: int = 0) -> Mesh:
    """The plane mesh of quads on which networks see a case, with the patches inlet and side.

    Args:
        name: of the case.
        points: along each side.
        jitter: how far interior points are moved at most, as a share of the cell size.
        seed: of the jitter; each case has its own random numbers.
    """
    if points < 3:
        raise ValueError(f"A mesh of {points} x {points} points has none inside; take at least 3.")
    x, y = np.meshgrid(np.linspace(0, 1, points), np.linspace(0, 1, points))
    positions = np.stack([x.reshape(-1), y.reshape(-1)], axis=1)
    inside = np.all((positions > 0) & (positions < 1), axis=1)
    if jitter:
        # Few digits pack into half of the space.
        positions = _jittered(positions, inside, jitter / (points - 1), name, seed, bits=16)
    first = np.arange(points - 1)[None, :] + points * np.arange(points - 1)[:, None]
    quads = np.stack([first, first + 1, first + points + 1, first + points], axis=-1).reshape(-1, 4)
    inlet = positions[:, 0] == 0
    side = (positions[:, 0] == 1) | (positions[:, 1] == 0) | (positions[:, 1] == 1)
    return Mesh.from_arrays(positions, quads, patches={"inlet": inlet, "side": side})


def advection_diffusion_case(
    mesh: Mesh,
    velocity: float,
    diffusivity: float,
    inlet_temperature: float,
    targets: Mapping[str, Any] | None = None,
    name: str = "",
) -> Case:
    """The problem on a mesh with the patches inlet and side, from a cold start."""
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet_temperature}},
        neumann={"T": {"side": 0.0}},
        parameters={"velocity": (velocity, *[0.0] * (mesh.space - 1)), "diffusivity": diffusivity},
        features={"inlet_distance": mesh.distance_to("inlet")},
        targets=targets or {},
        name=name,
    )


def heated_at_inlet(mesh: Mesh, velocity: Sequence[float], diffusivity: float, inlet_temperature: float) -> Case:
    """The same problem on any mesh with the patch inlet, in a flow of any direction."""
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet_temperature}},
        neumann={"T": 0.0},
        parameters={"velocity": tuple(velocity), "diffusivity": diffusivity},
    )
