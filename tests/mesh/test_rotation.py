"""Fields turn with the space they live in."""

import torch
from torch.testing import assert_close

from motions import random_orthogonal
from pennpde.mesh.mesh import turned


def test_a_tensor_product_turns_as_its_vectors_do():
    rotation = random_orthogonal(3, 1, reflection=True)
    first, second = torch.randn(2, 7, 3, dtype=torch.float64)
    product = torch.einsum("pi,pj->pij", first, second)
    by_hand = torch.einsum("pi,pj->pij", first @ rotation.T, second @ rotation.T)
    assert_close(turned(product, rotation, 2), by_hand)


def test_axes_beyond_the_rank_are_channels_and_stay():
    rotation = random_orthogonal(2, 1)
    vector = torch.randn(5, 2, 4, dtype=torch.float64)
    assert_close(turned(vector, rotation, 1), torch.stack([each @ rotation.T for each in vector.unbind(2)], dim=2))
    assert turned(vector, rotation, 0) is vector
