"""Cases that nothing was tuned for: odd meshes, corners, openings and conditions, each on a mesh of any fineness.

`other_cases.py` judges `flow` by them. Each function takes how many times finer the cells are than those of the trial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy.spatial import Delaunay

from pennpde.case import Case, Table
from pennpde.case.conditions import TotalPressure
from pennpde.mesh import Mesh

Points = np.ndarray
Patches = Mapping[str, str]


def _grid(
    width: float, height: float, along: int, across: int, moved: Callable[[Points], Points] | None = None
) -> Mesh:
    """Quads of a rectangle from the origin; patches left, right, bottom and top, before points are moved."""
    axes = [np.linspace(0.0, length, number + 1) for length, number in ((width, along), (height, across))]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    number = np.arange(len(points)).reshape(along + 1, across + 1)
    corners = [number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]]
    quads = np.stack([each.ravel() for each in corners], axis=1)
    return _with_sides(points, {"quad": quads}, width, height, moved)


def _with_sides(
    points: Points,
    cells: Mapping[str, np.ndarray],
    width: float,
    height: float,
    moved: Callable[[Points], Points] | None = None,
) -> Mesh:
    mesh = Mesh.from_arrays(points if moved is None else moved(points), cells)
    ends = mesh.facets.connectivity.reshape(-1, 2)
    x, y = points[ends].transpose(2, 0, 1)
    sides = {"left": x == 0, "right": x == width, "bottom": y == 0, "top": y == height}
    sides = {name: ends[mask.all(axis=1)] for name, mask in sides.items()}
    return mesh.with_patch_facets({name: facets for name, facets in sides.items() if len(facets)})


def _case(mesh: Mesh, velocity: Mapping, pressure: Mapping, viscosity: float, **others: object) -> Case:
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": velocity, "p": pressure},
        parameters={"viscosity": viscosity},
        **others,  # pyright: ignore[reportArgumentType]
    )


def random_triangles(fine: int) -> Case:
    """A channel of triangles between random points, with a uniform inlet."""
    random, number, width = np.random.default_rng(3), 10 * fine, 5.0
    axes = np.linspace(0.0, width, round(width * number) + 1), np.linspace(0.0, 1.0, number + 1)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = ((points > 0) & (points < (width, 1.0))).all(axis=1)
    points[inside] += random.uniform(-0.35, 0.35, (int(inside.sum()), 2)) / number
    mesh = _with_sides(points, {"triangle": Delaunay(points).simplices}, width, 1.0)
    return _case(mesh, {"left": (1.0, 0.0), "bottom": 0.0, "top": 0.0}, {"right": 0.0}, 1 / 150)


def half_a_channel(fine: int) -> Case:
    """The lower half of a developing channel flow: a line of symmetry above."""
    mesh = _grid(6.0, 0.5, 60 * fine, 8 * fine)
    return _case(mesh, {"left": (1.0, 0.0), "bottom": 0.0}, {"right": 0.0}, 1 / 100, slip={"u": "top"})


def skewed_cavity(fine: int) -> Case:
    """A parallelogram of 45 degrees under a lid, Re 500 (Demirdzic, Lilek & Peric)."""
    mesh = _grid(1.0, 1.0, 24 * fine, 24 * fine, lambda at: at @ np.array([[1.0, 0.0], [0.7071, 0.7071]]))
    return _case(mesh, {"left": 0.0, "right": 0.0, "bottom": 0.0, "top": (1.0, 0.0)}, {}, 1 / 500)


def trapezium_diffuser(fine: int) -> Case:
    """A channel that widens by half over its length, in sheared quads."""
    mesh = _grid(
        8.0, 1.0, 64 * fine, 10 * fine, lambda at: at * np.stack([1 + 0 * at[:, 0], 1 + at[:, 0] / 16], axis=1)
    )
    return _case(mesh, {"left": (1.0, 0.0), "bottom": 0.0, "top": 0.0}, {"right": 0.0}, 1 / 120)


def sudden_contraction(fine: int) -> Case:
    mesh = _blocks([(0, 3, 0, 2), (3, 8, 0.5, 1.5)], 8 * fine)
    return _case(mesh, {"inlet": (1.0, 0.0), "walls": 0.0}, {"outlet": 0.0}, 1 / 50)


def two_outlets(fine: int) -> Case:
    """A T whose branches end at different pressures."""
    mesh = _blocks([(0, 6, 0, 1), (2, 3, 1, 4)], 10 * fine)
    top = mesh.facets.connectivity.reshape(-1, 2)
    heights = mesh.points.numpy()[top, 1]
    mesh = mesh.with_patch_facets(
        {"branch": top[(heights == 4).all(axis=1)], "walls": _less(mesh, "walls", heights == 4)}
    )
    return _case(mesh, {"inlet": (1.0, 0.0), "walls": 0.0}, {"outlet": 0.0, "branch": -0.3}, 1 / 80)


def _less(mesh: Mesh, patch: str, mask: np.ndarray) -> np.ndarray:
    ends = mesh.facets.connectivity.reshape(-1, 2)
    kept = [facet for facet in mesh.patch(patch).facets if not mask[facet].all()]
    return ends[kept]


def _blocks(rectangles: list[tuple[float, float, float, float]], number: int) -> Mesh:
    """Quads of rectangles (x0, x1, y0, y1), so many in a length of one; inlet at the left end, outlet at the right."""
    unique: dict[tuple[int, int], int] = {}
    quads = []
    for x0, x1, y0, y1 in rectangles:
        for i in range(round(x0 * number), round(x1 * number)):
            for j in range(round(y0 * number), round(y1 * number)):
                corners = (i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)
                quads.append([unique.setdefault(each, len(unique)) for each in corners])
    points = np.array(list(unique), float) / number
    mesh = Mesh.from_arrays(points, {"quad": np.array(quads)})
    ends = mesh.facets.connectivity.reshape(-1, 2)
    x = points[ends, 0]
    inlet, outlet = (x == points[:, 0].min()).all(axis=1), (x == points[:, 0].max()).all(axis=1)
    return mesh.with_patch_facets({"walls": ends[~inlet & ~outlet], "inlet": ends[inlet], "outlet": ends[outlet]})


def reservoir_and_nozzle(fine: int) -> Case:
    """A total pressure drives fluid through a nozzle."""

    def narrowed(at: Points) -> Points:
        share = np.clip(at[:, 0] / 2 - 0.5, 0, 1)
        return np.stack([at[:, 0], 0.5 + (at[:, 1] - 0.5) * (1 - 0.4 * share**2 * (3 - 2 * share))], axis=1)

    mesh = _grid(5.0, 1.0, 50 * fine, 12 * fine, narrowed)
    total = {TotalPressure: {"p": {"left": 1.5}}}
    return _case(mesh, {"bottom": 0.0, "top": 0.0}, {"right": 0.0}, 1 / 100, conditions=total)


def jet_of_one_facet(fine: int) -> Case:
    mesh = _grid(2.0, 1.0, 24 * fine, 13 * fine)
    ends = mesh.facets.connectivity.reshape(-1, 2)
    x, y = mesh.points.numpy()[ends].transpose(2, 0, 1)
    jet = (x == 0).all(axis=1) & (np.abs(y.mean(axis=1) - 0.5) < 0.5 / 13)
    left = (x == 0).all(axis=1) & ~jet
    mesh = mesh.with_patch_facets({"left": ends[left], "jet": ends[jet]})
    held = {"left": 0.0, "bottom": 0.0, "top": 0.0, "jet": (1.0, 0.0)}
    return _case(mesh, held, {"right": 0.0}, 1 / 400)


def square_cylinder(fine: int) -> Case:
    """A square in a channel four times as wide, Re 30."""
    blocks = [(0, 3, 0, 4), (3, 4, 0, 1.5), (3, 4, 2.5, 4), (4, 12, 0, 4)]
    mesh = _blocks(blocks, 6 * fine)
    y = mesh.points.numpy()[:, 1]
    profile = torch.from_numpy(np.stack([6 * y / 4 * (1 - y / 4), 0 * y], axis=1))
    return _case(mesh, {"inlet": profile, "walls": 0.0}, {"outlet": 0.0}, 1 / 30)


def annulus(fine: int) -> Case:
    """Between cylinders, of which the inner one turns: Couette's flow."""
    around, outward = 60 * fine, 10 * fine
    radii, angles = np.linspace(1.0, 2.0, outward + 1), 2 * np.pi * np.arange(around) / around
    points = (radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)).reshape(-1, 2)
    first = np.arange(outward)[:, None] * around + np.arange(around)
    beside = np.arange(outward)[:, None] * around + (np.arange(around) + 1) % around
    quads = np.stack([first, first + around, beside + around, beside], axis=-1).reshape(-1, 4)
    mesh = Mesh.from_arrays(points, {"quad": quads})
    inner = np.isclose(np.linalg.norm(points, axis=1), 1.0)
    outer = np.isclose(np.linalg.norm(points, axis=1), 2.0)
    mesh = mesh.with_patches({"inner": inner, "outer": outer, "level": np.arange(len(points)) == len(points) - 1})
    turning = torch.from_numpy(np.stack([-points[:, 1], points[:, 0]], axis=1))
    return _case(mesh, {"inner": turning, "outer": 0.0}, {"level": 0.0}, 1 / 50)


