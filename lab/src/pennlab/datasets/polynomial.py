"""Gradients of polynomials on bricks: the cases of the paper's first experiment, computed from formulas."""

from __future__ import annotations

import re

import numpy as np
import torch
from jaxtyping import Float

from pennpde.case import Case
from pennpde.mesh import Mesh

SPLITS = ("train", "validation", "test")
SAMPLES = 100
"""Of each split."""
CELL_SIZE = 0.1
DEGREE = 10
_FEWEST_CELLS, _MOST_CELLS = 10, 20


def splits(samples: int = SAMPLES) -> dict[str, list[str]]:
    """The names of the cases of each split."""
    return {split: [f"{split}_{number:03}" for number in range(samples)] for split in SPLITS}


def parse_name(name: str) -> tuple[str, int]:
    """Split and number of a case."""
    match = re.fullmatch(r"(\w+)_(\d+)", name)
    if match is None or match[1] not in SPLITS:
        raise ValueError(f"{name!r} names no case of the gradient set; names look like 'train_007' or 'test_012'.")
    return match[1], int(match[2])


def gradient_case(name: str, seed: int = 0, cross_terms: bool = False) -> Case:
    """A polynomial on a brick, its normal derivative on the boundary, and its gradient as the target.

    Args:
        name: such as "train_007". Each split has its own seed, each case its own random numbers.
        seed: of the whole set.
        cross_terms: whether the polynomial has all products up to degree 10. Otherwise it is a sum of polynomials of x,
            of y and of z, as the authors' are.
    """
    split, number = parse_name(name)
    random = np.random.default_rng([seed, SPLITS.index(split), number])
    mesh = brick(*random.integers(_FEWEST_CELLS, _MOST_CELLS + 1, 3))
    values, gradient = _polynomial(mesh.points.numpy(), random_coefficients(random, cross_terms))
    largest = np.abs(values).max()
    values, gradient = torch.from_numpy(values / largest), torch.from_numpy(gradient / largest)
    return Case(
        mesh,
        initial={"phi": values},
        neumann={"phi": {"boundary": (mesh.normals * gradient).sum(dim=1)}},
        targets={"grad": gradient},
        name=name,
    )


def brick(cells_x: int, cells_y: int, cells_z: int, cell_size: float = CELL_SIZE) -> Mesh:
    """A brick of cubes, with all of its surface as the patch boundary."""
    counts = (cells_x + 1, cells_y + 1, cells_z + 1)
    axes = [cell_size * np.arange(count) for count in counts]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    number = np.arange(x.size).reshape(counts)
    corners = [
        number[i : i + cells_x, j : j + cells_y, k : k + cells_z]
        for k in (0, 1)
        for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))
    ]
    mesh = Mesh.from_arrays(
        np.stack([x, y, z], axis=-1).reshape(-1, 3), np.stack(corners, axis=-1).reshape(-1, 8), "hexahedron"
    )
    return mesh.with_patches({"boundary": mesh.boundary_points})


def random_coefficients(random: np.random.Generator, cross_terms: bool) -> Float[np.ndarray, "11 11 11"]:
    """Uniform from -1 to 1, those of xⁱyʲzᵏ at [i, j, k]; there is no constant, and no degree above 10."""
    coefficients = random.uniform(-1.0, 1.0, (DEGREE + 1,) * 3)
    powers = np.indices(coefficients.shape)
    kept = (powers.sum(axis=0) <= DEGREE) if cross_terms else ((powers > 0).sum(axis=0) == 1)
    kept[0, 0, 0] = False
    return np.where(kept, coefficients, 0.0)


def _polynomial(
    points: Float[np.ndarray, "points 3"], coefficients: Float[np.ndarray, "11 11 11"]
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points 3"]]:
    """A polynomial of the position relative to the mean point, and its gradient."""
    powers = np.arange(DEGREE + 1)
    # A lattice has few different coordinates; the products over all points are taken last.
    bases, slopes, places = [], [], []
    for coordinate in (points - points.mean(axis=0)).T:
        distinct, place = np.unique(np.round(coordinate, 12), return_inverse=True)
        base = distinct[:, None] ** powers
        bases.append(base)
        slopes.append(np.concatenate([np.zeros((len(base), 1)), base[:, :-1] * powers[1:]], axis=1))
        places.append(place)

    def at_points(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        table = np.einsum("ijk,ck->ijc", coefficients, z)
        table = np.einsum("ijc,bj->ibc", table, y)
        table = np.einsum("ibc,ai->abc", table, x)
        return table[tuple(places)]

    gradient = [at_points(*(slopes[n] if n == axis else bases[n] for n in range(3))) for axis in range(3)]
    return at_points(*bases), np.stack(gradient, axis=1)
