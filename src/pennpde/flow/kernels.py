"""The plain step in compiled loops, for one flow on a CPU: the formulas of `scheme` and `krylov`, without a tensor.

At a few thousand points a step of PyTorch is hundreds of calls around little arithmetic; here it is three. Numba
compiles the loops on their first use and keeps the machine code on disk. Import this module only where a step is taken:
Numba takes a while to load.

Points come first here, and the components of a value lie next to each other: they are read together. The loops are
compiled for the plane and for space apart: `axes` has a number for each axis, and a compiler knows how many they are.
"""

# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from pennpde.flow.curvature_flux import MEAN
from pennpde.flow.march import FASTER, JUMP, LARGEST, NEARLY_FASTEST, SHORTEST
from pennpde.flow.step import CROSSED, DIFFUSED, PASSED, UPWIND

# Numba knows the types, so a checker of shapes must not wrap these functions (`no_type_check`).
# Sums may be taken in any order, so that a processor adds several numbers at a time; NaN and infinity stay themselves.
_compiled = njit(cache=True, fastmath={"reassoc", "contract", "arcp", "nsz"}, error_model="numpy", nogil=True)


class Cells(NamedTuple):
    """What `DualCells` has, and the places in a sparse matrix of each edge, forth and back."""

    axes: tuple[float, ...]
    areas: Float[np.ndarray, " points"]
    crossings: Float[np.ndarray, " points"]
    first: Int[np.ndarray, " edges"]
    second: Int[np.ndarray, " edges"]
    faces: Float[np.ndarray, "edges space"]
    conductances: Float[np.ndarray, " edges"]
    conducting: Float[np.ndarray, " points"]
    offsets: Float[np.ndarray, "edges space"]
    rows: Int[np.ndarray, " starts"]
    columns: Int[np.ndarray, " entries"]
    gradient: Float[np.ndarray, "entries space"]
    diagonal: Int[np.ndarray, " points"]
    forth: Int[np.ndarray, " edges"]
    back: Int[np.ndarray, " edges"]
    mirrored: Int[np.ndarray, " entries"]
    heights: Float[np.ndarray, " edges"]
    side_cell: Int[np.ndarray, " sides"]
    side_edge: Int[np.ndarray, " sides"]
    side_means: Float[np.ndarray, " sides_or_none"]
    face_cell: Int[np.ndarray, " shares"]
    face_edge: Int[np.ndarray, " shares"]
    face_shares: Float[np.ndarray, "shares space"]
    number_of_cells: int


class Flow(NamedTuple):
    """What `Problem` has; arrays of nothing where it has None."""

    axes: tuple[float, ...]
    viscosity: float
    free: Float[np.ndarray, " points"]
    velocity: Float[np.ndarray, "space points"]
    slip: Float[np.ndarray, "space points_or_none"]
    slip_too: Float[np.ndarray, "space points_or_none"]
    pressure: Float[np.ndarray, " points"]
    pressure_free: Float[np.ndarray, " points"]
    inflow: Float[np.ndarray, " points"]
    facet_shift: Float[np.ndarray, "space edges"]
    open: Float[np.ndarray, " points"]
    static: Float[np.ndarray, " points_or_none"]
    closed: bool
    prescribed: Int[np.ndarray, " entries"]
    """Entries of a matrix that couple with a prescribed velocity."""
    rise: Float[np.ndarray, " edges_or_none"]
    jump_slope: Float[np.ndarray, "space points_or_none"]


class Expected(NamedTuple):
    """Velocity and fluxes continued to the end of a step, and what the difference formula (BDF2) takes of the past."""

    velocity: Float[np.ndarray, "points space"]
    past: Float[np.ndarray, "points space"]
    fluxes: Float[np.ndarray, " edges"]
    past_fluxes: Float[np.ndarray, " edges_or_none"]


