"""Prescribed values: of a point whole, of single components, of the normal component alone (slip)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from pennpde.case.conditions.given import Course, Door, filled, prescribed, together
from pennpde.case.conditions.protocol import (
    NORMAL,
    PROJECTOR,
    VALUE,
    WHERE,
    Condition,
    Reference,
    only,
)
from pennpde.mesh import Mesh
from pennpde.mesh.cells import at_corners

if TYPE_CHECKING:
    from pennpde.case.companion import Along


@dataclass(frozen=True, eq=False)
class FacetValues:
    """Prescribed values facet by facet, as each exterior facet's own patch has them.

    A point where two patches meet holds one value, so a patch of a single facet between two others would lose its own.

    Attributes:
        patch: the number of the patch that prescribes each facet; -1 where none does. Where patches share a facet, the
            later one counts.
        ends: the value at the points of each facet, as its patch has it; zero where nothing is prescribed. In space
            facets have any number of points: after them comes their mean, as often as the largest has more.
        is_mean: whether the mean over the facet is known and is each of `ends`: OpenFOAM's face values.
        course: how `ends` change with time; None: not at all.
    """

    patch: Int64[np.ndarray, " facets"]
    ends: Float[np.ndarray, "facets corners *axes"]
    is_mean: Bool[np.ndarray, " facets"]
    course: Callable[[float], np.ndarray] | None = None

    @staticmethod
    def of(mesh: Mesh, parts: Sequence[tuple[np.ndarray, Course | Tensor]], like: Tensor) -> FacetValues:
        """From the facets of each patch and what it prescribes at all points, in the order of the patches."""
        number = len(mesh.facets)
        patch, corners = np.full(number, -1), int(mesh.facets.sizes.max(initial=2))
        for place, (facets, _) in enumerate(parts):
            patch[facets] = place

        def at(time: float | None) -> np.ndarray:
            ends = np.zeros((number, corners, *like.shape[1:]))
            for place, (_, part) in enumerate(parts):
                own = np.flatnonzero(patch == place)
                now = part.at(part.first if time is None else time) if isinstance(part, Course) else part
                ends[own] = at_corners(mesh.facets.take(own), now.detach().cpu().double().numpy(), corners)
            return ends

        varies = any(isinstance(part, Course) for _, part in parts)
        return FacetValues(patch, at(None), np.zeros(number, bool), at if varies else None)

    @property
    def held(self) -> Bool[np.ndarray, " facets"]:
        return self.patch >= 0

    def with_means(self, facets: Int64[np.ndarray, " some"], means: Float[np.ndarray, "some *axes"]) -> FacetValues:
        """With the known means over some facets, whose values do not change with time."""
        is_mean = self.is_mean.copy()
        is_mean[facets] = True

        def known(ends: np.ndarray) -> np.ndarray:
            ends = ends.copy()
            ends[facets] = means[:, None]
            return ends

        return replace(self.mapped(known), is_mean=is_mean)

    def mapped(self, change: Callable[[np.ndarray], np.ndarray], one_time: float = 1.0) -> FacetValues:
        """With changed values, and times counted in a unit."""
        course = self.course
        later = None if course is None else lambda time: change(course(time * one_time))
        return replace(self, ends=change(self.ends), course=later)

    def at(self, time: float) -> FacetValues:
        return self if self.course is None else replace(self, ends=self.course(time), course=None)

    def turned(self, turn: Float[Tensor, "space space"]) -> FacetValues:
        """Of vectors, after a rotation."""
        matrix = turn.detach().cpu().double().numpy()
        return self.mapped(lambda ends: ends @ matrix.T)


@dataclass(frozen=True, eq=False)
class _OnValues(Condition):
    """A condition that prescribes values."""

    varying: ClassVar = "values"

    mask: Bool[Tensor, " points"] = field(metadata=WHERE.tag)
    values: Float[Tensor, "points *axes"] = field(metadata=VALUE.tag)
    """Zero where nothing is prescribed: a NaN there would poison the gradients of the boundary encoder. Those at the
    start, where they change with time."""
    course: Course | None = None
    is_series: bool = False
    """Whether the last axis is one of times (`over`)."""


@dataclass(frozen=True, eq=False)
class Dirichlet(_OnValues):
    """Prescribed values of one unknown. A point is prescribed whole, all components together."""

    kind: ClassVar = "dirichlet"
    on_every_unknown: ClassVar = True
    is_exact: ClassVar = True

    on_facets: FacetValues | None = None
    """What each facet's own patch prescribes; None where only the values at the points are known."""

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Dirichlet:
        like = door.like
        if isinstance(given, Dirichlet):
            return given.checked(door)
        mask = torch.zeros(like.shape[0], dtype=torch.bool)
        parts, on_facets = [], []
        for patch, value in door.by_patch(given).items():
            points, course = door.points(patch), door.course(value, door.label(patch), patch)
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
        return replace(super().onto(along), on_facets=None)


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
            return given.checked(door)
        if not isinstance(given, str | Sequence):
            raise TypeError(f"slip[{door.name!r}] is {given!r:.60}; give the name of a patch, or several.")
        normals = door.mesh.point_normals([given] if isinstance(given, str) else list(given))
        return cls((normals != 0).any(dim=1), normals)

    def apply(self, values: Float[Tensor, "points space *channels"]) -> Float[Tensor, "points space *channels"]:
        normals = self.normals.reshape(*self.normals.shape, *[1] * (values.ndim - 2)).to(values.dtype)
        return values - normals * (normals * values).sum(dim=1, keepdim=True)

    def scaled(self, reference: Reference) -> Slip:  # noqa: ARG002
        return self


