"""Calibration with finished plane flows: how often the bound holds, also where the reference depends on its mesh.

Times at which a reference is not mesh-converged, such as the phase of eddies, are judged as all are, but not learned
from: the difference from such a reference says little about a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pennlab.datasets.plane_flow import sensitivity
from pennpde.train.calibrate import Coverage, Measured, coverage, worse_of
from pennpde.train.calibrate import fitted as fitted_to_all
from pennpde.trust.calibration import Calibration, LeftOut, Sample, cross_validated

DETERMINED = "truth determined"
"""Times whose reference hardly changes with its mesh; then those where it does, and those where nobody looked."""
UNDETERMINED = "truth not determined"
NOT_MEASURED = "not known whether"

Known = Mapping[tuple[str, float], bool | None]
"""By name of a case and time, whether its reference is mesh-converged; None where nobody looked."""


def known_of(folder: Path, measured: Sequence[Measured]) -> Known:
    """What the archives of finished flows say about the times that were measured."""
    return {(each.case, each.time): sensitivity.determined(folder, each.case, each.time) for each in measured}


def fitted(measured: Sequence[Measured], known: Known, left_out: LeftOut = "families") -> Calibration:
    """The calibration by predictions that were measured, without times that are not mesh-converged."""
    return fitted_to_all([each for each in measured if known.get((each.case, each.time)) is not False], left_out)


def coverage_by_family(
    measured: Sequence[Measured],
    known: Known,
    left_out: LeftOut = "families",
    scores_without: LeftOut = "families",
    group: Callable[[Sample], str] = lambda sample: sample.family,
) -> dict[str, Coverage]:
    """How often the bound holds where cases, or families, were left out of the calibration; "all" comes last.

    Before it, where anything is known, the times by whether their reference is mesh-converged.

    Args:
        measured: Predictions.
        known: Of `known_of`.
        left_out: See `cross_validated`.
        scores_without: Likewise.
        group: What is counted together.
    """
    titles = {True: DETERMINED, False: UNDETERMINED, None: NOT_MEASURED}
    title_of = {each.sample.name: titles[known.get((each.case, each.time))] for each in measured}
    undetermined = {name for name, title in title_of.items() if title == UNDETERMINED}
    samples, worse = [each.sample for each in measured], worse_of(measured)
    judged = cross_validated(samples, worse, only_judged=undetermined, left_out=left_out, scores_without=scores_without)
    apart = [
        (replace(sample, family=group(sample)), each) for sample, each in judged if sample.name not in undetermined
    ]
    found = coverage(apart)
    if not found or set(title_of.values()) == {NOT_MEASURED}:
        return found
    total = coverage(judged)["all"]
    del found["all"]
    for title in titles.values():
        if members := [pair for pair in judged if title_of[pair[0].name] == title]:
            found[title] = coverage(members)["all"]
    return found | {"all": total}


def coverage_of(calibration: Calibration, measured: Sequence[Measured]) -> dict[str, Coverage]:
    """How often the bound holds on cases that are not part of the calibration."""
    judged = [
        (each.sample, {name: calibration.estimate(name, each.clues) for name in calibration.unknowns})
        for each in measured
    ]
    return coverage(judged)