class Going(NamedTuple):
    """A flow on its way, see `march.march`; before the first step what was before it is itself."""

    velocity: Float[np.ndarray, "space points"]
    pressure: Float[np.ndarray, " points"]
    fluxes: Float[np.ndarray, " edges"]
    before: Float[np.ndarray, "space points"]
    fluxes_before: Float[np.ndarray, " edges"]
    is_first: bool
    now: float
    step: float
    allowed: float
    stretch: float
    fastest: float
    change: float
    left: float
    iterations: int
    lost: bool


class Pace(NamedTuple):
    """`march.Pace`, with what else decides about a step."""

    courant: float
    first: float
    growth: float
    longest: float
    calm: float
    stretch: float
    tolerance: float
    most: int


@_compiled
@no_type_check
def marched(cells, flow, factors, pace, going, time, steps):
    """At most so many steps towards a time: `march.march` in one piece, with factors of the pressure's equation."""
    for _ in range(steps):
        if going.lost or going.now >= time - 1e-9 * max(1.0, time):
            break
        by_courant = pace.courant / max(fastest_rate(cells, going.fluxes), 1e-12)
        limit = min(going.stretch * by_courant, pace.longest, going.allowed)
        step = (time - going.now) / np.ceil((time - going.now) / limit - 1e-9)
        ratio, leading = 0.0, 1.0
        if going.is_first:
            points_first = np.ascontiguousarray(going.velocity.T)
            expected = Expected(points_first, points_first, going.fluxes, np.empty(0))
        else:
            ratio = step / going.step
            leading = (1 + 2 * ratio) / (1 + ratio)
            expected = continued(cells.axes, going.velocity, going.before, going.fluxes, going.fluxes_before, ratio)
        velocity, pressure, fluxes, left, taken = going.velocity, going.pressure, going.fluxes, 0.0, 0
        for _ in range(2 if going.is_first else 1):
            found, through, wanted, left, iterations = predicted(
                cells, flow, expected, pressure, step, leading, pace.tolerance, pace.most
            )
            change = solved(factors, wanted)
            velocity, pressure, fluxes = projected(cells, flow, found, through, pressure, change, step / leading)
            expected = Expected(expected.velocity, expected.past, fluxes, expected.past_fluxes)
            taken += iterations
        taken += going.iterations
        faster = 0.0
        for c in range(len(cells.axes)):
            for i in range(velocity.shape[1]):
                faster = faster if abs(velocity[c, i]) <= faster else abs(velocity[c, i])  # NaN is taken
        if not faster <= JUMP * (1.0 + going.fastest) and step > SHORTEST * pace.first:
            going = Going(
                going.velocity, going.pressure, going.fluxes, going.before, going.fluxes_before, going.is_first,
                going.now, going.step, 0.5 * step, going.stretch, going.fastest, going.change, left, taken, False,
            )  # fmt: skip
            continue
        moved, surprise = changes(cells.areas, velocity, going.velocity, going.before, ratio)
        longer = 0.0 if going.is_first else step * np.sqrt(pace.calm / max(surprise, 1e-12))
        stretch = min(max(longer / by_courant, 1.0), pace.stretch)
        allowed = pace.growth * max(step, min(going.allowed, limit))
        going = Going(
            velocity, pressure, fluxes, going.velocity, going.fluxes, False, going.now + step, step, allowed, stretch,
            faster, moved, left, taken, not faster <= LARGEST,
        )  # fmt: skip
    return going


@_compiled
@no_type_check
def fastest_rate(cells, fluxes):
    """How often per time nearly the fastest cells are exchanged, see `march.step_limit`."""
    rates = exchange_rates(cells, fluxes)
    nearly = max(1, int(NEARLY_FASTEST * len(rates))) - 1
    fastest = np.partition(rates, nearly)[nearly]
    whole = slower = 0.0
    for i in range(len(rates)):
        whole += cells.areas[i]
        slower += cells.areas[i] if rates[i] <= fastest / FASTER else 0.0
    if slower > NEARLY_FASTEST * whole:
        filled = 0.0
        for i in np.argsort(rates):
            filled += cells.areas[i]
            if filled >= NEARLY_FASTEST * whole:
                return FASTER * rates[i]
    return fastest


