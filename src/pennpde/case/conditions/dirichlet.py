"""Prescribed values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case.conditions.course import Course
from pennpde.case.conditions.given import Door, together
from pennpde.case.conditions.on_facets import FacetValues
from pennpde.case.conditions.protocol import HELD, VALUE, Along, Condition, Reference, only


@dataclass(frozen=True, eq=False)
class Dirichlet(Condition):
    """Prescribed values of one unknown. A point is prescribed whole, all components together."""

    kind: ClassVar = "dirichlet"
    on_every_unknown: ClassVar = True
    is_exact: ClassVar = True
    varying: ClassVar = "values"

    mask: Bool[Tensor, " points"] = field(metadata=HELD.tag)
    values: Float[Tensor, "points *axes"] = field(metadata=VALUE.tag)
    """Zero where nothing is prescribed: a NaN there would poison the gradients of the boundary encoder. Those at the
    start, where they change with time."""
    course: Course | None = None
    is_series: bool = False
    """Whether the last axis is one of times (`over`)."""
    on_facets: FacetValues | None = None
    """What each facet's own patch prescribes; None where only the values at the points are known."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Dirichlet:
        like = door.like
        if isinstance(given, Dirichlet):
            return given.checked(door, mask=like.shape[:1], values=like.shape)
        mask = torch.zeros(like.shape[0], dtype=torch.bool)
        parts, on_facets = [], []
        for patch, value in door.by_patch(given).items():
            points, course = door.points(patch), door.course(value, door.label(patch))
            mask[points] = True
            parts.append((points, course))
            on_facets.append((door.mesh.patch(patch).facets, course))
        return cls(mask, *together(parts, like), on_facets=FacetValues.of(door.mesh, on_facets, like))

    def apply(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """The field with the prescribed values in place, bit for bit."""
        mask = self.mask.reshape(-1, *[1] * (values.ndim - 1))
        prescribed = self.values
        if prescribed.ndim < values.ndim:  # a trailing axis of times: the condition holds at each
            prescribed = prescribed.reshape(*prescribed.shape, *[1] * (values.ndim - prescribed.ndim))
        return torch.where(mask, prescribed.to(values.dtype), values)

    def scaled(self, reference: Reference) -> Dirichlet:
        values = only(self.mask, (self.values - reference.zero) / reference.one)
        known = self.on_facets
        if known is not None:
            known = known.mapped(lambda ends: (ends - reference.zero) / reference.one, reference.time)
        return Dirichlet(self.mask, values, on_facets=known)

    def at(self, time: float) -> Dirichlet:
        now = super().at(time)
        return now if self.on_facets is None else replace(now, on_facets=self.on_facets.at(time))

    def over(self, times: Sequence[float]) -> Dirichlet:
        """As for all conditions; what facets prescribe is that of the last time."""
        series = super().over(times)
        known = self.on_facets
        return series if known is None or not times else replace(series, on_facets=known.at(times[-1]))

    def moved(self, turn: Float[Tensor, "space space"], rank: int) -> Dirichlet:
        moved = super().moved(turn, rank)
        # A reflected mesh has its facets in another order.
        if self.on_facets is None or rank > 1 or float(torch.linalg.det(turn)) < 0:
            return replace(moved, on_facets=None)
        return replace(moved, on_facets=self.on_facets.turned(turn) if rank else self.on_facets)

    def onto(self, along: Along) -> Dirichlet:
        mask = along.held(self.mask)

        def there(values: Tensor) -> Tensor:
            return only(mask, along.values(values, self.mask))

        return Dirichlet(mask, there(self.values), self.course and self.course.mapped(there))
