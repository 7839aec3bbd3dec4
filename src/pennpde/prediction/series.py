"""A prediction at several times: what a time is called, and files that hold all of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pennpde.mesh.series import SERIES, write_series
from pennpde.penn import STEADY
from pennpde.prediction.outcome import Outcome


def time_name(time: float) -> str:
    """A time in words."""
    return "steady state" if time == STEADY else f"t = {time:.4g}"


def time_value(time: float) -> float | str:
    """A time as JSON can hold it."""
    return "steady" if time == STEADY else time


def shown_times(times: Sequence[float]) -> tuple[float, ...]:
    """The times at which a viewer shows the fields: a steady state, which has none, follows at one more interval."""
    if times[-1] != STEADY:
        return tuple(times)
    before = list(times[:-1])
    if not before:
        return (0.0,)
    interval = before[-1] - before[-2] if len(before) > 1 else before[-1]
    return (*before, before[-1] + interval)


def save(outcome: Outcome, path: Path | str) -> None:
    """Write the mesh with the predicted fields: several times as a series, where the format has such (`SERIES`)."""
    path = Path(path)
    if path.suffix == ".pvd" or (path.suffix in SERIES and len(outcome.times) > 1):
        meshes = [outcome.at(place).mesh() for place in range(len(outcome.times))]
        write_series(path, shown_times(outcome.times), meshes)
    else:
        outcome.mesh().save(path)