@_compiled
@no_type_check
def continued(axes, velocity, before, fluxes, fluxes_before, ratio):
    """A state and the one before, continued by a step that is so many times as long as the last."""
    share, points = ratio * ratio / (1.0 + ratio), velocity.shape[1]
    expected, past = np.empty((points, len(axes))), np.empty((points, len(axes)))
    for i in range(points):
        for c in range(len(axes)):
            grown = (1.0 + ratio) * velocity[c, i]
            expected[i, c] = grown - ratio * before[c, i]
            past[i, c] = grown - share * before[c, i]
    grown_fluxes = (1.0 + ratio) * fluxes
    return Expected(expected, past, grown_fluxes - ratio * fluxes_before, grown_fluxes - share * fluxes_before)


@_compiled
@no_type_check
def exchange_rates(cells, fluxes):
    """How often per time the content of each cell is exchanged."""
    rates = np.zeros(len(cells.areas))
    for e in range(len(fluxes)):
        if fluxes[e] > 0:
            rates[cells.first[e]] += fluxes[e]
        else:
            rates[cells.second[e]] -= fluxes[e]
    return rates / cells.areas


@_compiled
@no_type_check
def changes(areas, velocity, before, earlier, ratio):
    """See `march.changes`; `earlier` has no points where nothing is known before the step."""
    size = change = surprise = 0.0
    for c in range(len(velocity)):
        for i in range(len(areas)):
            size += areas[i] * velocity[c, i] ** 2
            change += areas[i] * (velocity[c, i] - before[c, i]) ** 2
    if earlier.shape[1]:
        for c in range(len(velocity)):
            for i in range(len(areas)):
                continued = (1.0 + ratio) * before[c, i] - ratio * earlier[c, i]
                surprise += areas[i] * (velocity[c, i] - continued) ** 2
    size = max(size, 1e-30)
    return np.sqrt(change / size), np.sqrt(surprise / size)


@_compiled
@no_type_check
def predicted(cells, flow, expected, pressure, step, leading, tolerance, most):
    """Solve the momentum equation, and make the right side of the pressure's equation.

    Gives the velocity, the fluxes before the pressure changes, that right side, what is left of the momentum's residual
    as `krylov.solve` says it, and the number of iterations.
    """
    velocity_slope, pressure_slope = _slopes(cells, flow, expected.velocity, pressure)
    matrix, right, curved = _momentum(cells, flow, expected, velocity_slope, pressure_slope, step, leading)
    velocity = np.empty_like(expected.velocity)
    for i in range(len(velocity)):
        for c in range(len(cells.axes)):
            velocity[i, c] = expected.velocity[i, c] if flow.free[i] > 0 else flow.velocity[c, i]
    # Where velocities are prescribed there is no slip.
    _along_slip_walls(flow, velocity)
    left, iterations = _solve(cells, flow, matrix, right, velocity, tolerance, most)
    fluxes = _fluxes(cells, flow, expected, velocity, pressure, pressure_slope, curved, step / leading, leading)
    wanted = _missing(cells, flow, fluxes, pressure, step / leading)
    return velocity, fluxes, wanted, left, iterations


@_compiled
@no_type_check
def solved(factors, right):
    """The solution of the pressure's equation, by the factors that `pressure.Factorised.lower` has."""
    starts, rows, values, inverse, point = factors
    number = len(point)
    found, result = np.empty(number), np.zeros(len(right))
    for i in range(number):
        found[i] = right[point[i]]
    for j in range(number):
        for k in range(starts[j] + 1, starts[j + 1]):
            found[rows[k]] -= values[k] * found[j]
    for j in range(number - 1, -1, -1):
        total = found[j] * inverse[j]
        for k in range(starts[j] + 1, starts[j + 1]):
            total -= values[k] * found[rows[k]]
        found[j] = total
        result[point[j]] = total
    return result


