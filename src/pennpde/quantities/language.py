"""Texts that name quantities, such as "pressure drop inlet outlet" or "drag cylinder along 1 0"."""

from __future__ import annotations

import math
import shlex

from pennpde.quantities import flows, forces, regions, walls
from pennpde.quantities.quantity import Kind, Quantity
from pennpde.registry import did_you_mean

_OPTIONS = {"along": 2, "about": 2, "speed": 1, "length": 1, "density": 1}
"""Words after which numbers follow, and how many."""
_MANY = 100


def _kinds() -> list[Kind]:
    found = [
        Kind("pressure drop", ("PATCH", "PATCH"), flows.pressure_drop, "m²/s²", "pressure"),
        Kind("total pressure drop", ("PATCH", "PATCH"), flows.total_pressure_drop, "m²/s²", "pressure"),
        Kind("loss coefficient", ("PATCH", "PATCH"), flows.loss_coefficient, group="pressure"),
        Kind("mean pressure", ("PATCH",), flows.mean_pressure, "m²/s²", "pressure"),
        Kind("flow rate", ("PATCH",), flows.flow_rate, "m²/s", group="flow"),
        Kind("flow split", ("PATCH", "PATCH"), flows.flow_split, group="flow", most=_MANY),
        Kind("uniformity", ("PATCH",), flows.uniformity, group="uniformity"),
        Kind("residence time", (), flows.residence_time, "s", group="flow"),
    ]
    for part in ("", "pressure", "viscous"):
        first = f"{part} " if part else ""
        found += [
            Kind(f"{first}drag", ("PATCH",), forces.component(0, part), "m³/s²", "force"),
            Kind(f"{first}lift", ("PATCH",), forces.component(1, part), "m³/s²", "force"),
            Kind(f"{first}force", ("PATCH",), forces.magnitude(part), "m³/s²", "force"),
            Kind(f"{first}force x", ("PATCH",), forces.axis_component(0, part), "m³/s²", "force"),
            Kind(f"{first}force y", ("PATCH",), forces.axis_component(1, part), "m³/s²", "force"),
            Kind(f"{first}moment", ("PATCH",), forces.moment(part), "m⁴/s²", "force"),
        ]
    found += [
        Kind("drag coefficient", ("PATCH",), forces.component(0, coefficient=True), group="force"),
        Kind("lift coefficient", ("PATCH",), forces.component(1, coefficient=True), group="force"),
        Kind("moment coefficient", ("PATCH",), forces.moment(coefficient=True), group="force"),
        Kind("wall shear", ("PATCH",), walls.mean_shear, "m²/s²", "wall shear"),
        Kind("maximum wall shear", ("PATCH",), walls.largest_shear, "m²/s²", "wall shear"),
        Kind("separation", ("PATCH",), walls.separation, "m", group="recirculation"),
        Kind("reattachment", ("PATCH",), walls.reattachment, "m", group="recirculation"),
        Kind("recirculation length", ("PATCH",), walls.recirculation_length, "m", group="recirculation"),
        Kind("recirculation area", (), regions.recirculation_area, "m²", group="recirculation"),
        Kind("kinetic energy", (), regions.kinetic_energy, "m⁴/s²", "energy"),
        Kind("dissipation", (), regions.dissipation, "m⁴/s³", "energy"),
    ]
    for name in regions.FIELDS:
        unit = "m²/s²" if name == "p" else "m/s"
        for first, words, measure in (
            ("maximum", (), regions.largest),
            ("minimum", (), regions.smallest),
            ("probe", ("X", "Y"), regions.probe),
        ):
            found.append(Kind(f"{first} {name}", words, _of_field(measure, name), unit, "local"))
    return found


def _of_field(measure, name: str):
    """With a field as the first argument."""

    def measured(flow, quantity: Quantity):
        return measure(flow, Quantity(quantity.kind, (name, *quantity.arguments), quantity.options))

    return measured


KINDS = {kind.name: kind for kind in _kinds()}


def parse(text: str) -> Quantity:
    """The quantity that a text names: its kind, patches or a place, then options.

    Patches may be joined by +, and names with blanks are put in quotes. Options: `along X Y` (direction of the drag),
    `about X Y` (of a moment), `speed U` and `length L` (references of coefficients), `density R` (for pressures and
    forces that are not kinematic).
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no quantity: {error}.") from None
    size = next((size for size in range(len(words), 0, -1) if " ".join(words[:size]).lower() in KINDS), 0)
    if not size:
        raise ValueError(_unknown(text, words))
    kind = KINDS[" ".join(words[:size]).lower()]
    rest, options = words[size:], {}
    least = len(kind.arguments)
    while len(rest) > least and (place := _last_option(rest, least)) is not None:
        options = {rest[place]: _numbers(text, rest[place], rest[place + 1 :])} | options
        rest = rest[:place]
    if not least <= len(rest) <= max(least, kind.most):
        raise ValueError(f"{text!r} has {len(rest)} arguments after {kind.name!r}; write {kind.usage!r}.")
    if "X" in kind.arguments:
        _numbers(text, kind.name, rest, 2)
    if "density" in options and not kind.forcelike:
        raise ValueError(f"{text!r} has a density, but {kind.name!r} does not depend on it; leave it out.")
    return Quantity(kind, tuple(rest), options)


def _last_option(words: list[str], least: int) -> int | None:
    return next((place for place in range(len(words) - 1, least - 1, -1) if words[place] in _OPTIONS), None)


def _numbers(text: str, option: str, words: list[str], wanted: int | None = None) -> tuple[float, ...]:
    wanted = _OPTIONS[option] if wanted is None else wanted
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if len(numbers) != wanted or not all(math.isfinite(each) for each in numbers):
        raise ValueError(f"{text!r} needs {wanted} finite numbers after {option!r}, not {' '.join(words) or 'none'!r}.")
    if option in ("speed", "length", "density") and not min(numbers) > 0:
        raise ValueError(f"{text!r} has the {option} {words[0]}; it must be positive.")
    return numbers


def _unknown(text: str, words: list[str]) -> str:
    hint = next((hint for size in (3, 2, 1) if (hint := did_you_mean(" ".join(words[:size]).lower(), KINDS))), "")
    known = ", ".join(kind.usage for kind in KINDS.values())
    return f"There is no quantity {text!r}.{hint} Known are: {known}."
