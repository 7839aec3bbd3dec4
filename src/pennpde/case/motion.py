"""Test sets turned, reflected and shifted at random: a network that respects space predicts the same, moved along."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case

LARGEST_SHIFT = 10.0


def random_motion(
    space: int,
    random: np.random.Generator,
    reflections: bool | Literal["always"] = True,
    largest_shift: float = LARGEST_SHIFT,
) -> tuple[Float[Tensor, "space space"], Float[Tensor, " space"]]:
    """An orthogonal matrix, uniform over all rotations (and reflections), and a translation uniform in a cube.

    Args:
        space: 2 or 3.
        random: where the numbers come from.
        reflections: whether half of the matrices reflect, or all of them. With half of them, the matrices are uniform
            over the full group O(n).
        largest_shift: of each coordinate.
    """
    # The Q of a Gaussian matrix is uniform over O(n) once the signs of R's diagonal are taken out of it.
    orthogonal, triangular = np.linalg.qr(random.normal(size=(space, space)))
    orthogonal = orthogonal * np.sign(np.diag(triangular))
    reflects = np.linalg.det(orthogonal) < 0
    if (reflects and not reflections) or (not reflects and reflections == "always"):
        orthogonal[:, 0] *= -1.0
    translation = random.uniform(-largest_shift, largest_shift, space)
    return torch.from_numpy(orthogonal), torch.from_numpy(translation)


def motion_of(
    case: Case, seed: int = 0, reflections: bool = True, largest_shift: float = LARGEST_SHIFT
) -> tuple[Float[Tensor, "space space"], Float[Tensor, " space"]]:
    """The motion that `moved` applies to a case, so that predictions can be compared with those of the original."""
    random = np.random.default_rng([seed, zlib.crc32(case.name.encode())])
    return random_motion(case.space, random, reflections, largest_shift)


def moved(
    cases: Iterable[Case], seed: int = 0, reflections: bool = True, largest_shift: float = LARGEST_SHIFT
) -> list[Case]:
    """The transformed test set: each case with its own motion, under its own name. Fields and conditions move along.

    Args:
        cases: their names decide on the motions, together with the seed.
        seed: of the set.
        reflections: whether half of the motions reflect.
        largest_shift: of each coordinate.
    """
    return [case.moved(*motion_of(case, seed, reflections, largest_shift)) for case in cases]