@_compiled
@no_type_check
def projected(cells, flow, velocity, fluxes, pressure, change, shorter):
    """Velocity, pressure and fluxes that conserve mass, by the solution of the pressure's equation."""
    points = len(change)
    for i in range(points):
        change[i] += (flow.pressure[i] - pressure[i]) * (1.0 - flow.pressure_free[i])
    space = len(cells.axes)
    found, risen, through = np.empty((space, points)), np.empty(points), np.empty(len(fluxes))
    slope = np.empty((points, space))
    for i in range(points):
        x = y = z = 0.0
        for k in range(cells.rows[i], cells.rows[i + 1]):
            value = change[cells.columns[k]]
            x += cells.gradient[k, 0] * value
            y += cells.gradient[k, 1] * value
            if space == 3:
                z += cells.gradient[k, 2] * value
        slope[i, 0], slope[i, 1] = flow.free[i] * x, flow.free[i] * y
        if space == 3:
            slope[i, 2] = flow.free[i] * z
    _along_slip_walls(flow, slope)
    for i in range(points):
        for c in range(space):
            found[c, i] = velocity[i, c] - shorter * slope[i, c]
        risen[i] = pressure[i] + change[i]
    for e in range(len(fluxes)):
        difference = change[cells.second[e]] - change[cells.first[e]]
        through[e] = fluxes[e] - shorter * cells.conductances[e] * difference
    return found, risen, through


@_compiled
@no_type_check
def _along_slip_walls(flow, values):
    """In a loop of its own: a condition inside of the others makes them twice as long."""
    if flow.slip.shape[1]:
        _without(flow, flow.slip, values)
    if len(flow.axes) == 3 and flow.slip_too.shape[1]:
        _without(flow, flow.slip_too, values)


@_compiled
@no_type_check
def _without(flow, normal, values):
    for i in range(len(values)):
        x, y = normal[0, i], normal[1, i]
        outward = x * values[i, 0] + y * values[i, 1]
        if len(flow.axes) == 3:
            outward += normal[2, i] * values[i, 2]
            values[i, 2] -= normal[2, i] * outward
        values[i, 0] -= x * outward
        values[i, 1] -= y * outward


@_compiled
@no_type_check
def _slopes(cells, flow, velocity, pressure):
    """The gradients of all components, one after the other, and of the pressure, with its periodic jumps."""
    points, space = len(pressure), len(cells.axes)
    of_velocity, of_pressure = np.empty((points, space * space)), np.empty((points, space))
    for i in range(points):
        if space == 3:
            uz = vz = wx = wy = wz = pz = 0.0
        ux = uy = vx = vy = px = py = 0.0
        for k in range(cells.rows[i], cells.rows[i + 1]):
            j = cells.columns[k]
            x, y, u, v, p = cells.gradient[k, 0], cells.gradient[k, 1], velocity[j, 0], velocity[j, 1], pressure[j]
            ux, uy, vx, vy, px, py = ux + x * u, uy + y * u, vx + x * v, vy + y * v, px + x * p, py + y * p
            if space == 3:
                z, w = cells.gradient[k, 2], velocity[j, 2]
                uz, vz, wx, wy, wz, pz = uz + z * u, vz + z * v, wx + x * w, wy + y * w, wz + z * w, pz + z * p
        of_velocity[i, 0], of_velocity[i, 1] = ux, uy
        of_velocity[i, space], of_velocity[i, space + 1] = vx, vy
        of_pressure[i, 0], of_pressure[i, 1] = px, py
        if space == 3:
            of_velocity[i, 2], of_velocity[i, 5], of_pressure[i, 2] = uz, vz, pz
            of_velocity[i, 6], of_velocity[i, 7], of_velocity[i, 8] = wx, wy, wz
    if flow.jump_slope.shape[1]:
        of_pressure += flow.jump_slope.T
    return of_velocity, of_pressure


