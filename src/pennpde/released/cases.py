"""From a case to the meshes and operators of the released networks.

The authors solve plane problems on meshes of space that are one cell thick, put normals on *every* boundary point,
Dirichlet boundaries included, and use the same matrices for every unknown. So none of `case.operators` will do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.operators import Operators

# Assembly takes longer than a prediction, and a mesh never changes.
_SLABS: WeakKeyDictionary[Mesh, dict[float, Mesh]] = WeakKeyDictionary()
_OPERATORS: WeakKeyDictionary[Mesh, dict[tuple, Operators]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Slab:
    """A mesh of space for a case: its own, or its plane mesh made one cell thick, each point followed by its copy."""

    mesh: Mesh
    copies: int

    @classmethod
    def of(cls, case: Case, thickness: float) -> Slab:
        if case.space == 3:
            return cls(case.mesh, 1)
        known = _SLABS.setdefault(case.mesh, {})
        if thickness not in known:
            known[thickness] = replace(case.mesh, patches={}).extruded(thickness)
        return cls(known[thickness], 2)

    def lift(self, values: Shaped[Tensor, "points *axes"]) -> Shaped[Tensor, "slab_points *slab_axes"]:
        """A scalar or vector field of the case on the slab."""
        if self.copies == 1:
            return values
        if values.ndim == 2:
            values = torch.cat([values, torch.zeros_like(values[:, :1])], dim=1)
        return values.repeat_interleave(2, dim=0)

    def lower(self, values: Float[Tensor, "slab_points *slab_axes"], rank: int) -> Float[Tensor, "points *axes"]:
        """Back to the case: both layers hold mirror images, so the first of them says everything."""
        if self.copies == 1:
            return values
        return values[::2, :2] if rank else values[::2]

    def sizes(self, case: Case) -> tuple[int, ...]:
        return tuple(self.copies * size for size in case.sizes)


def released_operators(
    mesh: Mesh, scale: float, *, thin_faces: bool, dtype: torch.dtype, device: torch.device
) -> Operators:
    """G / sigma with the authors' normals.

    Args:
        mesh: A mesh of space.
        scale: sigma, which the authors' weights were trained with.
        thin_faces: Whether the two large faces of the slab count as boundary. They do for the flow, where every point
            then has a normal; they do not for advection-diffusion.
        dtype: Precision of the result; assembly is in that of the mesh.
        device: Where the result goes.
    """
    known = _OPERATORS.setdefault(mesh, {})
    exact, wanted = (scale, thin_faces), (scale, thin_faces, dtype, device)
    # What is kept must serve training too, even if the first to ask for it was a prediction in inference mode.
    with torch.inference_mode(mode=False), torch.no_grad():
        if exact not in known:
            normals = mesh.normals if thin_faces else mesh.normals_of_facets(_lateral_facets(mesh))
            known[exact] = Operators.from_normals(mesh.points, mesh.edges, normals).scaled(1 / scale).composed()
        if wanted not in known:
            known[wanted] = known[exact].to(dtype, device)
    return known[wanted]


def _lateral_facets(mesh: Mesh) -> np.ndarray:
    """The facets along the rim of a slab, however it is turned: those not normal to its thin direction."""
    positions = mesh.points.detach()
    centred = positions - positions.mean(dim=0)
    thin = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, 0]
    return np.flatnonzero(((mesh.facet_normals @ thin).abs() < 0.5).numpy())
