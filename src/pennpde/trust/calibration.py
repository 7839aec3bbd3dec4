"""Calibration: from what can be measured without a reference solution to the error that is likely.

Split conformal prediction on top of a regression. On cases with reference solutions, by unknown::

    log error  ≈  a + b · z          z: standardised clues; b ≥ 0 for clues of which more can only be worse
    score      =  (log error - a - b · z) / σ(z),    σ = max(1, distance of z to the cases over its usual size)

Every score is computed with a regression, and a distance, that leave out all cases of the same family: a user's case is
of no family that is known. Where the families are all kinds of case that there are, single cases are left out instead
(`LeftOut`). The 90 % quantile q of the scores gives the bound exp(a + b · z + q σ(z)): of cases like these, 90 % are
below. Further away from the calibrated cases σ grows, so the bound grows without end.

Where the equation knows kinds of case (`Physics.kind`), the quantile is that of the same kind, so that the bound holds
in each of them and not only on average.

Cases inside and outside of the network's training range are calibrated apart, where there are enough of both: outside
of it a learned network may be wrong without any sign of it in its fields. Networks that can solve in a second, cheaper
way (`Predictor.coarser_solution`) are calibrated once with and once without it: not every case has one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

LEVEL = 0.9
"""Share of cases that the bound shall cover."""
FROM_TRAINING = "distance from the training range"
"""The clue that divides cases into two parts."""
COARSER_SOLUTION = "difference from a second, coarser solution in "
"""Followed by an unknown: the clues of cases that have a coarser solution."""
BEYOND = " beyond "
"""In the name of a clue, what is large of another one: followed by the size from which on it counts."""
KIND = "kind: "
"""Followed by the kind of a case: a clue of which only the name counts."""
ALL, INSIDE, OUTSIDE = "all", "inside", "outside"
ALONE = " without a second opinion"
"""Follows the name of a part that knows no such clues."""
FEWEST = 20
"""Cases, below which a bound of 90 % cannot be told from the worst of them."""
_FEWEST_FAMILIES = 2
_FEWEST_OF_KIND = 9
"""Cases, below which those of all kinds are counted: with fewer, the bound would be the worst of them."""
_FOLDS = 10
"""Groups of cases that are left out together, where families are not."""
LeftOut = Literal["families", "cases"]
"""What scores, and coverage, are computed without."""
_NEIGHBOURS = 5
_SMALLEST_SCALE = 0.1
"""Of a clue: one that hardly varied among the cases is not blown up."""
_SMALLEST_ERROR, _LARGEST_ERROR = 1e-4, 30.0
_FARTHEST = 30.0
_HIGHEST = 6.0
"""Standardised clues are not followed beyond: an error is not extrapolated over decades."""
_LARGEST_LOGARITHM = 50.0
_PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0)
_HUBER = 1.5


@dataclass(frozen=True)
class Sample:
    """A prediction whose error is known.

    Attributes:
        name: Of case and time.
        family: Cases of one family are left out together.
        clues: What was measured without a reference solution, by name.
        errors: Relative, by unknown.
    """

    name: str
    family: str
    clues: Mapping[str, float]
    errors: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Clues:
    """How clues become standardised numbers. Clues that a case does not have count as typical.

    Attributes:
        names: Of the clues.
        worse: Whether more of it can only mean a larger error.
        centres: Medians.
        scales: Spreads.
        low: Smallest standardised values among the cases.
        high: Largest ones.
    """

    names: tuple[str, ...]
    worse: Bool[np.ndarray, " clues"]
    centres: Float[np.ndarray, " clues"]
    scales: Float[np.ndarray, " clues"]
    low: Float[np.ndarray, " clues"]
    high: Float[np.ndarray, " clues"]

    @classmethod
    def of(cls, samples: Sequence[Sample], worse: Mapping[str, bool]) -> Clues:
        known = {name for sample in samples for name in sample.clues if not name.startswith(KIND)}
        names = tuple(name for name in worse if name in known)
        raw = np.array([[sample.clues.get(name, math.nan) for name in names] for sample in samples])
        low, centres, high = np.nanquantile(raw, [0.25, 0.5, 0.75], axis=0)
        scales = np.maximum((high - low) / 1.35, _SMALLEST_SCALE)
        standard = (raw - centres) / scales
        return cls(
            names,
            np.array([worse[name] for name in names]),
            centres,
            scales,
            np.nanmin(standard, axis=0),
            np.nanmax(standard, axis=0),
        )

    def standardised(self, clues: Mapping[str, float]) -> Float[np.ndarray, " clues"]:
        raw = np.array([clues.get(name, math.nan) for name in self.names])
        standard = np.clip((raw - self.centres) / self.scales, -_FARTHEST, _FARTHEST)
        return np.where(np.isnan(standard), 0.0, standard)

    def for_regression(self, standard: Float[np.ndarray, "*cases clues"]) -> Float[np.ndarray, "*cases clues"]:
        """Within the range of the cases; beyond its upper end only what can but be worse."""
        above = np.where(self.worse, np.maximum(self.high, _HIGHEST), self.high)
        return np.clip(standard, self.low, above)


@dataclass(frozen=True, eq=False)
class Regression:
    """The logarithm of the error as a linear function of standardised clues."""

    intercept: float
    coefficients: Float[np.ndarray, " clues"]

    def at(self, inputs: Float[np.ndarray, "*cases clues"]) -> np.ndarray:
        return self.intercept + inputs @ self.coefficients


@dataclass(frozen=True, eq=False)
class Scores:
    """Of one unknown: the regression, and how far cases were from it when their family was left out.

    Attributes:
        regression: Fitted to all cases.
        values: Scores.
        weights: Of each: all families count alike. Their sum is one.
        usual_distance: Median over the cases of the distance to those of other families.
        number: Of cases; one at several times counts once. A new case is one more, which could be the worst of all.
    """

    regression: Regression
    values: Float[np.ndarray, " cases"]
    weights: Float[np.ndarray, " cases"]
    usual_distance: float
    number: int

    def quantile(self, level: float = LEVEL) -> float:
        """The score that the next case is below with this probability, if it is a case like the others.

        Of fewer than nine cases it is the largest score.
        """
        wanted, order = level * (1.0 + 1.0 / self.number), np.argsort(self.values, kind="stable")
        place = int(np.searchsorted(np.cumsum(self.weights[order]), wanted - 1e-9))
        return float(self.values[order[min(place, len(order) - 1)]])

    def of_only(self, chosen: Bool[np.ndarray, " cases"], number: int) -> Scores:
        weights = self.weights[chosen]
        return replace(self, values=self.values[chosen], weights=weights / weights.sum(), number=number)


@dataclass(frozen=True, eq=False)
class Part:
    """Cases that are calibrated together.

    Attributes:
        clues: Their names and scales.
        cases: Standardised clues of the cases.
        scores: By unknown.
        names: Of the cases.
        families: Of the cases.
        kinds: Of the cases, as far as they have any.
    """

    clues: Clues
    cases: Float[np.ndarray, "cases clues"]
    scores: Mapping[str, Scores]
    names: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()

    def distance(self, standard: Float[np.ndarray, " clues"]) -> float:
        """Mean distance to the nearest cases."""
        return _distance(standard, self.cases)

    def unlikeness(self, name: str, clues: Mapping[str, float]) -> float:
        """σ of a case: one for cases like the calibrated ones, larger further away."""
        far = self.distance(self.clues.standardised(clues))
        return max(1.0, far / self.scores[name].usual_distance)

    def contributions(self, name: str, clues: Mapping[str, float]) -> dict[str, float]:
        """By clue, how much it adds to the logarithm of the error, against a typical case."""
        inputs = self.clues.for_regression(self.clues.standardised(clues))
        return dict(zip(self.clues.names, (inputs * self.scores[name].regression.coefficients).tolist(), strict=True))

    def _scores_of(self, name: str, kind: str) -> Scores:
        """Those of the cases of a kind, if there are enough of them."""
        chosen = np.array([each == kind for each in self.kinds])
        number = distinct(each for each, own in zip(self.names, self.kinds, strict=True) if own == kind)
        scores = self.scores[name]
        return scores.of_only(chosen, number) if kind and number >= _FEWEST_OF_KIND else scores

    def estimate(self, name: str, clues: Mapping[str, float], level: float = LEVEL) -> tuple[float, float]:
        """The mean error of such cases and the bound that a share `level` of them is below."""
        scores = self._scores_of(name, kind_of(clues))
        inputs = self.clues.for_regression(self.clues.standardised(clues))
        middle, wide = float(scores.regression.at(inputs)), self.unlikeness(name, clues)
        score = scores.quantile(level)
        # The mean over the scores, of which those beyond the bound count as the bound: single ones have no say.
        logarithms = middle + wide * np.minimum(scores.values, score)
        expected = float((scores.weights * np.exp(np.minimum(logarithms, _LARGEST_LOGARITHM))).sum())
        return expected, math.exp(min(middle + wide * score, _LARGEST_LOGARITHM))


@dataclass(frozen=True, eq=False)
class Calibration:
    """Where errors of a network are known: what makes an expected error out of evidence.

    Attributes:
        parts: "inside" and "outside" of the training range, or "all"; where some have a coarser solution also those for
            cases without one (`ALONE`).
    """

    parts: Mapping[str, Part]

    @property
    def unknowns(self) -> tuple[str, ...]:
        return tuple(next(iter(self.parts.values())).scores)

    @property
    def knows_coarser_solutions(self) -> bool:
        return any(name.endswith(ALONE) for name in self.parts)

    def part(self, clues: Mapping[str, float]) -> Part:
        """The part that a case belongs to."""
        suffix = ALONE if self.knows_coarser_solutions and not _has_coarser_solution(clues) else ""
        whole = self.parts.get(ALL + suffix)
        return self.parts[_side(clues) + suffix] if whole is None else whole

    def unlikeness(self, name: str, clues: Mapping[str, float]) -> float:
        """How far a case is from the calibrated ones: one for cases like them, larger further away."""
        return self.part(clues).unlikeness(name, clues)

    def contributions(self, name: str, clues: Mapping[str, float]) -> dict[str, float]:
        """By clue, how much it adds to the logarithm of the error, against a typical case."""
        return self.part(clues).contributions(name, clues)

    def estimate(self, name: str, clues: Mapping[str, float], level: float = LEVEL) -> tuple[float, float]:
        """The mean error of such cases and the bound that a share `level` of them is below."""
        return self.part(clues).estimate(name, clues, level)


def without_coarser_solution(clues: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in clues.items() if not name.startswith(COARSER_SOLUTION)}


def kind_of(clues: Iterable[str]) -> str:
    """The kind of a case; empty where its equation knows none."""
    return next((name.removeprefix(KIND) for name in clues if name.startswith(KIND)), "")


def _side(clues: Mapping[str, float]) -> str:
    return OUTSIDE if clues.get(FROM_TRAINING, 0.0) > 0 else INSIDE


def fit(samples: Sequence[Sample], worse: Mapping[str, bool], left_out: LeftOut = "families") -> Calibration:
    """Calibrate on predictions whose error is known.

    Args:
        samples: Of several families, best those that the network was not trained on.
        worse: By clue, whether more of it can only mean a larger error.
        left_out: What each score is computed without.
    """
    families = {sample.family for sample in samples}
    if len(samples) < FEWEST or len(families) < _FEWEST_FAMILIES:
        raise ValueError(
            f"There are {len(samples)} cases of {len(families)} families to calibrate with; a bound that holds for "
            f"{100 * LEVEL:.0f} % of cases needs at least {FEWEST}, of two families or more."
        )
    return _fitted(samples, worse, left_out)


def _fitted(
    samples: Sequence[Sample], worse: Mapping[str, bool], left_out: LeftOut, with_alone: bool = True
) -> Calibration:
    """The calibration; the parts of cases without a coarser solution only if they are wanted."""
    with_second = [sample for sample in samples if _has_coarser_solution(sample.clues)]
    whole = _parts(with_second, worse, left_out) if _suffice(with_second) else {}
    if whole and not with_alone:
        return Calibration(whole)
    without = [replace(sample, clues=without_coarser_solution(sample.clues)) for sample in samples]
    alone = _parts(without, worse, left_out)
    return Calibration(whole | {side + ALONE: part for side, part in alone.items()} if whole else alone)


def _parts(samples: Sequence[Sample], worse: Mapping[str, bool], left_out: LeftOut) -> dict[str, Part]:
    sides = {side: [sample for sample in samples if _side(sample.clues) == side] for side in (INSIDE, OUTSIDE)}
    apart = all(_suffice(each) for each in sides.values()) and not any(kind_of(each.clues) for each in samples)
    return {side: _part(each, worse, left_out) for side, each in (sides if apart else {ALL: samples}).items()}


def _suffice(samples: Sequence[Sample]) -> bool:
    return len(samples) >= FEWEST and len({sample.family for sample in samples}) >= _FEWEST_FAMILIES


def _has_coarser_solution(clues: Iterable[str]) -> bool:
    return any(name.startswith(COARSER_SOLUTION) for name in clues)


def _part(samples: Sequence[Sample], worse: Mapping[str, bool], left_out: LeftOut) -> Part:
    names = [sample.name for sample in samples]
    clues = Clues.of(samples, worse)
    cases = np.array([clues.standardised(sample.clues) for sample in samples])
    inputs = clues.for_regression(cases)
    family = _numbered(sample.family for sample in samples)
    group = family if left_out == "families" else _numbered(map(case_of, names)) % _FOLDS
    weights = 1.0 / np.bincount(family)[family]
    weights = weights / weights.sum()
    away = np.array([_distance(case, cases[group != own]) for case, own in zip(cases, group, strict=True)])
    usual = float(np.median(away)) or 1.0
    wide = np.maximum(1.0, away / usual)
    kinds = tuple(kind_of(sample.clues) for sample in samples)
    scores = {}
    for name in samples[0].errors:
        errors = np.array([sample.errors[name] for sample in samples])
        logarithms = np.log(np.clip(np.nan_to_num(errors, nan=_LARGEST_ERROR), _SMALLEST_ERROR, _LARGEST_ERROR))

        def predicted(penalty: float, targets: np.ndarray = logarithms) -> np.ndarray:
            found = np.zeros(len(samples))
            for own in np.unique(group):
                other, mine = group != own, group == own
                found[mine] = _regression(inputs[other], targets[other], weights[other], clues.worse, penalty).at(
                    inputs[mine]
                )
            return found

        found = {penalty: predicted(penalty) for penalty in _PENALTIES}

        def wrong(penalty: float, found: Mapping[float, np.ndarray] = found, targets: np.ndarray = logarithms) -> float:
            return float((weights * np.abs(targets - found[penalty])).sum())

        best = min(_PENALTIES, key=wrong)
        regression = _regression(inputs, logarithms, weights, clues.worse, best)
        scores[name] = Scores(regression, (logarithms - found[best]) / wide, weights, usual, distinct(names))
    return Part(clues, cases, scores, tuple(names), tuple(sample.family for sample in samples), kinds)


def _numbered(names: Iterable[str]) -> np.ndarray:
    return np.unique(np.array(list(names)), return_inverse=True)[1]


def case_of(name: str) -> str:
    """The case of a name of a case and a time, such as "step t=4" and "step steady"."""
    return name.rpartition(" ")[0] or name


def distinct(names: Iterable[str]) -> int:
    """Number of cases among names of cases and times."""
    return len(set(map(case_of, names)))


def cross_validated(
    samples: Sequence[Sample],
    worse: Mapping[str, bool],
    on_family: Callable[[str], None] | None = None,
    only_judged: Container[str] = (),
    *,
    left_out: LeftOut = "families",
    scores_without: LeftOut = "families",
) -> list[tuple[Sample, dict[str, tuple[float, float]]]]:
    """Expected error and bound of every case by a calibration that does not know it, nor any case of its family.

    What is left out is passed over where the others are too few to calibrate with.

    Args:
        samples: Of several families.
        worse: As for `fit`.
        on_family: Is called after each group that was left out.
        only_judged: Names of samples that no calibration learns from.
        left_out: Whether cases of the same family are unknown as well.
        scores_without: As `left_out` of `fit`.
    """
    groups = [sample.family for sample in samples]
    if left_out == "cases":
        groups = [f"{number % _FOLDS}" for number in _numbered(case_of(sample.name) for sample in samples)]
    found = []
    for group in sorted(set(groups)):
        pairs = list(zip(samples, groups, strict=True))
        others = [sample for sample, own in pairs if own != group and sample.name not in only_judged]
        if len(others) < FEWEST // 2 or len({sample.family for sample in others}) < _FEWEST_FAMILIES:
            continue
        judged = [sample for sample, own in pairs if own == group]
        alone = not all(_has_coarser_solution(sample.clues) for sample in judged)
        calibration = _fitted(others, worse, scores_without, alone)
        for sample in judged:
            found.append((sample, {name: calibration.estimate(name, sample.clues) for name in calibration.unknowns}))
        if on_family is not None:
            on_family(group)
    return found


def _distance(standard: Float[np.ndarray, " clues"], cases: Float[np.ndarray, "cases clues"]) -> float:
    away = np.sqrt(np.mean((cases - standard) ** 2, axis=1))
    return float(np.sort(away)[:_NEIGHBOURS].mean())


def _regression(
    inputs: Float[np.ndarray, "cases clues"],
    targets: Float[np.ndarray, " cases"],
    weights: Float[np.ndarray, " cases"],
    worse: Bool[np.ndarray, " clues"],
    penalty: float,
) -> Regression:
    """Ridge regression with signs, by Huber's reweighting: a few diverged cases do not bend it."""
    from scipy.optimize import nnls

    free = np.flatnonzero(~worse)
    reweighted = weights * len(weights)
    coefficients, intercept = np.zeros(inputs.shape[1]), 0.0
    for _ in range(3):
        share = reweighted / reweighted.sum()
        middle, level = share @ inputs, float(share @ targets)
        centred = reweighted[:, None] * (inputs - middle)
        # The square system of the same solution: far fewer rows than cases.
        factor = np.linalg.cholesky((inputs - middle).T @ centred + penalty * np.eye(inputs.shape[1]))
        wanted = np.linalg.solve(factor, centred.T @ (targets - level))
        # Coefficients of any sign are differences of two that are not negative.
        both = nnls(np.hstack([factor.T, -factor.T[:, free]]), wanted)[0]
        coefficients = both[: len(worse)].copy()
        coefficients[free] -= both[len(worse) :]
        intercept = level - float(middle @ coefficients)
        off = np.abs(targets - intercept - inputs @ coefficients)
        limit = _HUBER * max(float(np.median(off)) / 0.6745, 1e-6)
        reweighted = weights * len(weights) * np.minimum(1.0, limit / np.maximum(off, 1e-12))
    return Regression(intercept, coefficients)
