"""How wrong a prediction probably is: expected error, bound and grade of every unknown, and where on the mesh.

A network's folder may hold `expected_error.json`, which `penn calibrate` writes: errors of the network on cases with
truth (`calibration`). Without it the expected error is unknown.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from pennpde import __version__
from pennpde.checkpoints import CheckpointError, config_of, expected_error_file, origin_of
from pennpde.files import plain, read_regular, write_json
from pennpde.trust.calibration import (
    ALL,
    ALONE,
    BEYOND,
    INSIDE,
    LEVEL,
    OUTSIDE,
    Calibration,
    Clues,
    Part,
    Regression,
    Scores,
    distinct,
)
from pennpde.trust.evidence import NOT_FINITE, Evidence
from pennpde.trust.swinging import SwingErrors

FORMAT, FORMAT_VERSION = "pennpde expected error", 3
GOOD, FAIR, POOR, REFUSED, UNKNOWN = "good", "fair", "poor", "refused", "unknown"
GRADES = (GOOD, FAIR, POOR, REFUSED)
"""From the best to the worst."""
LARGEST_BOUND_OF = {GOOD: 0.075, FAIR: 0.25}
"""A prediction is good or fair by the bound, not by the expected error: one in ten is above."""
REFUSED_ABOVE = 0.5
"""Expected error from which `penn predict` writes nothing unless it is forced to."""
_LARGEST_FILE = 50_000_000
_EVERY_LEVEL = "every level"
_LARGEST_PERCENT = 1000
"""Printed; ten times the field or a thousand times it are the same to a user."""
_REASONS = 3
_WORTH_NAMING = 0.3
"""Part of the logarithm of the error that a clue must explain to be named as a reason."""


@dataclass(frozen=True)
class ExpectedError:
    """Of one unknown, relative to its size (in L2 over the domain).

    Attributes:
        expected: The mean error of such cases.
        bound: What 90 % of such cases are below.
    """

    expected: float
    bound: float

    @property
    def grade(self) -> str:
        if not self.expected <= REFUSED_ABOVE:
            return REFUSED
        return _grade_of_bound(self.bound)

    def __str__(self) -> str:
        if not math.isfinite(self.expected):
            return "not usable"
        if self.bound > _LARGEST_PERCENT / 100:
            return f"{_percent(self.expected)} (no useful bound)".replace("%", " %")
        return f"{_percent(self.expected)} ({LEVEL:.0%} of such cases below {_percent(self.bound)})".replace("%", " %")


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected errors of a prediction, at one time or at the worst of several.

    Attributes:
        errors: By unknown; empty where they are not known.
        unlikeness: How far the case is from those with known errors: one for cases like them, 2 for twice as far as
            one family of them is from the others.
        reasons: What makes the error larger than usual, the largest part first.
        remedies: What would make it smaller.
        local: By unknown, the expected error at each point of the user's mesh, in the unknown's unit: where not to
            trust the fields. Its mean square is that of the expected error.
        unknown_because: Why the errors are not known.
        missing: What the case says and the network does not know, a sentence each. The expected errors are those of the
            problem that was solved, not of the one that was asked; so the grade is poor at best.
        ignored: Terms of the case's equations that were not solved, a sentence each. Then no error can be expected.
        unconverged: Whether the equations were not solved to their tolerance. Then expected errors, which are learned
            from converged solutions, say too little, and the grade is poor at best as well.
        swing: Where the flow repeats itself, by how much amplitude and frequency differ from those on coarser cells;
            the errors are those of the mean then.
    """

    errors: Mapping[str, ExpectedError] = field(default_factory=dict)
    unlikeness: float = 1.0
    reasons: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    local: Mapping[str, Float[Tensor, " points"]] = field(default_factory=dict)
    unknown_because: str = ""
    missing: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unconverged: bool = False
    swing: SwingErrors | None = None

    def __repr__(self) -> str:
        return f"Expected({self.in_short})"

    @property
    def grade(self) -> str:
        """That of the first unknown, lowered by the others (`grade_of`), by what is missing and if not converged."""
        if self.ignored:
            return REFUSED
        grade = grade_of(self.errors)
        if self.swing is not None and grade != UNKNOWN:
            grade = max(grade, _grade_of_bound(self.swing.largest), key=GRADES.index)
        lowered = (self.missing or self.unconverged) and grade != UNKNOWN
        return max(grade, POOR, key=GRADES.index) if lowered else grade

    def lines(self) -> list[str]:
        """For people."""
        if not self.errors:
            grade = [f"  {'grade':<32}{self.grade}"] if self.ignored else []
            return [f"  {'expected error':<32}unknown: {self.unknown_because}", *grade]
        of = "expected error of" if self.swing is None else "expected error of the mean"
        rows = [f"  {f'{of} {name}':<32}{each}" for name, each in self.errors.items()]
        if self.swing is not None:
            told = [f"amplitude of {name} {_percent(each)}" for name, each in self.swing.amplitudes.items()]
            told = ", ".join([f"frequency {_percent(self.swing.frequency)}", *told]).replace("%", " %")
            rows.append(f"  {'cells twice as large differ by':<32}{told}")
        return [*rows, f"  {'grade':<32}{self.grade}"]

    @property
    def in_short(self) -> str:
        """One line, as for the corner of a picture."""
        if not self.errors:
            return f"{REFUSED}: other physics, expected error unknown" if self.ignored else "expected error unknown"
        parts = ", ".join(f"{name} {_percent(each.expected)}" for name, each in self.errors.items())
        of = "" if self.swing is None else " of the mean"
        return f"{self.grade}: expected error{of} {parts}".replace("%", " %")

    @property
    def bounds(self) -> str:
        """What goes with that line where there is room: what most cases of such errors are below."""
        if not self.errors or any(each.bound > _LARGEST_PERCENT / 100 for each in self.errors.values()):
            return ""
        parts = ", ".join(f"{name} {_percent(each.bound)}" for name, each in self.errors.items())
        return f" ({LEVEL:.0%} of such cases below {parts})".replace("%", " %")

    @property
    def warnings(self) -> list[str]:
        """What a user must know before using the fields."""
        bad = {name: each for name, each in self.errors.items() if each.grade in (POOR, REFUSED)}
        if not (bad or self.ignored or self.unconverged or (self.missing and self.errors)):
            return []
        sentences = []
        if self.ignored:
            sentences.append(
                "The equations of the case have terms that were left out, see the other warnings; how wrong the fields "
                "are is not known."
            )
        if self.unconverged:
            sentences.append(
                "The steady state has not converged: the flow may not have one that is stable. Ask for times instead "
                "(--time), or take a finer mesh or a lower Reynolds number."
            )
        if bad:
            told = "; ".join(f"expected error of {name} {each}" for name, each in bad.items())
            sentences.append(f"{told[0].upper()}{told[1:]}.")
        if self.missing:
            sentences.append("The network does not know all that the case says, see the other warnings.")
        if bad and self.reasons:
            sentences.append(f"Mostly because of {_listed(self.reasons)}.")
        return [f"Graded {self.grade}. {' '.join(sentences)}"]

    @property
    def advice(self) -> str:
        """What would help."""
        remedies = [*self.remedies, "training on cases like this one"]
        return f"What would help: {'; '.join(dict.fromkeys(remedies))}."

    def as_dict(self) -> dict[str, Any]:
        """In JSON's terms."""
        return plain(
            {
                "grade": self.grade,
                "errors": {
                    name: {"expected": each.expected, "bound": each.bound, "level": LEVEL, "grade": each.grade}
                    for name, each in self.errors.items()
                },
                "unlikeness": self.unlikeness,
                "reasons": self.reasons,
                "remedies": self.remedies,
                "unknown_because": self.unknown_because,
                "missing": self.missing,
                "ignored": self.ignored,
                "converged": not self.unconverged,
                "swing": None if self.swing is None else asdict(self.swing),
            }
        )

    def facts(self) -> dict[str, str | Sequence[float]]:
        """For the field data of a file."""
        numbers = {f"expected error of {name}": (each.expected, each.bound) for name, each in self.errors.items()}
        return {"grade": self.grade, **numbers}


