"""The designs of a study: a full grid, samples that fill the space evenly, or the rows of a CSV file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from pennpde.files import read_regular
from pennpde.study.variables import Variable

GRID, LATIN_HYPERCUBE, SOBOL = "grid", "latin-hypercube", "sobol"
_MOST = 1_000_000
_MOST_BYTES = 200_000_000


@dataclass(frozen=True)
class Design:
    """One variant.

    Attributes:
        number: From 1; it stays the same however often a study is started again.
        values: By the name of a variable.
    """

    number: int
    values: Mapping[str, float]

    def part(self, names: Sequence[str] | frozenset[str]) -> dict[str, float]:
        """The values of some variables."""
        return {name: value for name, value in self.values.items() if name in names}


def designs_of(variables: Sequence[Variable], kind: str, number: int | None, seed: int) -> list[Design]:
    """All designs, in order.

    Args:
        variables: That vary.
        kind: "grid", "latin-hypercube" or "sobol".
        number: Of designs, where they are samples.
        seed: Of the samples.
    """
    if not variables:
        raise ValueError('Nothing varies; say what does, as in --vary "viscosity=1e-3:1e-2:log:20".')
    names = [each.name for each in variables]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(doubled)} is given twice; each variable has one range.")
    if kind == GRID:
        count = math.prod(len(each.steps) for each in variables)
        if count > _MOST:
            raise ValueError(f"A full grid has {count:,} designs, at most {_MOST:,} are computed; take sobol samples.")
        rows = list(product(*(each.steps for each in variables)))
    else:
        if number is None or not 1 <= number <= _MOST:
            raise ValueError(f"A {kind} design needs the number of designs, from 1 to {_MOST:,}; got {number}.")
        shares = _samples(kind, len(variables), number, seed)
        rows = [tuple(map(Variable.neatly, variables, row)) for row in shares.tolist()]
    return [Design(place, dict(zip(names, row, strict=True))) for place, row in enumerate(rows, 1)]


def _samples(kind: str, dimension: int, number: int, seed: int) -> np.ndarray:
    from scipy.stats import qmc  # half a second to load

    if kind == LATIN_HYPERCUBE:
        return qmc.LatinHypercube(dimension, rng=np.random.default_rng(seed)).random(number)
    if kind == SOBOL:
        sampler = qmc.Sobol(dimension, rng=np.random.default_rng(seed))
        return sampler.random_base2(math.ceil(math.log2(number)))[:number]
    raise ValueError(f"The design is {kind!r}; it may be {GRID}, {LATIN_HYPERCUBE}, {SOBOL} or a .csv file.")


def read_designs(path: Path) -> list[Design]:
    """The rows of a CSV file whose first line has the names of the variables."""
    text = read_regular(path, _MOST_BYTES).decode("utf-8-sig")
    rows = [[item.strip() for item in row] for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    if len(rows) < 2:
        raise ValueError(
            f"{path} has no designs: give a line of names, such as viscosity,inlet.u, and a line for each."
        )
    names = rows[0]
    if len(set(names)) < len(names) or not all(names):
        raise ValueError(f"{path} begins with {','.join(names)!r}; give every column a name of its own.")
    designs = []
    for place, row in enumerate(rows[1:], 1):
        try:
            numbers = [float(item) for item in row]
        except ValueError:
            numbers = []
        if len(numbers) != len(names) or not all(map(math.isfinite, numbers)):
            raise ValueError(f"{path}: design {place} is {','.join(row)!r}; it needs a number for each of {names}.")
        designs.append(Design(place, dict(zip(names, numbers, strict=True))))
    return designs
