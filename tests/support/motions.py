"""Random rotations and reflections of the plane and of space."""

import numpy as np
import torch

from pennpde.testing import random_motion


def random_orthogonal(space: int, seed: int, *, reflection: bool = False) -> torch.Tensor:
    return random_motion(space, np.random.default_rng(seed), "always" if reflection else False)[0]
