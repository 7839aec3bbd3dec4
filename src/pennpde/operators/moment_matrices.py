"""Moment matrices of the fit at each point, inverted; and normals through which gradients reach the positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.mesh import Mesh

# Moment matrices are sums of unit dyads, so their largest eigenvalue is of the order of the number of neighbours. Below
# this share of it the smallest is round-off: the neighbours do not span the space.
_SINGULAR = 1e-10


def differentiable_normals(mesh: Mesh, patch_names: Sequence[str]) -> Float[Tensor, "points space"]:
    """`mesh.point_normals`, through which gradients reach the positions."""
    points, every = mesh.points, [mesh.patch(name).facets for name in patch_names]
    facets = mesh.facets.take(np.unique(np.concatenate(every)))
    sizes = torch.from_numpy(facets.sizes)
    corners, facet = torch.from_numpy(facets.connectivity), torch.repeat_interleave(sizes)
    if mesh.space == 2:
        start, end = corners.reshape(-1, 2).T
        edge = points[end] - points[start]
        areas = torch.stack([edge[:, 1], -edge[:, 0]], dim=1)
    else:
        here = points[corners] - points[corners[torch.from_numpy(facets.offsets[:-1])]][facet]
        after = torch.arange(1, len(corners) + 1)
        after[torch.from_numpy(facets.offsets[1:]) - 1] = torch.from_numpy(facets.offsets[:-1])
        areas = points.new_zeros(len(sizes), 3).index_add(0, facet, torch.linalg.cross(here, here[after]))
    shares = areas / areas.norm(dim=1, keepdim=True) / sizes[:, None]
    sums = torch.zeros_like(points).index_add(0, corners, shares[facet])
    # A norm has no derivative at zero, which is what the sum is inside and where the sides of a thin plate cancel.
    touched = (sums.detach().norm(dim=1, keepdim=True) > 1e-12).expand_as(sums)
    safe = torch.where(touched, sums, torch.ones_like(sums))
    return torch.where(touched, safe / safe.norm(dim=1, keepdim=True), torch.zeros_like(sums))


def without_normals(
    inverse: Float[Tensor, "points space space"],
    plain: Float[Tensor, "points space space"],
    is_robin: Bool[Tensor, " points"],
) -> Float[Tensor, "points space space"]:
    """The inverse moments, at Robin points of the neighbours only, as far as these span the space."""
    eigenvalues = torch.linalg.eigvalsh(plain.detach()[is_robin])
    chosen = is_robin.clone()
    chosen[is_robin] = eigenvalues[:, 0] > _SINGULAR * eigenvalues[:, -1].clamp_min(1.0)
    return inverse.index_put((chosen,), torch.linalg.inv(plain[chosen]))


def inverse_moments(
    moments: Float[Tensor, "points space space"],
    singular: Literal["error", "pseudoinverse"],
    points: Tensor,
    neighbours: np.ndarray,
) -> Float[Tensor, "points space space"]:
    eigenvalues = torch.linalg.eigvalsh(moments.detach())
    broken = eigenvalues[:, 0] <= _SINGULAR * eigenvalues[:, -1].clamp_min(1.0)
    if not broken.any():
        return torch.linalg.inv(moments)
    if singular == "pseudoinverse":
        whole = torch.where(broken[:, None, None], torch.eye(points.shape[1]).to(moments), moments)
        # A pseudoinverse jumps where the rank changes: no gradients reach the positions at such a point.
        partial = torch.linalg.pinv(moments.detach()[broken], rtol=_SINGULAR, hermitian=True)
        return torch.linalg.inv(whole).index_put((broken,), partial)
    point = int(broken.nonzero()[0])
    raise ValueError(
        f"The moment matrix of point {point} at {points[point].tolist()} is singular: its {neighbours[point]} "
        f"neighbours do not span the space ({int(broken.sum())} such points). Mend the mesh there, or pass "
        'singular="pseudoinverse" to take the gradient in the directions that they do span.'
    )
