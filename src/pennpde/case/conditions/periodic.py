"""Periodic pairs of patches: what leaves through the second enters through the first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree
from torch import Tensor

from pennpde.case.companion import CompanionError
from pennpde.case.conditions.given import Door, Value
from pennpde.case.conditions.protocol import DIFFERENCE, POINT, Condition, Reference
from pennpde.mesh import Mesh

if TYPE_CHECKING:
    from pennpde.case.companion import Along

_NEAR = 1e-6
"""How far a point may lie from where its partner says, as a share of the mesh's size."""

AnyCondition = TypeVar("AnyCondition", bound=Condition)


@dataclass(frozen=True)
class Across:
    """The patch on the other side of a periodic pair, and by how much the unknown is larger there."""

    patch: str
    jump: Value = 0.0


@dataclass(frozen=True, eq=False)
class Periodic(Condition):
    """Points of paired patches are copies of one point; the second patch is the first one, shifted.

    Both copies stay in the mesh. The graph is closed over them, so that each has the neighbours of both, and the field
    is the same at both, but for a jump: a pressure that falls along a channel, or any field with a mean gradient.
    """

    kind: ClassVar = "periodic"
    is_exact: ClassVar = True

    points: Int[Tensor, " points"] = field(metadata=POINT.tag)
    """For each point the copy that stands for all of them; points without copies stand for themselves."""
    shift: Float[Tensor, "points *axes"] = field(metadata=DIFFERENCE.tag)
    """By how much the unknown is larger than at that copy."""
    is_seamless: bool = False
    """Known to have no jumps."""

    @property
    def mask(self) -> Bool[Tensor, " points"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The points that have copies."""
        return torch.bincount(self.points, minlength=len(self.points))[self.points] > 1

    @property
    def copies(self) -> Bool[Tensor, " points"]:
        """The points for which another one stands."""
        return self.points != torch.arange(len(self.points), device=self.points.device)

    @property
    def representative(self) -> Int[Tensor, " points"]:
        return self.points

    @classmethod
    def resolve(cls, given: Any, door: Door) -> Periodic:
        """By first patch of each pair the second one, as a name or as `Across("outlet", jump=-1.0)`."""
        like = door.like
        number = like.shape[0]
        if isinstance(given, Periodic):
            return given.checked(door).settled()
        links: list[tuple[np.ndarray, np.ndarray, Tensor]] = []
        for first, second in door.by_patch(given, "'outlet'").items():
            across = _across(second, door.label(first))
            here, there = _paired(door.mesh, first, across.patch)
            where = f"{door.label(first)}, jump"
            jump = door.field(across.jump, where)
            if bool((jump != jump[:1]).any()):
                raise ValueError(f"{where} differs from point to point; a jump is one number, or one vector.")
            links.append((here, there, jump[0]))
        points, shift = np.arange(number), torch.zeros_like(like)
        # A corner of a box that is periodic twice has four copies: repeat until all know the smallest of them.
        while True:
            before = points.copy()
            for here, there, jump in links:
                for one, other, step in ((here, there, jump), (there, here, -jump)):
                    closer = points[one] < points[other]
                    points[other[closer]] = points[one[closer]]
                    shift[other[closer]] = shift[one[closer]] + step
            if (points == before).all():
                break
        for (first, second), (here, there, jump) in zip(given.items(), links, strict=True):
            if not torch.allclose(shift[there] - shift[here], jump.expand_as(shift[here]), rtol=1e-9, atol=1e-12):
                raise ValueError(
                    f"{door.label(first)}: the jump from {first!r} to {_across(second, '').patch!r} contradicts those "
                    "of the other pairs, which lead to the same points."
                )
        return cls(torch.from_numpy(points), shift).settled()

    @classmethod
    def facets(cls, given: Any, mesh: Mesh) -> np.ndarray:
        if isinstance(given, Mapping):
            names = [name for first, second in given.items() for name in (first, _across(second, "periodic").patch)]
            return super().facets(names, mesh)
        return super().facets(given, mesh)

    def apply(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """The field with the copies made equal, up to their jumps."""
        taken = values.index_select(0, self.points)
        if self.is_seamless:
            return taken
        shift = self.shift.reshape(*self.shift.shape, *[1] * (values.ndim - self.shift.ndim))
        return taken + shift.to(values.dtype)

    def scaled(self, reference: Reference) -> Periodic:
        return replace(self, shift=self.shift / reference.one)

    def onto(self, along: Along) -> Periodic:  # noqa: ARG002
        self.check_companion()
        return self

    def check_companion(self) -> None:
        raise CompanionError(
            "A case with periodic patches (cyclic in OpenFOAM) has no companion mesh: the points of a new boundary "
            'would not lie opposite each other. Take the resolution "own".'
        )

    def settled(self) -> Periodic:
        return replace(self, is_seamless=not bool(self.shift.any()))

    def periods(self, mesh: Mesh) -> Float[np.ndarray, "periods space"]:
        """The shifts that lead from one copy of a point to another, each with its opposite."""
        copies = self.copies.cpu().numpy()
        positions = mesh.points.detach().numpy()
        offsets = positions[copies] - positions[self.points.cpu().numpy()[copies]]
        quantum = _NEAR * float(np.ptp(positions, axis=0).max()) * 10
        _, first = np.unique(np.round(offsets / quantum), axis=0, return_index=True)
        return np.concatenate([offsets[first], -offsets[first]])

    def closing(self, condition: AnyCondition, name: str) -> AnyCondition:
        """Another condition of the same unknown with what it prescribes at one copy of a point at all of them."""
        mask, points = condition.mask, self.points
        everywhere = torch.zeros_like(mask).index_put((points[mask],), torch.tensor(True))[points]
        if bool((everywhere == mask).all()) and "normals" not in condition.roles():
            source = torch.arange(len(points))
        else:
            held = torch.zeros_like(points)
            held[points[mask]] = mask.nonzero()[:, 0]
            source = torch.where(mask | ~everywhere, torch.arange(len(points)), held[points])
        closed = condition.each(lambda role, values: self._spread(role, values, source, everywhere))
        self._check(closed, name)
        return closed

    def _spread(self, role: Any, values: Tensor, source: Tensor, everywhere: Tensor) -> Tensor:
        spread = values[source]
        if role.rank is None and not role.is_difference:
            spread = spread + (self.shift - self.shift[source])
        if role.rank == 1:
            # A wall that meets both sides of the seam has the mean of the normals that it has there.
            own = self.mask & everywhere
            sums = torch.zeros_like(values).index_add(0, self.points, values)[self.points]
            lengths = sums.norm(dim=1, keepdim=True)
            mean = sums / torch.where(lengths > 1e-12, lengths, 1.0)
            spread = torch.where(own[:, None] & (lengths > 1e-12), mean, spread)
        return spread

    def _check(self, condition: Condition, name: str) -> None:
        """Prescribed values at two copies must differ by their jump."""
        values = getattr(condition, "values", None)
        if values is None:
            return
        other = self.points
        held = condition.mask & condition.mask[other]
        wrong = (values - self.shift - (values - self.shift)[other])[held].abs()
        if wrong.numel() and float(wrong.amax()) > 1e-9 * (1.0 + float(values.abs().amax())):
            raise ValueError(
                f"{condition.kind}[{name!r}] prescribes values on both sides of a periodic pair that differ by "
                f"{float(wrong.amax()):g} more than the pair's jump. Prescribe the same on both, or leave one out."
            )


def _across(given: Any, where: str) -> Across:
    if isinstance(given, Across):
        return given
    if isinstance(given, str):
        return Across(given)
    raise ValueError(f"{where} is {given!r}; give the opposite patch, as 'outlet' or Across('outlet', jump=-1.0).")


def _paired(mesh: Mesh, first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
    """The points of the first patch, and of each its partner on the second."""
    here, there = mesh.patch(first).points, mesh.patch(second).points
    pair = f"The periodic patches {first!r} and {second!r}"
    if len(here) != len(there):
        raise ValueError(f"{pair} have {len(here)} and {len(there)} points; each point needs its partner.")
    if np.intersect1d(here, there).size:
        raise ValueError(f"{pair} share points; a pair lies a period apart.")
    positions = mesh.points.detach().numpy()
    period = positions[there].mean(axis=0) - positions[here].mean(axis=0)
    distances, partner = map(np.asarray, KDTree(positions[there]).query(positions[here] + period))
    near = _NEAR * float(np.ptp(positions, axis=0).max())
    if (distances > near).any() or len(np.unique(partner)) != len(partner):
        worst = int(np.argmax(distances))
        raise ValueError(
            f"{pair} do not match: shifted by {period.tolist()}, the point at {positions[here[worst]].tolist()} is "
            f"{distances[worst]:.3g} away from the nearest point of {second!r}. One has to be the other, shifted; "
            "pairs that are turned against each other (rotational) are not supported."
        )
    return here, there[partner]