def _grade_of_bound(bound: float) -> str:
    return next((grade for grade, largest in LARGEST_BOUND_OF.items() if bound <= largest), POOR)


def grade_of(errors: Mapping[str, ExpectedError]) -> str:
    """The grade of a prediction: that of its first unknown (of flows the velocity), lowered by the others.

    Another unknown that is fair or poor makes it fair at best, one that would be refused makes it poor at best: a
    velocity can be of use without its pressure.
    """
    if not errors:
        return UNKNOWN
    first, *others = (each.grade for each in errors.values())
    return max((first, *(_AT_BEST[each] for each in others)), key=GRADES.index)


_AT_BEST = {GOOD: GOOD, FAIR: FAIR, POOR: FAIR, REFUSED: POOR}


@dataclass(frozen=True)
class Uncalibrated:
    """Why a network has no calibration.

    Attributes:
        why: For the user.
        measuring: Whether its errors are being measured for one, so that all clues are wanted.
    """

    why: str = "the network has not been calibrated; see penn calibrate"
    measuring: bool = False


def judge(calibration: Calibration | Uncalibrated, evidence: Evidence, unknowns: Sequence[str]) -> Expected:
    """The expected error of a prediction from what was measured on it.

    Args:
        calibration: Of the network, or why it has none.
        evidence: Of the prediction at one time.
        unknowns: Those of the equation.
    """
    if any(clue.name == NOT_FINITE for clue in evidence.clues):
        return Expected(dict.fromkeys(unknowns, ExpectedError(math.inf, math.inf)), math.inf, ("values not finite",))
    if isinstance(calibration, Uncalibrated):
        return Expected(unknown_because=calibration.why)
    numbers = evidence.numbers
    known = [name for name in unknowns if name in calibration.unknowns]
    errors = {name: ExpectedError(*calibration.estimate(name, numbers)) for name in known}
    unlikeness = max(calibration.unlikeness(name, numbers) for name in known)
    shares: dict[str, float] = {}
    for name in known:
        together: dict[str, float] = defaultdict(float)
        for clue, share in calibration.contributions(name, numbers).items():
            together[clue.partition(BEYOND)[0]] += share
        for clue, share in together.items():
            shares[clue] = max(share, shares.get(clue, 0.0))
    remedies = {clue.name: clue.remedy for clue in evidence.clues if clue.remedy}
    named = [clue for clue in sorted(shares, key=lambda each: -shares[each]) if shares[clue] > _WORTH_NAMING]
    reasons = named[:_REASONS]
    if unlikeness > 2.0:
        reasons = ["no similar case among those with known errors", *reasons]
    helps = tuple(dict.fromkeys(remedies[clue] for clue in named if clue in remedies))
    return Expected(errors, unlikeness, tuple(reasons), helps)