@_compiled
@no_type_check
def _momentum(cells, flow, expected, slopes, pressure_slope, step, leading):
    """Matrix and right side of the momentum equation, and what flows because the velocity is curved between points."""
    points, edges, space = len(cells.areas), len(cells.first), len(cells.axes)
    matrix, right, leaving = np.empty(len(cells.columns)), np.empty((points, space)), np.zeros(points)
    for i in range(points):
        matrix[cells.diagonal[i]] = leading * cells.areas[i] / step
        for c in range(space):
            right[i, c] = cells.areas[i] * (expected.past[i, c] / step - pressure_slope[i, c])
    above = np.empty((edges, space))
    for e in range(edges):
        i, j, flux = cells.first[e], cells.second[e], expected.fluxes[e]
        symmetric, skew = flow.viscosity * cells.conductances[e], 0.5 * flux
        upwind = UPWIND
        if len(flow.static) and flow.static[i if flux > 0 else j] > 0:
            symmetric += 0.5 * abs(flux)  # see `step.from_static`
            upwind = 0.0
        matrix[cells.forth[e]], matrix[cells.back[e]] = skew - symmetric, -skew - symmetric
        matrix[cells.diagonal[i]] -= skew - symmetric
        matrix[cells.diagonal[j]] += skew + symmetric
        leaving[i] += flux
        leaving[j] -= flux
        for c in range(space):
            here, there = _along(cells, slopes, e, i, c), _along(cells, slopes, e, j, c)
            above[e, c] = MEAN * cells.heights[e] * (here - there)
            rough = expected.velocity[j, c] - expected.velocity[i, c] - (here if flux > 0 else there)
            gained = 0.5 * upwind * abs(flux) * rough
            right[i, c] += gained
            right[j, c] -= gained
    for i in range(points):
        # Where fluid enters through an outlet, advection would bring energy that nobody knows of.
        matrix[cells.diagonal[i]] += 0.5 * flow.open[i] * max(leaving[i], 0.0)
    curved = _curved(cells, above)
    return matrix, right, curved


@_compiled
@no_type_check
def _along(cells, slopes, edge, point, component):
    """By how much the gradient at a point changes a component along an edge."""
    first = len(cells.axes) * component
    found = cells.offsets[edge, 0] * slopes[point, first] + cells.offsets[edge, 1] * slopes[point, first + 1]
    if len(cells.axes) == 3:
        found += cells.offsets[edge, 2] * slopes[point, first + 2]
    return found


@_compiled
@no_type_check
def _curved(cells, above):
    """What flows because velocities are so much above the straight ones along the edges, see `Curvature.fluxes`."""
    space = len(cells.axes)
    means, curved = np.zeros((cells.number_of_cells, space)), np.zeros(len(above))
    for k in range(len(cells.side_cell)):
        for c in range(space):
            if space == 3:
                means[cells.side_cell[k], c] += cells.side_means[k] * above[cells.side_edge[k], c]
            else:
                means[cells.side_cell[k], c] += above[cells.side_edge[k], c]
    for k in range(len(cells.face_cell)):
        for c in range(space):
            curved[cells.face_edge[k]] += cells.face_shares[k, c] * means[cells.face_cell[k], c]
    return curved


@_compiled
@no_type_check
def begun(cells, flow, factors):
    """See `step.begin`: velocity and fluxes."""
    velocity = np.ascontiguousarray(flow.velocity.T)
    _along_slip_walls(flow, velocity)
    slopes, _ = _slopes(cells, flow, velocity, flow.pressure)
    above = np.empty((len(cells.first), len(cells.axes)))
    for e in range(len(cells.first)):
        i, j = cells.first[e], cells.second[e]
        for c in range(len(cells.axes)):
            here, there = _along(cells, slopes, e, i, c), _along(cells, slopes, e, j, c)
            above[e, c] = MEAN * cells.heights[e] * (here - there)
    fluxes = _curved(cells, above)
    for e in range(len(fluxes)):
        i, j = cells.first[e], cells.second[e]
        for c in range(len(cells.axes)):
            fluxes[e] += cells.faces[e, c] * (0.5 * (velocity[i, c] + velocity[j, c]) + flow.facet_shift[c, e])
    change = solved(factors, _missing(cells, flow, fluxes, flow.pressure, 1.0))
    found, _, through = projected(cells, flow, velocity, fluxes, flow.pressure, change, 1.0)
    return found, through