@dataclass(frozen=True, eq=False)
class Components(_OnValues):
    """Prescribed values of single components of a vector or tensor: a roller, a line of symmetry.

    P says which, as a projector at each point: u becomes (1 - P) u + v with v = P v. Along the axes of space P picks
    components, and these come out bit for bit; turned with its mesh it picks directions. A linear encoder e acts on
    channels and P on the axes of space, so that e((1 - P) u + v) = (1 - P) e(u) + e(v): what is set in the encoded
    space is what would have been set before.
    """

    kind: ClassVar = "components"
    is_exact: ClassVar = True

    projector: Float[Tensor, "points *axes_twice"] = field(metadata=PROJECTOR.tag, kw_only=True)

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Components:
        """By patch, values with None (or "free") for free components; where patches meet, all of theirs hold."""
        like = door.like
        if isinstance(given, Components):
            return given.checked(door)
        if like.ndim < 2:
            raise ValueError(f"{door.label()} prescribes components of a scalar, which has none.")
        held, parts, components = torch.zeros(like.shape, dtype=torch.bool), [], []
        for patch, value in door.by_patch(given, "(0.0, None)").items():
            own = torch.tensor(prescribed(value))
            if own.shape != like.shape[1:]:
                raise ValueError(
                    f"{door.label(patch)} is {value!r}, whose components are not those of {door.name!r}: it has "
                    f"{list(like.shape[1:])}."
                )
            points = door.points(patch)
            held[points] |= own
            components.append(own)
            parts.append((points, door.course(filled(value), door.label(patch), patch)))
        flat = held.flatten(1)
        projector = torch.diag_embed(flat.to(like)).reshape(*like.shape, *like.shape[1:])
        return cls(flat.any(dim=1), *together(parts, like, components), projector=projector)

    def apply(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """The field with these components in place; trailing axes, of channels or times, are each by themselves."""
        own = self.values
        own = own.reshape(*own.shape, *[1] * (values.ndim - own.ndim))
        return values - self._projected(values) + own.to(values.dtype)

    def _projected(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        return (self._flat().to(values.dtype) @ values.reshape(len(values), self._flat().shape[1], -1)).reshape(
            values.shape
        )

    def _flat(self) -> Float[Tensor, "points components components"]:
        components = self.projector.shape[1 : 1 + (self.projector.ndim - 1) // 2].numel()
        return self.projector.reshape(-1, components, components)

    def encoded(self, encode: Callable[[Tensor], Tensor], is_linear: bool, name: str) -> Components:
        if not is_linear and not self._is_along_axes():
            raise ValueError(
                f"Components of {name!r} are prescribed in directions that are not the axes of space, but the encoder "
                "is not linear: it takes components one by one. Use the default, Encoder.linear."
            )
        values = encode(self.values)
        return replace(self, values=values if is_linear else self._projected(values))

    def _is_along_axes(self) -> bool:
        flat = self._flat()
        return not bool((flat - torch.diag_embed(flat.diagonal(dim1=1, dim2=2))).any())

    def scaled(self, reference: Reference) -> Components:
        values = (self.values - self._projected(torch.full_like(self.values, reference.zero))) / reference.one
        return Components(self.mask, values, projector=self.projector)


# A prescribed total pressure: that of fluid at rest outside, from where it is drawn in.


@dataclass(frozen=True, eq=False)
class TotalPressure(_OnValues):
    """p + ½u² where fluid enters, which it does along the normal; p where it leaves. For networks that know it."""

    kind: ClassVar = "total_pressure"

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
