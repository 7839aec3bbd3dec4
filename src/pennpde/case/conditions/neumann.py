"""Prescribed normal derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case.conditions.course import Course
from pennpde.case.conditions.given import Door, together
from pennpde.case.conditions.protocol import DIFFERENCE, NORMAL, WHERE, Along, Condition, Reference, Slope, only


@dataclass(frozen=True, eq=False)
class Neumann(Condition):
    """Prescribed normal derivatives of one unknown, with the normals of its own Neumann patches (zero elsewhere)."""

    kind: ClassVar = "neumann"
    on_every_unknown: ClassVar = True
    varying: ClassVar = "normal_derivative"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    normals: Float[Tensor, "points space"] = field(metadata=NORMAL.tag)
    normal_derivative: Float[Tensor, "points *axes"] = field(metadata=DIFFERENCE.tag)
    """At the start, where it changes with time."""
    is_homogeneous: bool = False
    """Known to be zero everywhere: to find out would wait for a GPU."""
    course: Course | None = None
    is_series: bool = False
    """Whether the last axis is one of times (`over`)."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Neumann:
        """By patch; or one value for all facets on which the unknown has no other condition."""
        like = door.like
        if isinstance(given, Neumann):
            space = door.mesh.points.shape
            return given.checked(door, mask=like.shape[:1], normals=space, normal_derivative=like.shape)
        if isinstance(given, Mapping):
            every = [door.facets(patch) for patch in given]
            facets = np.unique(np.concatenate([*every, np.empty(0, np.int64)]))
        else:
            taken = np.zeros(len(door.mesh.facets), dtype=bool)
            taken[door.taken()] = True
            facets = np.flatnonzero(~taken)
        normals = door.mesh.normals_of_facets(facets)
        mask = (normals != 0).any(dim=1)
        if isinstance(given, Mapping):
            parts = [(door.points(patch), door.course(value, door.label(patch))) for patch, value in given.items()]
        else:
            parts = [(mask, door.course(given, door.label()))]
        derivative, course = together(parts, like)
        return cls(
            mask, normals, only(mask, derivative), course=course and course.mapped(lambda values: only(mask, values))
        )

    def slope(self) -> Slope:
        return Slope(self.mask, self.normals, self.normal_derivative, is_homogeneous=self.is_homogeneous)

    def scaled(self, reference: Reference) -> Neumann:
        derivative = self.normal_derivative * (reference.length / reference.one)
        return replace(self, normal_derivative=derivative, course=None)

    def onto(self, along: Along) -> Neumann:
        normals = along.normals(self.mask)
        mask = (normals != 0).any(dim=1)

        def there(values: Tensor) -> Tensor:
            return only(mask, along.values(values, torch.zeros_like(self.mask)))

        course = self.course and self.course.mapped(there)
        return Neumann(mask, normals, there(self.normal_derivative), self.is_homogeneous, course)

    def settled(self) -> Neumann:
        zero = self.course is None and not bool(self.normal_derivative.any())
        return replace(self, is_homogeneous=zero)
