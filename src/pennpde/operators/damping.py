"""The Laplacian as one matrix, div x grad, with a damping of what alternates from point to point.

A gradient that is fitted to the neighbours of a point hardly sees a field that alternates, so div(grad) lets it be, and
with Neumann sides may even feed it. What the gradients leave unexplained of the differences between neighbours sees
just that (`roughness`), vanishes on linear fields, and has entries where div x grad has them anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    import scipy.sparse

    from pennpde.operators.graph import ClosedNeighbours


@dataclass(frozen=True)
class Damping:
    """How much of the roughness is added.

    Attributes:
        strength: everywhere; 0.25 to 1 makes alternating modes decay as they do under the real Laplacian.
        smallest_decay: what div(grad) must take of a point's own value at least, as a share of the roughness; it takes
            0.2 on regular meshes. A point whose neighbours lie so that it takes less, or even feeds the value, gets as
            much more damping as is missing. With none at all nothing is added anywhere.
    """

    strength: float = 0.0
    smallest_decay: float = 0.1

    @classmethod
    def of(cls, given: float | Damping) -> Damping:
        """A number is a strength."""
        return given if isinstance(given, Damping) else cls(given)

    def __str__(self) -> str:
        return f"{self.strength:g} (smallest decay {self.smallest_decay:g})"


def damped_laplacian(
    gradient: scipy.sparse.csr_matrix,
    divergence: scipy.sparse.csr_matrix,
    moment_inverse: Float[np.ndarray, "points space space"],
    damping: Damping,
    closed: ClosedNeighbours | None = None,
    taken: scipy.sparse.csr_matrix | None = None,
) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """The matrix on a field, and the one on its gradient that went into it.

    Through the latter goes what is added to the gradient, such as prescribed normal derivatives.

    Args:
        gradient: rows (point, axis), columns points.
        divergence: rows points, columns (point, axis).
        moment_inverse: of the fit at each point.
        damping: how much of the roughness is added.
        closed: the neighbours, where there are periodic pairs.
        taken: what a Robin condition takes from the gradient, as a matrix of its shape.
    """
    import scipy.sparse

    slope = gradient if taken is None else gradient - taken
    laplacian = scipy.sparse.csr_matrix(divergence @ slope)
    if not damping.strength:
        return laplacian, divergence
    differences, explained = roughness(gradient, moment_inverse, closed)
    rough = scipy.sparse.csr_matrix(differences - explained @ slope)
    # One point whose own value feeds itself is a mode that grows, and no solve survives it.
    own = (lambda matrix: matrix.diagonal()) if closed is None else closed.own
    decay = own(rough)
    share = np.divide(own(laplacian), decay, out=np.ones_like(decay), where=decay < 0)
    strength = scipy.sparse.diags(damping.strength + np.maximum(damping.smallest_decay - share, 0.0))
    laplacian = scipy.sparse.csr_matrix(laplacian + strength @ rough)
    return laplacian, scipy.sparse.csr_matrix(divergence - strength @ explained)


def roughness(
    gradient: scipy.sparse.csr_matrix,
    moment_inverse: Float[np.ndarray, "points space space"],
    closed: ClosedNeighbours | None = None,
) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """The part of the differences between neighbours that fitted gradients do not explain, as a second derivative.

        (S f)_i = sum_j omega_ij (f_j - f_i - r_ij . (g_i + g_j) / 2),    omega_ij = 2 r.M_i^-1 r / |r|^4

    with g the fitted gradient: zero for linear fields, of the order of h for smooth ones, and the Laplacian of what
    alternates from point to point, which a gradient does not see. Returned are the matrix of the differences, on f,
    and that of what is explained, on g. With periodic pairs the neighbours have to be given: several images of one
    point share an entry of the gradient.
    """
    import scipy.sparse

    number, space = moment_inverse.shape[:2]
    if closed is not None:
        inward = closed.offsets / (closed.offsets**2).sum(axis=1, keepdims=True)
        omega = 2 * np.einsum("ei,eij,ej->e", inward, moment_inverse[closed.rows], inward)
        explained = _explained(closed.rows, closed.columns, omega, closed.offsets, number)
        return scipy.sparse.csr_matrix(closed.differences(omega)), explained
    weights = [gradient[axis::space].tocoo() for axis in range(space)]
    rows, columns = weights[0].row, weights[0].col
    away = rows != columns
    rows, columns = rows[away], columns[away]
    weight = np.stack([each.data[away] for each in weights], axis=1)
    # The weights are M^-1 r / |r|^2: with M they give back the offsets.
    moments = np.linalg.pinv(moment_inverse, hermitian=True)
    inward = np.einsum("eij,ej->ei", moments[rows], weight)
    offsets = inward / (inward**2).sum(axis=1, keepdims=True)
    omega = 2 * (inward * weight).sum(axis=1)

    plain = scipy.sparse.csr_matrix((omega, (rows, columns)), shape=(number, number))
    total = scipy.sparse.diags(np.asarray(plain.sum(axis=1)).ravel())
    return scipy.sparse.csr_matrix(plain - total), _explained(rows, columns, omega, offsets, number)


def _explained(
    rows: np.ndarray, columns: np.ndarray, omega: np.ndarray, offsets: np.ndarray, number: int
) -> scipy.sparse.csr_matrix:
    import scipy.sparse

    space = offsets.shape[1]
    share = 0.5 * omega[:, None] * offsets
    axes = np.arange(space)
    there = (np.repeat(rows, space), (columns[:, None] * space + axes).ravel())
    here = (np.repeat(rows, space), (rows[:, None] * space + axes).ravel())
    explained = sum(
        scipy.sparse.csr_matrix((share.ravel(), where), shape=(number, number * space)) for where in (there, here)
    )
    return scipy.sparse.csr_matrix(explained)