def worst(moments: Sequence[Expected]) -> Expected:
    """The worst of several times, unknown by unknown; the local fields are those of the last."""
    if not all(each.errors for each in moments):
        return moments[-1]
    errors = {
        name: ExpectedError(
            max(each.errors[name].expected for each in moments), max(each.errors[name].bound for each in moments)
        )
        for name in moments[-1].errors
    }
    gravest = max(moments, key=lambda each: max(error.expected for error in each.errors.values()))
    unconverged = any(each.unconverged for each in moments)
    return replace(gravest, errors=errors, local=moments[-1].local, unconverged=unconverged)


# On disk


def write(folder: Path | str, calibration: Calibration, about: Mapping[str, Any], level: str = "") -> Path:
    """Write a calibration next to the weights that it belongs to.

    Args:
        folder: Of the network.
        calibration: Of this network.
        about: Where its cases come from, how good it is, and `weights_sha256`.
        level: Of accuracy, for networks that have such.
    """
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        **about,
        "parts": {side: _part_content(part) for side, part in calibration.parts.items()},
    }
    path = Path(folder) / expected_error_file(level)
    write_json(path, content, indent=None)
    return path


def _part_content(part: Part) -> dict[str, Any]:
    clues = part.clues
    return {
        "clues": [
            {
                "name": name,
                "worse": bool(clues.worse[place]),
                "centre": _digits(clues.centres[place]),
                "scale": _digits(clues.scales[place]),
                "low": _digits(clues.low[place]),
                "high": _digits(clues.high[place]),
            }
            for place, name in enumerate(clues.names)
        ],
        "unknowns": {
            name: {
                "intercept": _digits(scores.regression.intercept),
                "coefficients": [_digits(each) for each in scores.regression.coefficients],
                "scores": [_digits(each) for each in scores.values],
                "weights": [_digits(each, 8) for each in scores.weights],
                "usual_distance": _digits(scores.usual_distance),
            }
            for name, scores in part.scores.items()
        },
        "cases": [
            [name, family, [round(float(each), 3) for each in row], kind]
            for name, family, row, kind in zip(part.names, part.families, part.cases, part.kinds, strict=True)
        ],
    }


