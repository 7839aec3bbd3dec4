"""All flows of the dataset: their names and splits, and how each is drawn from its name alone."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from pennlab.datasets.plane_flow.conditions import Condition, Inlet, Outlet, Slip, Wall
from pennlab.datasets.plane_flow.domain import Domain
from pennlab.datasets.plane_flow.flow import INTERVAL, Flow
from pennlab.datasets.plane_flow.shapes import FAMILIES, TRAINED, UNSEEN, Draw, Shape
from pennlab.datasets.plane_flow.shapes.soundness import unsound

REYNOLDS = (10.0, 2000.0)
UNSEEN_REYNOLDS = ((3.0, 10.0), (2000.0, 3000.0))
LAST_MOMENT = 8.0
TRAIN_PER_FAMILY = 60
VALIDATION_PER_FAMILY = 6
TEST_TRAINED, TEST_UNSEEN, TEST_REYNOLDS = 76, 51, 25
"""One more than 75 and 50, since `blunt-bodies_2002` and `moving-tee_3003` diverge."""
_PROFILES = {"uniform": 0.3, "parabolic": 0.32, "tilted": 0.12, "jet": 0.13, "tabulated": 0.13}
_MOMENTS = ((0.125, 1.0), (1.375, 2.5), (3.0, 4.5), (5.0, 8.0))
"""Ranges of the moments of a flow; of the two in the middle some flows have only one."""
_ATTEMPTS = 60


def splits() -> dict[str, list[str]]:
    """The names of all flows: train, validation, and three kinds of test."""
    trained, unseen = list(TRAINED), list(UNSEEN)
    return {
        "train": [flow_name(family, number) for number in range(TRAIN_PER_FAMILY) for family in trained],
        "validation": [
            flow_name(family, 1000 + number) for number in range(VALIDATION_PER_FAMILY) for family in trained
        ],
        "test": [flow_name(trained[i % len(trained)], 2000 + i // len(trained)) for i in range(TEST_TRAINED)],
        "test-unseen-families": [
            flow_name(unseen[i % len(unseen)], 3000 + i // len(unseen)) for i in range(TEST_UNSEEN)
        ],
        # Families take turns in another order than above, so that all of them are among few.
        "test-unseen-reynolds": [
            flow_name(trained[(5 * i) % len(trained)], 4000 + i // len(trained)) for i in range(TEST_REYNOLDS)
        ],
    }


def flow_name(family: str, number: int) -> str:
    return f"{family}_{number:04d}"


def parse_name(name: str) -> tuple[str, int]:
    """Family and number of a flow."""
    match = re.fullmatch(r"([a-z-]+)_(\d{4})", name)
    if match is None or match[1] not in FAMILIES:
        raise ValueError(f"{name!r} names no flow; names look like 'step_0012'. Families: {', '.join(FAMILIES)}.")
    return match[1], int(match[2])


def split_of(name: str) -> str:
    """The split of a flow, by its number."""
    number = parse_name(name)[1]
    return ("train", "validation", "test", "test-unseen-families", "test-unseen-reynolds")[min(number // 1000, 4)]


def reynolds_range(number: int) -> tuple[float, float]:
    """From which the Reynolds number of a flow is drawn."""
    return UNSEEN_REYNOLDS[number % 2] if 4000 <= number < 5000 else REYNOLDS


@lru_cache(maxsize=64)
def draw_flow(name: str, seed: int = 0) -> Flow:
    """The flow of a name. Shapes that cross themselves or leave too narrow a gap are drawn again."""
    family, number = parse_name(name)
    wrong = ""
    for attempt in range(_ATTEMPTS):
        key = [seed, zlib.crc32(family.encode()), number, attempt]
        draw = Draw(np.random.Generator(np.random.PCG64(np.random.SeedSequence(key))))
        shape = FAMILIES[family](draw)
        wrong = unsound(shape.domain)
        if not wrong:
            return _flow(name, family, shape, draw, *reynolds_range(number))
    raise ValueError(f"No sound shape for {name!r} in {_ATTEMPTS} attempts; the last: {wrong}.")


def _flow(name: str, family: str, shape: Shape, draw: Draw, lowest: float, highest: float) -> Flow:
    parameters = dict(draw.values)
    place = draw.real("reynolds", 0.0, 1.0)
    reynolds = float(f"{lowest * (highest / lowest) ** place:.4g}")
    conditions: dict[str, Condition] = {}
    for patch in shape.domain.patches:
        if patch in shape.inlets:
            conditions[patch] = _inlet(draw, patch, *shape.inlets[patch])
        elif patch in shape.outlets:
            conditions[patch] = Outlet()
        elif patch in shape.slip:
            conditions[patch] = Slip(symmetry=shape.slip[patch])
        elif patch in shape.moving:
            speed = 1.0 if patch == "lid" else draw.real(f"speed_{patch}", -1.0, 1.0)
            direction = shape.moving[patch]
            conditions[patch] = Wall((speed * direction[0], speed * direction[1]))
        elif patch in shape.turning:
            centre, radius = shape.turning[patch]
            speed = draw.real("surface_speed", -1.5, 1.5, zero=0.5)
            conditions[patch] = Wall(centre=centre, turning=round(speed / radius, 6)) if speed else Wall()
        else:
            conditions[patch] = Wall()
    moments = _moments(draw)
    start = draw.choice("start", {"potential": 0.6, "rest": 0.4})
    mirrored = bool(draw.random.random() < 0.5)
    domain, pressure_point = shape.domain, shape.pressure_point
    if mirrored:
        domain = domain.mirrored()
        conditions = {patch: upside_down(each) for patch, each in conditions.items()}
        pressure_point = None if pressure_point is None else (pressure_point[0], -pressure_point[1])
    return Flow(name, family, domain, conditions, reynolds, moments, start, parameters, mirrored, pressure_point)


def _inlet(draw: Draw, patch: str, start: tuple[float, float], end: tuple[float, float]) -> Inlet:
    profile = draw.choice(f"profile_{patch}", _PROFILES)
    shape: tuple[float, ...] = ()
    if profile == "tilted":
        shape = (round(math.tan(math.radians(draw.real(f"tilt_{patch}", -25.0, 25.0))), 6),)
    elif profile == "jet":
        shape = (
            draw.real(f"jet_place_{patch}", 0.25, 0.75),
            draw.real(f"jet_width_{patch}", 0.2, 0.6),
            draw.real(f"jet_surrounding_{patch}", 0.0, 0.4),
        )
    elif profile == "tabulated":
        number = 5 + int(draw.random.integers(0, 5))
        values = 0.4 + 1.2 * draw.random.random(number)
        shape = tuple(round(float(value), 4) for value in values)
    speed = 1.0 if patch == "inlet" else draw.real(f"speed_{patch}", 0.3, 1.2)
    return Inlet(start, end, speed, profile, shape)


def _moments(draw: Draw) -> tuple[float, ...]:
    ranges = list(_MOMENTS)
    if draw.random.random() < 0.5:
        del ranges[1 + int(draw.random.integers(0, 2))]
    found = sorted({round(float(draw.random.uniform(*each)) / INTERVAL) * INTERVAL for each in ranges})
    return tuple(max(INTERVAL, moment) for moment in found)


def upside_down(condition: Condition) -> Condition:
    if isinstance(condition, Inlet):
        # Upside down and run the other way, to keep the fluid to the left.
        start, end = (condition.end[0], -condition.end[1]), (condition.start[0], -condition.start[1])
        shape = condition.shape
        if condition.profile == "tilted":
            shape = (-shape[0],)
        elif condition.profile == "jet":
            shape = (round(1.0 - shape[0], 6), *shape[1:])
        elif condition.profile == "tabulated":
            shape = shape[::-1]
        return Inlet(start, end, condition.speed, condition.profile, shape)
    if isinstance(condition, Wall):
        return Wall(condition.motion, (condition.centre[0], -condition.centre[1]), -condition.turning)
    return condition


def in_turn(names: Mapping[str, Sequence[str]]) -> list[str]:
    """All names in an order in which any beginning is balanced over splits and families."""
    places = {name: (number + 0.5) / len(members) for members in names.values() for number, name in enumerate(members)}
    return sorted(places, key=lambda name: (places[name], name))


def by_checksum(names: Iterable[str]) -> list[str]:
    """Names in an order that has nothing to do with them, the same everywhere; further ones do not change it."""
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))


def box_of(domain: Domain) -> tuple[float, float]:
    """Length and height of a domain."""
    low, high = domain.box
    return float(high[0] - low[0]), float(high[1] - low[1])
