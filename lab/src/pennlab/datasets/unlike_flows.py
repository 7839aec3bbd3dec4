"""Flows unlike those of training: other people's meshes and kinds of flow, to calibrate expected errors with.

Rectangles of quads, graded or not, are joined to channels, steps, chambers and cavities, bent, and cut into triangles
in the ways of simple mesh makers; rings of quads surround bodies in open flow. Each flow has a few hundred points. Its
reference is the scheme's own solution on cells split three times (twice or once where that would be too many),
extrapolated with that on cells twice as large, at the same points: no finer geometry, so only the error of the
discretisation is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from pennpde.case import Case
from pennpde.case.conditions import TotalPressure
from pennpde.case.moments import FOREVER
from pennpde.flow.march import FlowDivergedError
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh
from pennpde.penn import STEADY
from pennpde.prediction import predict
from pennpde.train.calibrate import Known

PER_KIND = 16
_POINTS, _POINTS_STARTED = (150, 1_600), (150, 700)
_MOST_POINTS, _MOST_OF_NEWTON = 30_000, 150_000
"""Of a reference on cells that are split three times, and twice."""
_TIMES = 0.5, 2.0
_ENDS = "inlet", "outlet"

Random = np.random.Generator
Line = Float[np.ndarray, "_"]
Inside = Callable[[np.ndarray, np.ndarray], Bool[np.ndarray, " points"]]


def names() -> list[str]:
    """The kinds in turn: any first part of the list has all of them."""
    return [f"{kind}_{number:02d}" for number in range(PER_KIND) for kind in KINDS]


def kind_of(name: str) -> str:
    return name.rpartition("_")[0]


def draw(name: str) -> Case:
    """The flow of a name."""
    kind, _, number = name.rpartition("_")
    random = np.random.default_rng([int(number), *kind.encode()])
    fewest, most = _POINTS if kind != "started" else _POINTS_STARTED
    while True:
        try:
            case = KINDS[kind](random, name)
        except ValueError:
            continue  # a bend that meets itself
        if fewest <= case.number_of_points <= most:
            return case


def times_of(name: str) -> tuple[float, ...]:
    return _TIMES if kind_of(name) == "started" else (STEADY,)


def solve_reference(case: Case, times: tuple[float, ...]) -> dict[str, np.ndarray] | None:
    """Velocity and pressure at the times, extrapolated from the finest cells that are affordable and twice larger ones.

    None where there is no steady state.
    """
    number = case.number_of_points
    splits = 3 if number * 64 <= _MOST_POINTS and STEADY in times else 2 if number * 16 <= _MOST_OF_NEWTON else 1
    fields: list[dict[str, np.ndarray]] = []
    for each in (splits, splits - 1):
        try:
            found = predict(FlowScheme(splits=each), case, times=times)
        except FlowDivergedError:
            return None
        if STEADY in times and not found.certificate.converged:
            return None
        shapes = {"u": (case.number_of_points, 2, len(times)), "p": (case.number_of_points, len(times))}
        fields.append({name: found.fields[name].double().numpy().reshape(shape) for name, shape in shapes.items()})
    # The scheme is of second order.
    return {name: (fine + (fine - fields[1][name]) / 3).astype(np.float32) for name, fine in fields[0].items()}


def read(folder: Path, name: str) -> Known | None:
    """A flow with its reference, which is solved for and kept where it is not there; None where there is none."""
    case, times, path = draw(name), times_of(name), folder / f"{name}.npz"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, allow_pickle=False, **(solve_reference(case, times) or {}))
    with np.load(path) as content:
        if "u" not in content:
            return None
        fields = {unknown: torch.from_numpy(content[unknown]) for unknown in ("u", "p")}
    truth = {
        FOREVER if time == STEADY else time: {
            unknown: values[..., place].to(case.initial[unknown]) for unknown, values in fields.items()
        }
        for place, time in enumerate(times)
    }
    return Known(case, kind_of(name), truth)


# Meshes


def _even(start: float, end: float, size: float) -> Line:
    return np.linspace(start, end, 1 + max(1, round((end - start) / size)))


def _layered(start: float, end: float, smallest: float, growth: float, largest: float) -> Line:
    """Spacing that grows from both ends."""
    half, widths = 0.5 * (end - start), [smallest]
    while widths[-1] * growth < largest and sum(widths) + widths[-1] * growth < 0.9 * half:
        widths.append(widths[-1] * growth)
    near = np.concatenate([[0.0], np.cumsum(widths)])
    middle = _even(near[-1], 2 * half - near[-1], largest)
    return start + np.concatenate([near, middle[1:-1], 2 * half - near[::-1]])


def _growing(start: float, end: float, size: float, growth: float) -> Line:
    """Spacing that grows from the start."""
    number = max(2, math.ceil(math.log1p((abs(end - start) / size) * (growth - 1)) / math.log(growth)))
    line = np.cumsum(np.concatenate([[0.0], growth ** np.arange(number)]))
    return start + (end - start) * line / line[-1]


def _joined(
    rectangles: list[tuple[Line, Line]],
) -> tuple[Float[np.ndarray, "points 2"], Int[np.ndarray, "quads 4"]]:
    """Quads of rectangles that meet at common sides."""
    points, quads, number = [], [], 0
    for x, y in rectangles:
        high = len(y)
        first = number + (np.arange(len(x) - 1)[:, None] * high + np.arange(high - 1)).ravel()
        quads.append(np.stack([first, first + high, first + high + 1, first + 1], axis=1))
        points.append(np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2))
        number += len(points[-1])
    merged, places = np.unique(np.concatenate(points).round(12), axis=0, return_inverse=True)
    return merged, places.ravel()[np.concatenate(quads)]


def _cut(
    random: Random, points: np.ndarray, quads: np.ndarray
) -> tuple[np.ndarray, dict[str, Int[np.ndarray, "cells corners"]]]:
    """Quads as they are, or triangles: all diagonals alike, turned in turn, or four around each centre."""
    way = random.choice(["quads", "alike", "turned", "crossed"], p=[0.4, 0.2, 0.2, 0.2])
    a, b, c, d = quads.T
    if way == "quads":
        return points, {"quad": quads}
    if way == "crossed":
        centre = len(points) + np.arange(len(quads))
        around = [np.stack([one, other, centre], axis=1) for one, other in ((a, b), (b, c), (c, d), (d, a))]
        return np.concatenate([points, points[quads].mean(axis=1)]), {"triangle": np.concatenate(around)}
    turned = np.zeros(len(quads), bool) if way == "alike" else np.arange(len(quads)) % 2 == 1
    falling = [np.stack(each, axis=1)[~turned] for each in ((a, b, c), (a, c, d))]
    rising = [np.stack(each, axis=1)[turned] for each in ((a, b, d), (b, c, d))]
    return points, {"triangle": np.concatenate(falling + rising)}


def _case(
    random: Random,
    name: str,
    rectangles: list[tuple[Line, Line]],
    reynolds: float,
    *,
    moved: Callable[[np.ndarray], np.ndarray] | None = None,
    open_top: bool = False,
    uniform: bool | None = None,
) -> Case:
    """Flow from the leftmost side to the rightmost one.

    Args:
        random: Draws cells and profile.
        name: Of the case.
        rectangles: Of quads.
        reynolds: With the mean inlet velocity, one, and the inlet's width.
        moved: Where points go; the inlet stays.
        open_top: Whether the top is open, too.
        uniform: Whether the inlet has no profile; drawn by default.
    """
    points, cells = _cut(random, *_joined(rectangles))
    low, high = points.min(axis=0), points.max(axis=0)
    near = 1e-9 * (high - low).max()
    at_inlet, at_outlet = points[:, 0] < low[0] + near, points[:, 0] > high[0] - near
    top = points[:, 1] > high[1] - near
    opened = at_outlet | (top if open_top else False)
    mesh = Mesh.from_arrays(points if moved is None else moved(points), cells)
    height = points[at_inlet, 1]
    start, width = height.min(), np.ptp(height)
    patches = _by_sides(mesh, {"inlet": at_inlet, "outlet": at_outlet} | ({"top": top} if open_top else {}))
    share = (points[:, 1] - start) / width
    flat = random.random() < 0.3 if uniform is None else uniform
    profile = np.ones(len(points)) if flat else 6 * share * (1 - share)
    pressure = {"outlet": 0.0} | ({"top": 0.0} if open_top else {})
    assert opened.any()
    return Case(
        mesh.with_patches(patches),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"inlet": torch.from_numpy(np.stack([profile, 0 * profile], axis=1)), "walls": 0.0},
            "p": pressure,
        },
        parameters={"viscosity": float(width / reynolds)},
        name=name,
    )


def _by_sides(mesh: Mesh, marked: Mapping[str, Bool[np.ndarray, " points"]]) -> dict[str, Bool[np.ndarray, " points"]]:
    """Points of each side, whose ends belong to the walls, too."""
    sides = mesh.facets.connectivity.reshape(-1, 2)
    taken = np.logical_or.reduce([mask[sides].all(axis=1) for mask in marked.values()])
    walls = np.isin(np.arange(mesh.number_of_points), sides[~taken])
    return {**{name: np.asarray(mask) for name, mask in marked.items()}, "walls": walls}


def _between(random: Random, low: float, high: float) -> float:
    """Evenly in the logarithm."""
    return float(math.exp(random.uniform(math.log(low), math.log(high))))


# Kinds


def _layers(random: Random, name: str) -> Case:
    """A step, or a channel, with thin cells at the walls."""
    size, growth = random.uniform(0.1, 0.16), random.uniform(1.15, 1.5)
    thin = size / _between(random, 3, 300)
    high, low = _layered(0.0, 1.0, thin, growth, size), _layered(-1.0, 0.0, thin, growth, size)
    reynolds = _between(random, 30, 400)
    behind, before = _growing(0.0, random.uniform(6, 14), 0.7 * size, 1.05), _even(-1.5, 0.0, 1.5 * size)
    rectangles = [(before, high), (behind, high)]
    if random.random() < 0.7:
        rectangles.append((behind, low))
    return _case(random, name, rectangles, reynolds)


def _long(random: Random, name: str) -> Case:
    """A long duct of cells four to eight times as long as high."""
    across, ratio = int(random.integers(8, 17)), random.uniform(3, 8)
    length = random.uniform(10, 30)
    x, y = _even(0.0, length, max(ratio / across, length / 50)), _even(0.0, 1.0, 1 / across)
    return _case(random, name, [(x, y)], _between(random, 20, 1000))


def _cavity(random: Random, name: str) -> Case:
    cells, depth = int(random.integers(14, 26)), random.uniform(0.6, 1.8)
    graded = random.random() < 0.5
    size = 1 / cells
    lines = [_layered(0.0, end, size / 5, 1.3, 1.3 * size) if graded else _even(0.0, end, size) for end in (1.0, depth)]
    points, cells_of = _cut(random, *_joined([(lines[0], lines[1])]))
    mesh = Mesh.from_arrays(points, cells_of)
    patches = _by_sides(mesh, {"lid": points[:, 1] > depth - 1e-9})
    patches["corner"] = np.linalg.norm(points, axis=1) < 1e-9
    return Case(
        mesh.with_patches(patches),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"lid": (1.0, 0.0), "walls": 0.0}, "p": {"corner": 0.0}},
        parameters={"viscosity": 1 / _between(random, 50, 4000)},
        name=name,
    )


def _open_flow(random: Random, name: str) -> Case:
    """An ellipse in open flow, in rings of quads."""
    around, outward = int(random.integers(24, 41)), int(random.integers(14, 23))
    far, slender = random.uniform(10, 30), random.uniform(0.4, 1.6)
    radii = 0.5 * (2 * far) ** np.linspace(0.0, 1.0, outward + 1)
    angles = 2 * np.pi * np.arange(around) / around
    points = radii[:, None, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # Ellipses near the body, circles far away.
    points[..., 1] *= 1 + (slender - 1) * ((far - radii) / (far - 0.5))[:, None]
    points = points.reshape(-1, 2)
    first = np.arange(outward)[:, None] * around + np.arange(around)
    beside = np.arange(outward)[:, None] * around + (np.arange(around) + 1) % around
    quads = np.stack([first, first + around, beside + around, beside], axis=-1).reshape(-1, 4)
    points, cells = _cut(random, points, quads)
    mesh = Mesh.from_arrays(points, cells)
    rim = np.linalg.norm(points, axis=1) > far - 1e-6
    patches = _by_sides(mesh, {"rim": rim})
    body = patches.pop("walls") & ~rim
    ends = mesh.facets.connectivity.reshape(-1, 2)
    out = rim[ends].all(axis=1) & (points[ends, 0].mean(axis=1) > 0.3 * far)
    inflow = rim[ends].all(axis=1) & ~out
    number = np.arange(len(points))
    patches = {"body": body, "in": np.isin(number, ends[inflow]), "out": np.isin(number, ends[out])}
    return Case(
        mesh.with_patches(patches),
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet={"u": {"body": 0.0, "in": (1.0, 0.0)}, "p": {"out": 0.0}},
        parameters={"viscosity": 1 / _between(random, 5, 40)},
        name=name,
    )


def _bent(random: Random, name: str) -> Case:
    """A channel around a bend, in polar quads."""
    radius, angle = random.uniform(0.3, 2.0), random.uniform(0.5, 3.0)
    before, after = 2.0, random.uniform(3, 6)
    length = (radius + 0.5) * angle
    size = random.uniform(0.09, 0.16)
    y = _layered(0.0, 1.0, size / _between(random, 1.5, 20), 1.3, size) if random.random() < 0.5 else _even(0, 1, size)
    x = _even(-before, length + after, random.uniform(1, 3) * size)
    x = _even(-before, length + after, max(x[1] - x[0], (before + length + after) / 60))

    def moved(points: np.ndarray) -> np.ndarray:
        along, across = points.T
        turned = np.clip(along, 0.0, length) / (radius + 0.5)
        rest = np.maximum(along - length, 0.0) + np.minimum(along, 0.0)
        away = radius + 1.0 - across  # from the centre, which is above
        end = np.where(along > length, angle, 0.0)
        return np.stack(
            [away * np.sin(turned) + rest * np.cos(end), radius + 1.0 - away * np.cos(turned) + rest * np.sin(end)],
            axis=1,
        )

    return _case(random, name, [(x, y)], _between(random, 30, 500), moved=moved)


def _curved(random: Random, name: str) -> Case:
    """A channel whose walls swing, swell or narrow."""
    length, size = random.uniform(6, 12), random.uniform(0.08, 0.14)
    swing, swell = random.uniform(-0.8, 0.8), random.uniform(-0.4, 0.6)
    thin = size / _between(random, 1.5, 60)
    y = _layered(0.0, 1.0, thin, random.uniform(1.15, 1.4), size)
    x = _even(-1.0, length, max(1.5 * size, (length + 1) / 60))

    def moved(points: np.ndarray) -> np.ndarray:
        along, across = points.T
        bump = np.where((along > 0) & (along < 3), np.sin(np.pi * along / 3) ** 2, 0.0)
        shift = swing * (1 - np.cos(np.pi * np.clip(along / 3, 0, 1))) / 2
        return np.stack([along, shift + (across - 0.5) * (1 + swell * bump)], axis=1)

    return _case(random, name, [(x, y)], _between(random, 50, 600), moved=moved)


def _few_cells(random: Random, name: str) -> Case:
    """A chamber whose inlet is three to five cells wide."""
    across = int(random.integers(3, 6))
    size, wide = 1 / across, random.uniform(1.0, 3.0)
    stretched = random.uniform(1, 2.5) * size
    above, below = _even(1.0, 1.0 + wide, size), _even(-wide * random.random(), 0.0, size)
    inlet, length = _even(0.0, 1.0, size), random.uniform(4, 10)
    inside = _even(0.0, length, stretched)
    rectangles = [(_even(-1.0, 0.0, stretched), inlet), (inside, inlet), (inside, above)]
    if len(below) > 2:
        rectangles.append((inside, below))
    return _case(random, name, rectangles, _between(random, 20, 300))


def _plate(random: Random, name: str) -> Case:
    """Flow along a plate, open above: a boundary layer."""
    thin, growth = _between(random, 0.002, 0.02), random.uniform(1.15, 1.4)
    y = _growing(0.0, 1.0, thin, growth)
    x = _growing(0.0, random.uniform(1, 3), random.uniform(0.02, 0.06), 1.08)
    return _case(random, name, [(x, y)], _between(random, 200, 5000), open_top=True, uniform=True)


def _high(random: Random, name: str) -> Case:
    """Steps and bumps at high steady Reynolds numbers."""
    size, growth = random.uniform(0.08, 0.12), random.uniform(1.0, 1.04)
    high = _even(0.0, 1.0, size)
    deep = random.uniform(0.3, 1.0)
    low = _even(-deep, 0.0, size)
    behind = _growing(0.0, random.uniform(10, 18), 1.5 * size, 1.001 + growth - 1)
    return _case(random, name, [(_even(-1.0, 0.0, 1.5 * size), high), (behind, high), (behind, low)],
                 _between(random, 150, 400), uniform=False)  # fmt: skip


def _driven(random: Random, name: str) -> Case:
    """A duct through which a difference of pressure drives the fluid: a static one, or the total one of a reservoir."""
    duct = random.choice(np.array([_layers, _bent, _curved, _few_cells, _long], object))(random, name)
    length = float(np.ptp(duct.mesh.points[:, 0].numpy()))
    viscosity = float(duct.parameters["viscosity"])
    # What a straight channel needs for a mean speed of one, and what accelerates to that.
    static = min(12.0 * viscosity * length * random.uniform(0.3, 1.0), 1.0)
    total = 0.5 + static
    inlet, outlet = (float(duct.mesh.facet_areas[duct.mesh.patch(each).facets].norm(dim=1).sum()) for each in _ENDS)
    # Where the pressure rises behind the inlet, a static one there may have no steady state.
    by_total = random.random() < 0.6 or outlet > 1.1 * inlet
    return Case(
        duct.mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"walls": 0.0}, "p": {"outlet": 0.0} | ({} if by_total else {"inlet": static})},
        conditions={TotalPressure: {"p": {"inlet": total}}} if by_total else {},
        parameters={"viscosity": viscosity},
        name=name,
    )


def _slots(random: Random, name: str) -> Case:
    """A chamber with jets and outlets of one to three facets, which cells have to be split for."""
    across, along = (int(random.integers(12, 22)) for _ in range(2))
    x, y = np.linspace(0.0, random.uniform(0.8, 2.0), along + 1), np.linspace(0.0, 1.0, across + 1)
    points, cells = _cut(random, *_joined([(x, y)]))
    mesh = Mesh.from_arrays(points, cells)
    sides = mesh.facets.connectivity.reshape(-1, 2)
    left, right = (np.flatnonzero((points[sides, 0] == end).all(axis=1)) for end in (x[0], x[-1]))
    left, right = (each[np.argsort(points[sides[each], 1].mean(axis=1))] for each in (left, right))
    jet, outlet = int(random.integers(1, 4)), int(random.integers(1, across + 1))
    first, second = int(random.integers(0, across - jet + 1)), int(random.integers(0, across - outlet + 1))
    inlets, outlets = left[first : first + jet], right[second : second + outlet]
    walls = np.setdiff1d(np.arange(len(sides)), np.concatenate([inlets, outlets]))
    facets = {"walls": sides[walls], "inlet": sides[inlets], "outlet": sides[outlets]}
    return Case(
        mesh.with_patch_facets(facets),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "walls": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": jet / across / _between(random, 5, 150)},
        name=name,
    )


def _started(random: Random, name: str) -> Case:
    """Any of them on the way."""
    return random.choice(np.array([_layers, _bent, _curved, _few_cells, _long, _cavity], object))(random, name)


KINDS: Mapping[str, Callable[[Random, str], Case]] = {
    "layers": _layers,
    "long": _long,
    "lid": _cavity,
    "open": _open_flow,
    "bent": _bent,
    "curved": _curved,
    "few": _few_cells,
    "plate": _plate,
    "high": _high,
    "started": _started,
    "driven": _driven,
    "slots": _slots,
}