@_compiled
@no_type_check
def _fluxes(cells, flow, expected, velocity, pressure, pressure_slope, curved, shorter, leading):
    """The fluxes under the earlier pressure; they have a momentum of their own, see `scheme._projected`."""
    points, edges, space = len(cells.areas), len(cells.first), len(cells.axes)
    fluxes, own = np.empty(edges), np.zeros(points)
    for e in range(edges):
        i, j = cells.first[e], cells.second[e]
        flux = curved[e]
        for c in range(space):
            flux += cells.faces[e, c] * (0.5 * (velocity[i, c] + velocity[j, c]) + flow.facet_shift[c, e])
        fluxes[e] = flux
        own[i] += abs(flux)
        own[j] += abs(flux)
    for i in range(points):
        area = cells.areas[i]
        viscous = flow.viscosity * cells.conducting[i] / DIFFUSED
        own[i] = area / (0.5 * own[i] / CROSSED + viscous + cells.crossings[i] / PASSED)
        for c in range(space):
            pressure_slope[i, c] *= flow.free[i]
    _along_slip_walls(flow, pressure_slope)
    for e in range(edges):
        i, j = cells.first[e], cells.second[e]
        rise = flow.rise[e] if len(flow.rise) else 0.0
        gained = -cells.conductances[e] * (pressure[j] - pressure[i] + rise)
        for c in range(space):
            gained += 0.5 * cells.faces[e, c] * (pressure_slope[i, c] + pressure_slope[j, c])
        gained *= shorter
        if len(expected.past_fluxes):
            # What the fluxes had beyond the velocities at the points, before the step; nothing where it starts.
            beyond = expected.past_fluxes[e]
            for c in range(space):
                middle = 0.5 * (expected.past[i, c] + expected.past[j, c])
                beyond -= cells.faces[e, c] * (middle + leading * flow.facet_shift[c, e])
            gained += beyond / leading - curved[e]
        time = 0.5 * (own[i] + own[j])
        fluxes[e] += time / (time + shorter) * gained
    return fluxes


@_compiled
@no_type_check
def _missing(cells, flow, fluxes, pressure, shorter):
    """The right side of the pressure's equation: what the fluxes lack, and what prescribed pressures conduct."""
    points = len(pressure)
    wanted, given = np.empty(points), np.empty(points)
    for i in range(points):
        wanted[i] = -flow.inflow[i] / shorter
        given[i] = (flow.pressure[i] - pressure[i]) * (1.0 - flow.pressure_free[i])
    for e in range(len(fluxes)):
        i, j = cells.first[e], cells.second[e]
        leaving = cells.conductances[e] * (given[j] - given[i]) - fluxes[e] / shorter
        wanted[i] += leaving
        wanted[j] -= leaving
    if flow.closed:
        # All that flows in must flow out: rounding and discretisation are spread evenly.
        whole = wanted.sum() / cells.areas.sum()
        for i in range(points):
            wanted[i] -= cells.areas[i] * whole
    return wanted


