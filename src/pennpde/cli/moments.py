"""Options of `penn predict` about time: which times are predicted, and which of them become OpenFOAM's time folders."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pennpde.penn import Predictor

ALL = "all"
"""`--write-time all`: every predicted time becomes a folder."""
_MOST = 1000
_SAME = 1e-6
"""Share of a time by which two numbers may differ that mean the same time."""
_ROUNDED = 0.05
"""Likewise of a network with fixed times, whose times users can only round."""


def asked_times(time: float | None, times: str | None, steady: bool) -> tuple[float, ...] | None:
    """The times that a user asks for, counted from the start; infinity is the steady state; None: not asked for."""
    if time is not None and times is not None:
        raise typer.BadParameter("give --time for one time or --times for several, not both", param_hint="--times")
    if time is not None and not (math.isfinite(time) and time > 0):
        raise typer.BadParameter(f"{time:g} is not after the start; give a positive number", param_hint="--time")
    found = () if times is None else _parsed(times)
    found = found if time is None else (time,)
    return (*found, *([math.inf] if steady else [])) or None


def _parsed(text: str) -> tuple[float, ...]:
    """The times of `0.5:4:0.5` (first, last, interval) or `0.5,1,2`."""
    parts = text.split(":" if ":" in text else ",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = [math.nan]
    usable = all(math.isfinite(number) for number in numbers) and "_" not in text
    if not usable or (":" in text and len(numbers) != 3):
        raise typer.BadParameter(
            f"{text!r} is neither FIRST:LAST:INTERVAL such as 0.5:4:0.5 nor a list such as 0.5,1,2",
            param_hint="--times",
        )
    if ":" in text:
        numbers = _spread(text, *numbers)
    if numbers[0] <= 0 or any(later <= earlier for earlier, later in pairwise(numbers)):
        raise typer.BadParameter(
            f"{text!r} must give positive times that increase; the start itself, t = 0, is not predicted",
            param_hint="--times",
        )
    return tuple(numbers)


def _spread(text: str, first: float, last: float, interval: float) -> list[float]:
    """Times from first to last, both included where the interval divides their distance."""
    if interval <= 0 or last < first:
        raise typer.BadParameter(
            f"{text!r} must have a positive interval, and a last time that is not before the first",
            param_hint="--times",
        )
    number = (last - first) / interval * (1 + 1e-9)
    if number >= _MOST:
        raise typer.BadParameter(f"{text!r} has more than {_MOST} times; take a longer interval", param_hint="--times")
    # Twelve digits: 3 * 0.1 is 0.30000000000000004, and would be the name of a folder.
    return [float(f"{first + place * interval:.12g}") for place in range(int(number + 1e-9) + 1)]


def check_times(network: "Predictor", model: str, asked: Sequence[float] | None) -> None:
    """Refuse times that a network cannot give, before any work is done."""
    if asked is not None and not network.takes_times:
        raise ValueError(
            f"{model} predicts only the times that it was trained for, not any time: leave out --time, --times and "
            "--steady, or choose a network for any time with --model"
        )


def implied_times(
    network: "Predictor", asked: Sequence[float] | None, write_time: str | None, start: float
) -> tuple[float, ...] | None:
    """The times to predict; where none is asked for, that of the time folder, if the network takes any time."""
    if asked is not None or write_time in (None, ALL) or not network.takes_times:
        return None if asked is None else tuple(asked)
    later = float(write_time) - start
    if later <= 0:
        raise ValueError(
            f"--write-time {write_time} is not after the start of the case, {start:g}; give a later time, or --steady "
            f"to write the steady state into the folder {write_time}"
        )
    return (later,)


def folder_names(write_time: str, times: Sequence[float], start: float, takes_times: bool) -> dict[int, str]:
    """By place of a time, the name of its folder.

    Args:
        write_time: What the user gave: the name of a folder, or `ALL`.
        times: That were predicted, counted from the start.
        start: Of the case, in OpenFOAM's time.
        takes_times: Whether the network predicts any time: then a name must be one of them.
    """
    if write_time == ALL:
        if math.inf in times:
            raise ValueError(
                "a steady state has no time to name its folder by; leave out --steady, or give its folder a name, as "
                "in --steady --write-time 1000"
            )
        return {place: f"{start + time:.10g}" for place, time in enumerate(times)}
    asked = float(write_time) - start
    share = _SAME if takes_times else _ROUNDED
    finite = [(abs(time - asked), place) for place, time in enumerate(times) if math.isfinite(time)]
    distance, place = min(finite, default=(math.inf, 0))
    if distance <= share * max(times[place], abs(asked), abs(start) if takes_times else 0.0):
        return {place: write_time}
    if times[-1] == math.inf or not takes_times:
        return {len(times) - 1: write_time}
    known = ", ".join(f"{start + time:.10g}" for time in times)
    raise ValueError(f"--write-time {write_time} is not among the predicted times, {known}; add it to them")


def is_time(name: str) -> bool:
    """Whether OpenFOAM would take the name of a folder for a time: digits, at most one point, an exponent."""
    return re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,2})?", name) is not None


def check_folders(case: Path, names: Sequence[str]) -> None:
    """Refuse to write into time folders that are there already, also under another spelling of the same time."""
    there = {float(path.name): path for path in case.iterdir() if is_time(path.name)}
    for name in names:
        if float(name) in there:
            raise FileExistsError(f"{there[float(name)]} exists already; choose another time, or remove it")
