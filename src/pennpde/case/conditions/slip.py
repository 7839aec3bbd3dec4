"""No normal component."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case.conditions.given import Door
from pennpde.case.conditions.protocol import NORMAL, WHERE, Along, Condition, Reference


@dataclass(frozen=True, eq=False)
class Slip(Condition):
    """A vector unknown without normal component: a slip wall or a plane of symmetry.

    Where two slip patches meet at an angle, the mean of their normals counts.
    """

    kind: ClassVar = "slip"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    normals: Float[Tensor, "points space"] = field(metadata=NORMAL.tag)
    """Zero off the slip points, so that the projection needs no mask."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Slip:
        if door.like.ndim < 2:
            raise ValueError(f"slip names {door.name!r}, which is a scalar: only a vector has a normal component.")
        if isinstance(given, Slip):
            return given.checked(door, mask=door.like.shape[:1], normals=door.mesh.points.shape)
        normals = door.mesh.point_normals([given] if isinstance(given, str) else list(given))
        return cls((normals != 0).any(dim=1), normals)

    def apply(self, values: Float[Tensor, "points space *channels"]) -> Float[Tensor, "points space *channels"]:
        normals = self.normals.reshape(*self.normals.shape, *[1] * (values.ndim - 2)).to(values.dtype)
        return values - normals * (normals * values).sum(dim=1, keepdim=True)

    def scaled(self, reference: Reference) -> Slip:  # noqa: ARG002
        return self

    def onto(self, along: Along) -> Slip:
        normals = along.normals(self.mask)
        return Slip((normals != 0).any(dim=1), normals)
