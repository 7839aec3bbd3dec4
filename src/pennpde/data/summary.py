"""What the manifest of a dataset tells about its cases, counted: for `penn info` and for reports."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import quantiles
from typing import Any

from pennpde.data.manifest import Manifest

_TOLD_ELSEWHERE = {"points", "cells", "parameters", "fingerprints", "source", "state", "flux", "ranges"}
"""What is measured on the cases themselves, and what differs from case to case by its nature."""
_MOST_WORDS = 30


def summary(manifest: Manifest, split: str | None = None) -> dict[str, Any]:
    """The facts of all cases of a split, or of all: numbers by their quarters, words counted.

    Facts within facts get names such as `mesh.kind`. Words that differ from case to case are only counted.
    """
    gathered: dict[str, list[Any]] = {}
    for name in manifest.names(split):
        for key, value in _flat(manifest.cases[name].facts):
            gathered.setdefault(key, []).extend(value if isinstance(value, list | tuple) else [value])
    return {key: _told(values) for key, values in gathered.items() if values}


def failures(manifest: Manifest) -> dict[str, int]:
    """By reason, how many cases could not be made; paths and numbers are left out, so that equal reasons meet."""
    reasons = Counter(
        re.sub(r"(\S*/\S+|\d[\d.e+-]*)", "…", str(each.get("error"))) for each in manifest.failed.values()
    )
    return dict(reasons.most_common())


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in facts.items():
        if not above and key in _TOLD_ELSEWHERE:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _told(values: Sequence[Any]) -> dict[str, Any]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        lower, middle, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * list(values)
        return {
            "lowest": min(values),
            "a quarter below": lower,
            "median": middle,
            "a quarter above": upper,
            "highest": max(values),
        }
    words = Counter(("yes" if value else "no") if isinstance(value, bool) else str(value) for value in values)
    if len(words) > _MOST_WORDS:
        return {"different": len(words), "of": len(values)}
    return dict(words.most_common())