def read(
    folder: Path | str, weights_sha256: str, level: str = "", arguments: Mapping[str, Any] | None = None
) -> Calibration | None:
    """The calibration in the folder of a network, checked; None where there is none.

    Args:
        folder: Of the network.
        weights_sha256: Of its weights: those of another network, or of an earlier training, are refused.
        level: Of accuracy, for networks that have such.
        arguments: With which it was built, such as the length of its steps: others give other errors. They are
            compared where the file has them.
    """
    path = Path(folder) / expected_error_file(level)
    if not path.exists():
        return None
    try:
        content = json.loads(read_regular(path, _LARGEST_FILE))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}. Run penn calibrate again, or remove it.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is of another program: it does not say that its format is {FORMAT!r}.")
    version = content.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}; this is pennpde {__version__}, which reads up to "
            f"{FORMAT_VERSION}. Install a newer pennpde."
        )
    if content.get("weights_sha256") != weights_sha256:
        raise CheckpointError(
            f"{path} belongs to other weights: it was made for those of sha256 "
            f"{str(content.get('weights_sha256'))[:12]}..., but the network has {weights_sha256[:12]}.... Run penn "
            "calibrate again, or remove it."
        )
    known = content.get("arguments")
    if arguments is not None and known is not None and plain(arguments) != known:
        raise CheckpointError(
            f"{path} belongs to other arguments of the network: it was made for {known}, but config.json has "
            f"{plain(arguments)}. Run penn calibrate again, or remove it."
        )
    try:
        return _calibration(content["parts"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"{path} is damaged: {type(error).__name__}: {error}. Run penn calibrate again, or remove it."
        ) from error


def calibration_of(model: nn.Module) -> Calibration | Uncalibrated:
    """The calibration of a network that was loaded, or why it has none. Read once per network and level."""
    level = getattr(model, "level", "")
    by_level: dict[str, Calibration | Uncalibrated] = getattr(model, "checkpoint_calibrations", {})
    known = by_level.get(_EVERY_LEVEL, by_level.get(level))
    if known is None:
        config, folder = config_of(model), origin_of(model)
        if config is None or folder is None:
            known = Uncalibrated("the network was not loaded from a folder")
        else:
            known = read(folder, config.weights_sha256, level, config.arguments) or Uncalibrated()
        object.__setattr__(model, "checkpoint_calibrations", {**by_level, level: known})
    return known


@contextmanager
def uncalibrated(model: nn.Module, *, measuring: bool = True) -> Iterator[None]:
    """Predictions of a network without expected errors: what its folder knows of them may be of other weights.

    Args:
        model: The network.
        measuring: Whether its errors are measured for a calibration, which takes all clues, also expensive ones.
    """
    before = getattr(model, "checkpoint_calibrations", {})
    switched_off = Uncalibrated("it is switched off", measuring)
    object.__setattr__(model, "checkpoint_calibrations", {_EVERY_LEVEL: switched_off})
    try:
        yield
    finally:
        object.__setattr__(model, "checkpoint_calibrations", before)


def _calibration(content: Mapping[str, Any]) -> Calibration:
    parts = {str(side): _part(each) for side, each in content.items()}
    known = ({ALL}, {INSIDE, OUTSIDE})
    usual = {name for name in parts if not name.endswith(ALONE)}
    alone = {name.removesuffix(ALONE) for name in parts.keys() - usual}
    if usual not in known or alone not in (set(), *known):
        raise ValueError(f"its parts are {sorted(parts)}")
    return Calibration(parts)


def _part(content: Mapping[str, Any]) -> Part:
    rows = content["clues"]
    columns = {
        key: _numbers([row[key] for row in rows], (len(rows),)) for key in ("centre", "scale", "low", "high", "worse")
    }
    if not (columns["scale"] > 0).all():
        raise ValueError("a scale is not positive")
    clues = Clues(
        tuple(str(row["name"]) for row in rows),
        columns["worse"] != 0,
        columns["centre"],
        columns["scale"],
        columns["low"],
        columns["high"],
    )
    number = len(content["cases"])
    if not number or not rows or not content["unknowns"]:
        raise ValueError("it has no cases, clues or unknowns")
    cases = _numbers([row[2] for row in content["cases"]], (number, len(rows)))
    scores = {}
    for name, each in content["unknowns"].items():
        regression = Regression(float(_numbers(each["intercept"], ())), _numbers(each["coefficients"], (len(rows),)))
        values, weights = (_numbers(each[key], (number,)) for key in ("scores", "weights"))
        distance = float(_numbers(each["usual_distance"], ()))
        if distance <= 0 or (weights < 0).any() or not abs(weights.sum() - 1.0) < 1e-3:
            raise ValueError(f"distance or weights of {name} are impossible")
        scores[str(name)] = Scores(
            regression, values, weights / weights.sum(), distance, distinct(str(row[0]) for row in content["cases"])
        )
    names, families = (tuple(str(row[place]) for row in content["cases"]) for place in (0, 1))
    kinds = tuple(str(row[3]) if len(row) > 3 else "" for row in content["cases"])
    return Part(clues, cases, scores, names, families, kinds)


def _numbers(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "bif" or array.shape != shape:
        raise ValueError(f"numbers of shape {list(shape)} are expected, found {array.dtype} of {list(array.shape)}")
    if not np.isfinite(array).all():
        raise ValueError("one of its numbers is not finite")
    return array.astype(float)


def _digits(value: float, number: int = 5) -> float:
    return float(f"{float(value):.{number}g}")


def _percent(share: float) -> str:
    percent = 100.0 * share
    if percent > _LARGEST_PERCENT:
        return f"more than {_LARGEST_PERCENT}%"
    return f"{percent:.0f}%" if percent >= 9.5 else f"{percent:.1g}%" if percent < 0.95 else f"{percent:.2g}%"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
