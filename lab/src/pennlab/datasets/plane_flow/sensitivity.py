"""Which moments of a flow are determined: its truth hardly changes when it is computed with twice the spacing.

Where eddies roll up or are shed, small errors grow until the flow is another one, on any mesh. No network can be judged
by such a moment. Every flow for tests is computed once more with cells twice as large, an eighth of the work; a moment
is determined if u agrees within 4 %, at the points of the first mesh for networks. Then half the spacing changes u by
less than 2 % in every family that was compared (`lab/benchmarks/plane_flow_truth.py`).

`sensitivity.json` among the archives has the differences (`lab/benchmarks/plane_flow_sensitivity.py` makes it). A
dataset that is made of the archives has in its manifest what follows from them, as the fact `determined` of its cases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pennpde.case.moments import FOREVER
from pennpde.data.storage import MANIFEST, read_manifest
from pennpde.data.vtkhdf import CaseFile
from pennpde.metrics import relative_l2

FILE = "sensitivity.json"
SPACING = 2.0
LIMIT = 0.04
"""Largest relative difference of u at a moment that is determined."""
_FACT, _STEADY_FACT = "determined", "steady_determined"


def determined(folder: Path | str, name: str, moment: float) -> bool | None:
    """Whether a flow is determined at a moment; None where that was not measured.

    Args:
        folder: of archives, or of a dataset that was made of them.
        name: of a flow, or of one of its cases.
        moment: one of the flow's; `FOREVER` for its steady state.
    """
    flow, _, mesh = name.partition(".")
    if (Path(folder) / FILE).exists() or not (Path(folder) / MANIFEST).exists():
        return _judged(differences_of(folder, flow), moment)
    case = _entries(str(folder)).get(f"{flow}.{mesh or 'a'}")
    if case is None:
        return None
    if moment == FOREVER:
        return case.facts.get(_STEADY_FACT)
    at = dict(zip(case.facts["times"], case.facts.get(_FACT, ()), strict=False))
    return next((known for time, known in at.items() if _same(time, moment)), None)


def differences_of(folder: Path | str, flow: str) -> Mapping[str, Any] | None:
    """What was measured for a flow, as `differences` gives it; None: nothing, or it failed."""
    found = _read(str(folder)).get(flow)
    return None if found is None or "error" in found else found


def differences(known: CaseFile, coarser: CaseFile) -> dict[str, Any]:
    """Relative L2 differences of u and p at each moment, and in the steady state where the truth has one.

    Args:
        known: the truth.
        coarser: the same case, computed with a larger spacing.
    """
    if known.times != coarser.times:
        raise ValueError(f"{known.case.name} has the moments {known.times}, and {coarser.times} with larger cells.")
    found: dict[str, Any] = {"times": list(known.times)}
    for name in ("u", "p"):
        pairs = zip(coarser.case.targets[name].unbind(-1), known.case.targets[name].unbind(-1), strict=True)
        found[name] = [round(float(relative_l2(one, other)), 5) for one, other in pairs]
    for name in ("steady_u", "steady_p"):
        if name in known.case.targets:
            other = coarser.case.targets.get(name)
            found[name] = None if other is None else round(float(relative_l2(other, known.case.targets[name])), 5)
    return found


def facts_of(folder: Path | str, flow: str, times: Sequence[float]) -> dict[str, Any]:
    """For the manifest: which of these moments, and whether the steady state, are determined."""
    measured = differences_of(folder, flow)
    if measured is None:
        return {}
    steady = {_STEADY_FACT: _judged(measured, FOREVER)} if "steady_u" in measured else {}
    return {_FACT: [_judged(measured, time) for time in times], **steady}


def without_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a case without those of `facts_of`, which are not for archives: they may change."""
    return {key: value for key, value in facts.items() if key not in (_FACT, _STEADY_FACT)}


def _judged(measured: Mapping[str, Any] | None, moment: float) -> bool | None:
    if measured is None:
        return None
    if moment == FOREVER:
        if "steady_u" not in measured:
            return None
        # With larger cells the flow may not settle at all.
        return measured["steady_u"] is not None and measured["steady_u"] <= LIMIT
    at = dict(zip(measured["times"], measured["u"], strict=True))
    return next((difference <= LIMIT for time, difference in at.items() if _same(time, moment)), None)


def _same(time: float, other: float) -> bool:
    return abs(time - other) < 1e-6


@cache
def _read(folder: str) -> Mapping[str, Mapping[str, Any]]:
    path = Path(folder) / FILE
    return json.loads(path.read_text(encoding="utf-8"))["flows"] if path.exists() else {}


@cache
def _entries(folder: str) -> Mapping[str, Any]:
    return read_manifest(folder).cases
