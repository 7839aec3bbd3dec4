"""Training, validation and test, with near twins always in the same split."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from pennpde.data.runs.likeness import Signature, distance

SPLITS = ("train", "validation", "test")
_FULL_ENOUGH = 0.7
"""Share of the wanted number of cases with which a split is accepted rather than its twins be parted."""


@dataclass(frozen=True)
class Shares:
    """Of all runs, how many are held out."""

    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.validation < 1 and 0 <= self.test < 1 and self.validation + self.test < 1):
            raise ValueError(
                f"The shares of validation and test are {self.validation:g} and {self.test:g}; both must be 0 or more, "
                "and together less than 1."
            )

    def numbers(self, cases: int) -> tuple[int, int]:
        """How many cases go into validation and test: at least one each where there are three or more."""
        test, validation = round(self.test * cases), round(self.validation * cases)
        if cases >= 2 and self.test > 0:
            test = max(1, test)
        if cases >= 3 and self.validation > 0:
            validation = max(1, validation)
        return validation, test


@dataclass(frozen=True)
class Division:
    """Which runs are in which split.

    Attributes:
        nearest: the smallest distance between runs of different splits; below 1 they are near twins. None: one split.
        groups: how many groups of near twins there are among the runs.
        closest: the names of these two runs.
    """

    splits: Mapping[str, Sequence[str]]
    nearest: float | None
    groups: int
    closest: tuple[str, ...] = ()


def divide(signatures: Mapping[str, Signature], shares: Shares, known: Mapping[str, str] | None = None) -> Division:
    """Split runs.

    Groups are cut at the largest distance up to 1 at which validation and test can be filled. A family in which every
    run has a neighbour nearer than that is one chain of near twins; it has to be cut somewhere, and the report says so.

    Args:
        signatures: by name of the run.
        shares: how many are held out, and the seed.
        known: by name, the split of runs that have been divided before; it is kept.
    """
    known = dict(known or {})
    names = list(signatures)
    apart = distances([signatures[name] for name in names])
    validation, test = shares.numbers(len(names))
    wanted: dict[str, int] = {"validation": validation, "test": test}
    levels = [1.0, *sorted({float(each) for each in apart[apart < 1.0]} - {0.0}, reverse=True)]
    best: dict[str, str] = {}
    groups: list[list[int]] = []
    for level in levels:
        groups = _groups(apart, level)
        best = _assigned(groups, names, known, wanted, shares.seed)
        count = Counter(best.values())
        if all(count[split] >= _FULL_ENOUGH * number for split, number in wanted.items()):
            break
    nearest, closest = None, ()
    for one, other in combinations(range(len(names)), 2):
        if best[names[one]] != best[names[other]] and (nearest is None or apart[one, other] < nearest):
            nearest, closest = float(apart[one, other]), (names[one], names[other])
    splits = {split: [name for name in names if best[name] == split] for split in SPLITS}
    return Division(splits, nearest, len(groups), closest)


def distances(signatures: Sequence[Signature]) -> Float[np.ndarray, "runs runs"]:
    """Between all runs."""
    found = np.zeros((len(signatures), len(signatures)))
    for one, other in combinations(range(len(signatures)), 2):
        found[one, other] = found[other, one] = distance(signatures[one], signatures[other])
    return found


def _groups(apart: np.ndarray, level: float) -> list[list[int]]:
    """Runs that are linked by distances below a level."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    number, of_run = connected_components(csr_array((apart < level).astype(np.int8)), directed=False)
    return [np.flatnonzero(of_run == group).tolist() for group in range(number)]


def _assigned(
    groups: Sequence[Sequence[int]],
    names: Sequence[str],
    known: Mapping[str, str],
    wanted: Mapping[str, int],
    seed: int,
) -> dict[str, str]:
    left = {split: number - sum(each == split for each in known.values()) for split, number in wanted.items()}
    found = dict(known)
    order = np.random.default_rng(seed).permutation(len(groups))
    # Large groups last: they fill the training set, and small ones leave no gap in the others.
    for group in sorted((groups[place] for place in order), key=lambda group: len(group) > 1):
        members: list[str] = [names[int(place)] for place in group]
        new = [name for name in members if name not in known]
        before = Counter(known[name] for name in members if name in known)
        if before:
            split = before.most_common(1)[0][0]
        else:
            split = next((each for each in ("test", "validation") if 0 < len(new) <= left[each]), "train")
        if split in left:
            left[split] -= len(new)
        found.update(dict.fromkeys(new, split))
    return found