@_compiled
@no_type_check
def _solve(cells, flow, matrix, right, found, tolerance, most):
    """Stabilised biconjugate gradients from a guess, which becomes the solution; see `krylov`.

    The preconditioner is the incomplete factorisation that changes the diagonal only (Pommerell & Fichtner 1994): its
    sweeps cost as much as a product, and it takes a third of the iterations that the diagonal alone takes.
    """
    points, space, tiny = len(right), len(cells.axes), np.finfo(np.float64).tiny
    residual = np.empty((points, space))
    _product(cells, matrix, found, residual)
    for i in range(points):
        for c in range(space):
            residual[i, c] = flow.free[i] * (right[i, c] - residual[i, c])
            right[i, c] *= flow.free[i]
    _along_slip_walls(flow, residual)
    _along_slip_walls(flow, right)
    scale = tiny + _inner(cells.axes, right, right)
    for k in flow.prescribed:  # they have done their part
        matrix[k] = 0.0
    inverse = _incomplete(cells, matrix)
    limit = tolerance * tolerance * scale
    shadow, direction = residual.copy(), residual.copy()
    through, image = np.empty((points, space)), np.empty((points, space))
    going, smoothed = np.empty((points, space)), np.empty((points, space))
    rho = square = _inner(cells.axes, residual, residual)
    iterations = 0
    while square > limit and iterations < most:
        iterations += 1
        _precondition(cells, flow, matrix, inverse, direction, going)
        _image(cells, flow, matrix, going, through)
        alpha = rho / (_inner(cells.axes, shadow, through) + tiny)
        square = 0.0
        for i in range(points):
            for c in range(space):
                found[i, c] += alpha * going[i, c]
                residual[i, c] -= alpha * through[i, c]
                square += residual[i, c] ** 2
        if square <= limit:
            break
        _precondition(cells, flow, matrix, inverse, residual, smoothed)
        _image(cells, flow, matrix, smoothed, image)
        omega = _inner(cells.axes, image, residual) / (_inner(cells.axes, image, image) + tiny)
        following = square = 0.0
        for i in range(points):
            for c in range(space):
                found[i, c] += omega * smoothed[i, c]
                rest = residual[i, c] - omega * image[i, c]
                residual[i, c] = rest
                following += shadow[i, c] * rest
                square += rest * rest
        beta = following / (rho + tiny) * (alpha / (omega + tiny))
        rho = following
        for i in range(points):
            for c in range(space):
                direction[i, c] = residual[i, c] + beta * (direction[i, c] - omega * through[i, c])
    return square / limit, iterations


@_compiled
@no_type_check
def _inner(axes, one, other):
    total = 0.0
    for i in range(len(one)):
        total += one[i, 0] * other[i, 0] + one[i, 1] * other[i, 1]
        if len(axes) == 3:
            total += one[i, 2] * other[i, 2]
    return total


@_compiled
@no_type_check
def _product(cells, matrix, values, result):
    space = len(cells.axes)
    for i in range(len(values)):
        x = y = z = 0.0
        for k in range(cells.rows[i], cells.rows[i + 1]):
            j = cells.columns[k]
            x += matrix[k] * values[j, 0]
            y += matrix[k] * values[j, 1]
            if space == 3:
                z += matrix[k] * values[j, 2]
        result[i, 0], result[i, 1] = x, y
        if space == 3:
            result[i, 2] = z


@_compiled
@no_type_check
def _image(cells, flow, matrix, values, result):
    _product(cells, matrix, values, result)
    _along_slip_walls(flow, result)


@_compiled
@no_type_check
def _incomplete(cells, matrix):
    """One over the diagonal d of (d + lower) d⁻¹ (d + upper), which has the diagonal of the matrix."""
    inverse = np.empty(len(cells.diagonal))
    for i in range(len(inverse)):
        own = matrix[cells.diagonal[i]]
        for k in range(cells.rows[i], cells.diagonal[i]):
            own -= matrix[k] * matrix[cells.mirrored[k]] * inverse[cells.columns[k]]
        inverse[i] = 1.0 / own
    return inverse


@_compiled
@no_type_check
def _precondition(cells, flow, matrix, inverse, values, result):
    points, space = len(inverse), len(cells.axes)
    for i in range(points):
        x, y, z = values[i, 0], values[i, 1], values[i, 2] if space == 3 else 0.0
        for k in range(cells.rows[i], cells.diagonal[i]):
            j = cells.columns[k]
            x -= matrix[k] * result[j, 0]
            y -= matrix[k] * result[j, 1]
            if space == 3:
                z -= matrix[k] * result[j, 2]
        result[i, 0], result[i, 1] = x * inverse[i], y * inverse[i]
        if space == 3:
            result[i, 2] = z * inverse[i]
    for i in range(points - 1, -1, -1):
        x = y = z = 0.0
        for k in range(cells.diagonal[i] + 1, cells.rows[i + 1]):
            j = cells.columns[k]
            x += matrix[k] * result[j, 0]
            y += matrix[k] * result[j, 1]
            if space == 3:
                z += matrix[k] * result[j, 2]
        result[i, 0] -= x * inverse[i]
        result[i, 1] -= y * inverse[i]
        if space == 3:
            result[i, 2] -= z * inverse[i]
    _along_slip_walls(flow, result)
