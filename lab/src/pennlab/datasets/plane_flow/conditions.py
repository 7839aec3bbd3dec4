"""What holds on the patches of a flow: inlets with profiles, walls at rest or moving, slip walls, outlets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

PROFILES = ("uniform", "parabolic", "tilted", "jet", "tabulated")


class Condition:
    """What holds on one patch."""

    def describe(self) -> dict[str, Any]:
        """The condition in JSON's terms."""
        return {"kind": type(self).__name__.lower(), **asdict(self)}  # pyright: ignore[reportArgumentType]


class Prescribed(Condition, ABC):
    """A patch on which the velocity is known."""

    @abstractmethod
    def velocity(self, points: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, "points 2"]: ...

    @property
    def at_rest(self) -> bool:
        return False


@dataclass(frozen=True)
class Wall(Prescribed):
    """A wall, at rest unless it has a speed along itself; then it is straight, or a circle that turns.

    Attributes:
        motion: the velocity of a straight wall.
        centre: of a turning circle.
        turning: its angular speed, counter-clockwise.
    """

    motion: tuple[float, float] = (0.0, 0.0)
    centre: tuple[float, float] = (0.0, 0.0)
    turning: float = 0.0

    def velocity(self, points: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, "points 2"]:
        arm = points - np.array(self.centre)
        return np.array(self.motion) + self.turning * np.stack([-arm[:, 1], arm[:, 0]], axis=1)

    @property
    def at_rest(self) -> bool:
        return self.motion == (0.0, 0.0) and self.turning == 0.0


@dataclass(frozen=True)
class Inlet(Prescribed):
    """A straight inlet. Its profile gives the velocity in terms of the place s along it, from 0 to 1.

    Attributes:
        start: where s is 0; the fluid lies to the left of the way from start to end.
        end: where s is 1.
        speed: mean normal velocity into the domain.
        profile: one of `PROFILES`.
        shape: numbers of the profile: tilted, the tangent of the angle; jet, its place, width and the share of the
            surrounding flow; tabulated, values at equal distances.
    """

    start: tuple[float, float]
    end: tuple[float, float]
    speed: float = 1.0
    profile: str = "uniform"
    shape: tuple[float, ...] = ()

    def velocity(self, points: Float[np.ndarray, "points 2"]) -> Float[np.ndarray, "points 2"]:
        along = np.subtract(self.end, self.start)
        width = float(np.sqrt((along**2).sum()))
        tangent = along / width
        inward = np.array([-tangent[1], tangent[0]])
        offset = points - np.array(self.start)
        place = np.clip((offset[:, 0] * tangent[0] + offset[:, 1] * tangent[1]) / width, 0.0, 1.0)
        normal = self.speed * self.normal_speed(place)
        sideways = normal * (self.shape[0] if self.profile == "tilted" else 0.0)
        return normal[:, None] * inward + sideways[:, None] * tangent

    def normal_speed(self, place: Float[np.ndarray, " places"]) -> Float[np.ndarray, " places"]:
        """The profile, with mean one."""
        if self.profile == "parabolic":
            return 6.0 * place * (1.0 - place)
        if self.profile == "jet":
            raw = _jet(place, *self.shape)
            fine = (np.arange(2000) + 0.5) / 2000
            return raw / _jet(fine, *self.shape).mean()
        if self.profile == "tabulated":
            table = np.array(self.shape)
            mean = (0.5 * (table[1:] + table[:-1])).mean()
            return np.interp(place, np.linspace(0.0, 1.0, len(table)), table) / mean
        return np.ones_like(place)


def _jet(place: np.ndarray, centre: float, width: float, surrounding: float) -> np.ndarray:
    """A bell, rational rather than exponential: it has the same last bit everywhere."""
    return surrounding + (1.0 - surrounding) / (1.0 + ((place - centre) / width) ** 2) ** 2


@dataclass(frozen=True)
class Slip(Condition):
    """A wall without friction, or a plane of symmetry: the same condition under two names."""

    symmetry: bool = False


@dataclass(frozen=True)
class Outlet(Condition):
    """Pressure zero, velocity without normal derivative."""
