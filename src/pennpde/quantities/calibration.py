"""By how much the error of a quantity exceeds its difference from the coarser flow, learned from flows of known error.

`quantities.json` is written by `lab/benchmarks/quantities_calibration.py`: by level and group of quantities, the mean
of the error over the difference, and the quantile that nine in ten flows are below (split conformal prediction).
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files


@cache
def _known() -> dict[str, dict[str, list[float]]]:
    text = files("pennpde.quantities").joinpath("quantities.json").read_text(encoding="utf-8")
    return json.loads(text)["factors"]


def factors_of(level: str, group: str) -> tuple[float, float] | None:
    """Of the expected error, and of its 90 % bound; None where they are not known."""
    found = _known().get(level, {}).get(group)
    return None if found is None else (found[0], found[1])
