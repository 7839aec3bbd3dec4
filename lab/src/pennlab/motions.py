"""Test sets after rigid motions: a network that respects space predicts the same, moved along."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.testing import random_motion


def motion_of(case: Case, seed: int = 0) -> tuple[Float[Tensor, "space space"], Float[Tensor, " space"]]:
    """The motion that `moved` applies to a case, so that predictions can be compared with those of the original."""
    return random_motion(case.space, np.random.default_rng([seed, zlib.crc32(case.name.encode())]))


def moved(cases: Iterable[Case], seed: int = 0) -> list[Case]:
    """Each case with its own motion, which its name and the seed decide on; fields and conditions move along."""
    return [case.moved(*motion_of(case, seed)) for case in cases]
