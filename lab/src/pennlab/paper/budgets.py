"""Budgets of trainings and what they used, in words: networks can be compared only if this is known.

Records keep of each what `training_in_short` takes from its configuration.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pennpde.checkpoints import Config

Training = Mapping[str, Any]

ENDS_BY_ITSELF = 0
"""In place of a number of steps, for trainings that go on until nothing improves: none of them is short."""


def training_in_short(config: Config) -> dict[str, Any]:
    """What a network has had, and its budget: rows of a table compare only where this is the same."""
    settings = config.training.get("settings", {})
    budget = {name: settings[name] for name in ("minutes", "epochs", "steps") if settings.get(name) is not None}
    had = {name: config.training.get(name) for name in ("steps", "minutes", "device")}
    had |= {"cases": config.dataset.get("train"), "batch": settings.get("batch_size"), "budget": budget}
    return {name: value for name, value in had.items() if value}


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


def wanted(training: Training, whole: int | None) -> int:
    """Steps that a training was to have: its own budget, or what all rows of its table are to have."""
    if whole == ENDS_BY_ITSELF:
        return 0
    budget = training.get("budget", {})
    own = budget.get("steps", 0)
    if "epochs" in budget and training.get("cases"):
        own = math.ceil(budget["epochs"] * training["cases"] / training.get("batch", 1))
    return max(whole or 0, own)


def is_short(trainings: Sequence[Training], whole: int | None) -> bool:
    """Whether a row had fewer steps than it was to have; those without training never are."""
    return any(training["steps"] < wanted(training, whole) for training in trainings if training.get("steps"))


def marked(title: str, trainings: Sequence[Training], whole: int | None) -> str:
    """The title, with the steps of a row that is short, and so compares with no other."""
    if not is_short(trainings, whole):
        return title
    most = max(wanted(training, whole) for training in trainings)
    return f"{title} (short: {statistics.mean(_steps(trainings)):,.0f} of {most:,} steps)"


def _steps(trainings: Sequence[Training]) -> list[int]:
    return [training["steps"] for training in trainings if training.get("steps")]
