"""Prescribed normal derivatives, prescribed means of value and normal derivative (Robin), and ends without stress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from pennpde.case.conditions.given import Course, Door, together
from pennpde.case.conditions.protocol import DIFFERENCE, NORMAL, NUMBER, WHERE, Condition, Reference, Slope, only


@dataclass(frozen=True, eq=False)
class _OnSlopes(Condition):
    """A condition that the operators know, with the normals of its own patches (zero elsewhere)."""

    varying: ClassVar = "normal_derivative"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    normals: Float[Tensor, "points space"] = field(metadata=NORMAL.tag)
    normal_derivative: Float[Tensor, "points *axes"] = field(metadata=DIFFERENCE.tag)
    """At the start, where it changes with time; on Robin boundaries where the field is zero."""
    is_homogeneous: bool = False
    """Known to be zero everywhere: to find out would wait for a GPU."""
    course: Course | None = None
    is_series: bool = False
    """Whether the last axis is one of times (`over`)."""

    def settled(self) -> Self:
        zero = self.course is None and not bool(self.normal_derivative.any())
        return replace(self, is_homogeneous=zero)


@dataclass(frozen=True, eq=False)
class Neumann(_OnSlopes):
    """Prescribed normal derivatives of one unknown."""

    kind: ClassVar = "neumann"
    on_every_unknown: ClassVar = True

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Neumann:
        """By patch; or one value for all facets on which the unknown has no other condition."""
        like = door.like
        if isinstance(given, Neumann):
            return given.checked(door)
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
            parts = [
                (door.points(patch), door.course(value, door.label(patch), patch)) for patch, value in given.items()
            ]
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


@dataclass(frozen=True, eq=False)
class Robin(_OnSlopes):
    """a f + b df/dn = c: heat that leaves through a side in proportion to its temperature, a wall that half slips.

    It acts through the operators, as Neumann does: df/dn = c/b - (a/b) f. Where it meets a Neumann patch, only it
    counts; where two Robin patches meet, the later one does, with its own normals.
    """

    kind: ClassVar = "robin"

    transfer: Float[Tensor, " points"] = field(metadata=NUMBER.tag, kw_only=True)
    """a/b; the normal derivative is c/b."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Robin:
        """By patch, (a, b, c) or {"a": a, "b": b, "c": c}: numbers or fields; c may change with time."""
        like = door.like
        if isinstance(given, Robin):
            return given.checked(door)
        normals = torch.zeros_like(door.mesh.points)
        transfer = torch.zeros_like(like[(slice(None), *[0] * (like.ndim - 1))])
        parts = []
        for patch, numbers in door.by_patch(given, "(a, b, c)").items():
            a, b, c = _numbers(numbers, door.label(patch))
            own = door.mesh.normals_of_facets(door.facets(patch))
            points = torch.from_numpy(door.mesh.patch(patch).points)
            points = points[(own[points] != 0).any(dim=1)]
            first, second = (door.number(each, f"{door.label(patch)}, {key}") for key, each in (("a", a), ("b", b)))
            _check(first[points], second[points], door.label(patch))
            normals[points] = own[points]
            transfer[points] = first[points] / second[points]
            divided = second.where(second != 0, 1.0).reshape(-1, *[1] * (like.ndim - 1))
            right = door.course(c, f"{door.label(patch)}, c", patch)
            over = partial(_over, divided)
            parts.append((points, right.mapped(over) if isinstance(right, Course) else over(right)))
        derivative, course = together(parts, like)
        return cls((normals != 0).any(dim=1), normals, derivative, course=course, transfer=transfer)

    def slope(self) -> Slope:
        derivative, homogeneous = self.normal_derivative, self.is_homogeneous
        return Slope(self.mask, self.normals, derivative, self.transfer, self.mask, homogeneous)

    def scaled(self, reference: Reference) -> Robin:
        # a (one f + zero) + b one / length df/dn = c
        level = (self.transfer * reference.zero).reshape(-1, *[1] * (self.normal_derivative.ndim - 1))
        derivative = (self.normal_derivative - level) * (reference.length / reference.one)
        homogeneous = self.is_homogeneous and reference.zero == 0
        transfer = self.transfer * reference.length
        return Robin(self.mask, self.normals, derivative, homogeneous, transfer=transfer)


@dataclass(frozen=True, eq=False)
class StressFree(Condition):
    """[grad u + (grad u)^T] n = 0: no viscous stress where a fluid leaves, as the paper has it at outlets.

    The normal derivative of the component along the normal is zero, that of the others is minus the slope of this
    component along the boundary: the operators work it out of the field (`Operators.grad`). Where it meets a Neumann or
    Robin patch, only it counts.
    """

    kind: ClassVar = "stress_free"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    normals: Float[Tensor, "points space"] = field(metadata=NORMAL.tag)
    like: Float[Tensor, "points *axes"] = field(metadata=DIFFERENCE.tag)
    """Zeros: nothing is prescribed besides."""
    is_homogeneous: bool = False
    """Never: what the field gives has to be lifted, as prescribed derivatives have."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> StressFree:
        """From the name of a patch, or several."""
        if isinstance(given, StressFree):
            return given.checked(door)
        if door.like.ndim != 2:
            raise ValueError(f"stress_free names {door.name!r}, which is no vector: the stress is that of a velocity.")
        names = [given] if isinstance(given, str) else list(given)
        facets = np.concatenate([np.zeros(0, np.int64), *(door.facets(name) for name in names)])
        normals = door.mesh.normals_of_facets(np.unique(facets))
        return cls((normals != 0).any(dim=1), normals, torch.zeros_like(door.like))

    def slope(self) -> Slope:
        return Slope(self.mask, self.normals, self.like, is_stress_free=self.mask, is_homogeneous=True)

    def scaled(self, reference: Reference) -> StressFree:  # noqa: ARG002
        return self


def _numbers(given: Any, where: str) -> tuple[Any, Any, Any]:
    if isinstance(given, Mapping) and given.keys() == {"a", "b", "c"}:
        return given["a"], given["b"], given["c"]
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 3:
        a, b, c = given
        return a, b, c
    raise ValueError(f"{where} is {given!r}; a f + b df/dn = c takes (a, b, c) or {{'a': ..., 'b': ..., 'c': ...}}.")


def _check(a: Tensor, b: Tensor, where: str) -> None:
    if bool(((a == 0) & (b == 0)).any()):
        raise ValueError(f"{where} has a = b = 0 in a f + b df/dn = c, which prescribes nothing; give one of them.")
    if bool((b == 0).any()):
        raise ValueError(
            f"{where} has b = 0 in a f + b df/dn = c, which prescribes the value c/a: give it as dirichlet."
        )
    if bool((a * b < 0).any()):
        raise ValueError(
            f"{where} has a and b of opposite signs in a f + b df/dn = c: the inflow would grow with the field, "
            "and the field without bound. With the outward normal derivative both have the same sign."
        )


def _over(divisor: Tensor, values: Tensor) -> Tensor:
    return values / divisor
