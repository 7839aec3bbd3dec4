"""Budgets of trainings and what they used, in words: networks can be compared only if this is known.

Takes `Config.training_in_short` as records keep it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Training = Mapping[str, Any]

PROTOCOL_ROWS = ("paper", "released")
"""Rows that follow the authors' protocol, with as much GPU time as there was: no number of steps is short for them, and
the first column says how many there were."""


def allowed(training: Training) -> str:
    """The budget, and on how many cases; empty where neither is known."""
    limits = [f"{value:g} {name}" for name, value in training.get("budget", {}).items()]
    return ", ".join([*limits, f"{training['cases']} cases"] if "cases" in training else limits)


def told_apart(titled: Sequence[tuple[str, Training]]) -> list[str]:
    """The titles, each with its budget where trainings of one title had several."""
    of_title: dict[str, set[str]] = {}
    for title, training in titled:
        of_title.setdefault(title, set()).add(allowed(training))
    budgets = [allowed(training) if len(of_title[title]) > 1 else "" for title, training in titled]
    return [f"{title} [{budget}]" if budget else title for (title, _), budget in zip(titled, budgets, strict=True)]


def taken(trainings: Sequence[Training]) -> str:
    """The means over seeds of one training: steps, batch, cases, minutes and where; empty where nothing is known."""
    known = [training for training in trainings if training.get("steps")]
    if not known:
        return ""
    first = known[0]
    steps = f"{statistics.mean(each['steps'] for each in known):,.0f} steps"
    parts = [f"{steps} of {first['batch']}" if "batch" in first else steps]
    parts += [f"{first['cases']} cases"] if "cases" in first else []
    if "minutes" in first:
        minutes = statistics.mean(each["minutes"] for each in known)
        parts.append(f"{minutes:.1f} min" + (f" on {first['device']}" if "device" in first else ""))
    return ", ".join(parts)


def is_short(trainings: Sequence[Training], whole: int | None, row: str = "") -> bool:
    """Whether a row had fewer steps than the rows of its table are to have; those without training never are."""
    steps = _steps(trainings)
    return whole is not None and row not in PROTOCOL_ROWS and bool(steps) and min(steps) < whole


def marked(title: str, trainings: Sequence[Training], whole: int | None, row: str = "") -> str:
    """The title, with the steps of a row that is short or follows another protocol, and so compares with no other."""
    steps = _steps(trainings)
    if steps and row in PROTOCOL_ROWS:
        batch = next((training["batch"] for training in trainings if training.get("batch")), 1)
        return f"{title} ({statistics.mean(steps):,.0f} steps of {batch} case{'s' if batch > 1 else ''})"
    if is_short(trainings, whole, row):
        return f"{title} (short: {statistics.mean(steps):,.0f} steps)"
    return title


def _steps(trainings: Sequence[Training]) -> list[int]:
    return [training["steps"] for training in trainings if training.get("steps")]