def ramp(fine: int) -> Case:
    """A step whose inlet speeds up and slows down again."""
    mesh = _blocks([(0, 2, 1, 2), (2, 9, 0, 2)], 9 * fine)
    inlet = Table([(0.0, (0.0, 0.0)), (1.0, (1.5, 0.0)), (3.0, (0.5, 0.0))], outside="clamp")
    return _case(mesh, {"inlet": inlet, "walls": 0.0}, {"outlet": 0.0}, 1 / 100)


def moving_wall_and_inlet(fine: int) -> Case:
    """Couette's and Poiseuille's flow together, started."""
    mesh = _grid(4.0, 1.0, 40 * fine, 10 * fine)
    return _case(mesh, {"left": (1.0, 0.0), "bottom": 0.0, "top": (1.5, 0.0)}, {"right": 0.0}, 1 / 200)


STEADY_CASES = {
    "random triangles": random_triangles,
    "half a channel, symmetry": half_a_channel,
    "skewed cavity, Re 500": skewed_cavity,
    "diffuser of sheared quads": trapezium_diffuser,
    "sudden contraction": sudden_contraction,
    "T with two outlet pressures": two_outlets,
    "reservoir and nozzle": reservoir_and_nozzle,
    "jet of one facet": jet_of_one_facet,
    "square cylinder, Re 30": square_cylinder,
    "turning annulus": annulus,
}
STARTED_CASES = {"step with a ramp": ramp, "channel with a moving wall": moving_wall_and_inlet}
