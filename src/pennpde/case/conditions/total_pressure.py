"""A prescribed total pressure: that of fluid at rest outside, from where it is drawn in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case.conditions.given import Course, Door, together
from pennpde.case.conditions.protocol import VALUE, WHERE, Condition, Reference, only


@dataclass(frozen=True, eq=False)
class TotalPressure(Condition):
    """p + ½u² where fluid enters, which it does along the normal; p where it leaves. For networks that know it."""

    kind: ClassVar = "total_pressure"
    varying: ClassVar = "values"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    values: Float[Tensor, "points *axes"] = field(metadata=VALUE.tag)
    """Zero where nothing is prescribed; those at the start, where they change with time."""
    course: Course | None = None
    is_series: bool = False
    """Whether the last axis is one of times (`over`)."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> TotalPressure:
        if isinstance(given, TotalPressure):
            return given.checked(door)
        if door.like.ndim > 1:
            raise ValueError(f"{door.label()} prescribes the total pressure of a vector; it is one of the pressure.")
        mask, parts = torch.zeros(door.like.shape[0], dtype=torch.bool), []
        for patch, value in door.by_patch(given).items():
            door.facets(patch)
            parts.append((door.points(patch), door.course(value, door.label(patch), patch)))
            mask[parts[-1][0]] = True
        return cls(mask, *together(parts, door.like))

    def scaled(self, reference: Reference) -> TotalPressure:
        return TotalPressure(self.mask, only(self.mask, (self.values - reference.zero) / reference.one))
