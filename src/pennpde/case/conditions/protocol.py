"""The protocol of all kinds of conditions, so that cases, batches, stacks, units and companions treat all kinds alike.

A kind is one frozen dataclass. Each of its tensors says what it holds (`field(metadata=VALUE.tag)`), and from that
follow how it is copied to a device, turned, put side by side, filled up, encoded and brought onto another mesh. What is
left to the kind itself:

resolve   how it is made of what a user gives by patch
scaled    how it changes with units
and how it acts, by one or several of
apply     puts a field into the condition (Dirichlet, slip, periodic)
slope     prescribes a normal derivative, which the operators know (Neumann, Robin)
representative   makes points one, over which the operators close the graph (periodic)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.case.conditions.given import Course, Door
from pennpde.mesh import Mesh
from pennpde.mesh.mesh import turned

if TYPE_CHECKING:
    from pennpde.case.companion import Along


@dataclass(frozen=True)
class Role:
    """What a tensor of a condition holds at each point.

    Attributes:
        rank: axes of space that turn with the mesh; None: those of the unknown, which an encoder encodes.
        times: how often it has the axes of the unknown; twice what maps the unknown to itself, which is not encoded.
        is_difference: whether it passes through a linear encoder only, as derivatives and jumps do.
        is_point: whether it holds numbers of points, which move along when cases are put side by side.
    """

    rank: int | None = 0
    times: int = 1
    is_difference: bool = False
    is_point: bool = False

    @property
    def tag(self) -> dict[str, Any]:
        """For the field of a dataclass: `mask: Tensor = field(metadata=WHERE.tag)`."""
        return {"role": self}

    def rank_for(self, unknown: int) -> int:
        """Its axes of space, for an unknown with so many."""
        return self.times * unknown if self.rank is None else self.rank


WHERE = Role()
NUMBER = Role()
NORMAL = Role(rank=1)
VALUE = Role(rank=None)
PROJECTOR = Role(rank=None, times=2)
DIFFERENCE = Role(rank=None, is_difference=True)
POINT = Role(is_point=True)


class Reference(NamedTuple):
    """Units of one unknown: what counts as one, and as zero; and what counts as one length and one time."""

    one: float
    zero: float
    length: float
    time: float


@dataclass(frozen=True, eq=False)
class Slope:
    """A prescribed normal derivative, g - t f with the unknown's own value f: what the operators have to know.

    Attributes:
        normals: outward unit normals where it is prescribed, zero elsewhere.
        normal_derivative: g.
        transfer: t; None: zero everywhere.
        is_robin: where it depends on the value at all; None: nowhere.
        is_homogeneous: g is known to be zero everywhere. To find out would wait for a GPU.
        is_stress_free: where g follows from the field instead, see `StressFree`; None: nowhere.
    """

    mask: Bool[Tensor, " points"]
    normals: Float[Tensor, "points space"]
    normal_derivative: Float[Tensor, "points *axes"]
    transfer: Float[Tensor, " points"] | None = None
    is_robin: Bool[Tensor, " points"] | None = None
    is_homogeneous: bool = False
    is_stress_free: Bool[Tensor, " points"] | None = None

    def under(self, other: Slope) -> Slope:
        """Both together: where the other one prescribes something, only that counts, with its own normals."""
        mask = other.mask
        normals = torch.where(mask[:, None], other.normals, self.normals)
        at_points = mask.reshape(-1, *[1] * (self.normal_derivative.ndim - 1))
        derivative = torch.where(at_points, other.normal_derivative, self.normal_derivative)
        transfer, is_robin, is_stress_free = (
            _chosen(mask, getattr(self, name), getattr(other, name))
            for name in ("transfer", "is_robin", "is_stress_free")
        )
        homogeneous = self.is_homogeneous and other.is_homogeneous
        return Slope(
            mask=self.mask | mask,
            normals=normals,
            normal_derivative=derivative,
            transfer=transfer,
            is_robin=is_robin,
            is_homogeneous=homogeneous,
            is_stress_free=is_stress_free,
        )


class Condition(ABC):
    """A condition of one unknown, over all points of a case. A kind is a frozen dataclass derived from this."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__repr__ = Condition.__repr__  # of a dataclass it would be all of its arrays

    def __repr__(self) -> str:
        mask = self.mask
        return f"{type(self).__name__}({int(mask.sum())} of {len(mask)} points)"

    __dataclass_fields__: ClassVar[dict[str, Any]]

    kind: ClassVar[str]
    """What the kind is called: the argument of `Case`, the section of a problem file."""
    on_every_unknown: ClassVar[bool] = False
    """Whether an unknown without one has an empty one."""
    is_exact: ClassVar[bool] = False
    """Whether `apply` is repeated after decoding, to remove the last round-off."""
    varying: ClassVar[str | None] = None
    """The tensor that `course` gives at a time, of kinds that have a course."""

    mask: Bool[Tensor, " points"]
    """Where it holds."""
    course: Course | None = None
    """How the tensor that varies does so."""

    # What a kind has to say itself

    @classmethod
    @abstractmethod
    def resolve(cls, given: Any, door: Door) -> Self:
        """The condition from what a user gave for one unknown: by patch, or an instance, which is checked."""

    @abstractmethod
    def scaled(self, reference: Reference) -> Self:
        """In other units; but for the course, which the caller takes care of."""

    def check_companion(self) -> None:
        """Raise a CompanionError where it cannot be brought onto another mesh."""
        return

    def apply(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        """The field with the condition fulfilled: in physical space, and with `encoded` in the encoded one."""
        return values

    def slope(self) -> Slope | None:
        """The normal derivative that it prescribes."""
        return None

    @property
    def representative(self) -> Int[Tensor, " points"] | None:
        """For each point the one that stands for all its copies, where it makes points one."""
        return None

    @classmethod
    def facets(cls, given: Any, mesh: Mesh) -> np.ndarray:
        """The exterior facets that it takes, so that "everywhere else" leaves them out."""
        if isinstance(given, Condition):
            return np.flatnonzero(mesh.facets.within(given.mask.numpy()))
        names = [given] if isinstance(given, str) else list(given)
        return np.concatenate([np.zeros(0, np.int64), *(mesh.patch(name).facets for name in names)])

    def settled(self) -> Self:
        """With all that can be known of it in advance, so that nobody has to ask a GPU later."""
        return self

    @property
    def acts(self) -> bool:
        """Whether `apply` does anything."""
        return type(self).apply is not Condition.apply

    # What follows from the roles

    @classmethod
    def roles(cls) -> dict[str, Role]:
        """Its tensors, and what they hold."""
        return {each.name: each.metadata["role"] for each in fields(cls) if "role" in each.metadata}

    @classmethod
    def flags(cls) -> list[str]:
        """What is known about all of its numbers, and of several conditions together if of each."""
        return [each.name for each in fields(cls) if each.type in (bool, "bool")]

    def each(self, change: Callable[[Role, Tensor], Tensor]) -> Self:
        """The condition with each of its tensors changed, also those that its course will give."""
        roles = self.roles()
        changed: dict[str, Any] = {name: change(role, getattr(self, name)) for name, role in roles.items()}
        if self.course is not None and self.varying is not None:
            role = roles[self.varying]
            changed["course"] = self.course.mapped(lambda values: change(role, values))
        return replace(self, **changed)

    def map(self, move: Callable[[Tensor], Tensor]) -> Self:
        """On another device or in another precision."""
        return self.each(lambda _, values: move(values))

    def moved(self, turn: Float[Tensor, "space space"], rank: int) -> Self:
        """After a rigid motion; `rank` is the unknown's."""
        return self.each(lambda role, values: turned(values, turn, role.rank_for(rank)))

    def encoded(self, encode: Callable[[Tensor], Tensor], is_linear: bool, name: str) -> Self:
        """In the encoded space of an encoder, where `apply` acts on encoded fields."""

        def change(role: Role, values: Tensor) -> Tensor:
            if role.rank is not None or role.times > 1:
                return values
            if role.is_difference and not is_linear:
                if bool(values.any()):
                    raise ValueError(
                        f"The condition {self.kind!r} of {name!r} prescribes a difference, but the encoder is not "
                        "linear: a difference does not pass through it. Use the default, Encoder.linear."
                    )
                return values[..., None]
            return encode(values)

        return replace(self, **{name: change(role, getattr(self, name)) for name, role in self.roles().items()})

    @classmethod
    def joined(cls, parts: Sequence[Self], sizes: Sequence[int]) -> Self:
        """The conditions of several cases, with so many points each, side by side."""
        starts = np.concatenate([[0], np.cumsum(sizes)])[:-1].tolist()
        made: dict[str, Any] = {}
        for name, role in cls.roles().items():
            tensors = [getattr(each, name) for each in parts]
            if role.is_point:
                tensors = [each + start for each, start in zip(tensors, starts, strict=True)]
            made[name] = torch.cat(tensors)
        for name in cls.flags():
            made[name] = all(getattr(each, name) for each in parts)
        if any(each.course is not None for each in parts):
            assert cls.varying is not None
            made["course"] = Course.joined([each.course or getattr(each, cls.varying) for each in parts])
        return cls(**made)

    def at(self, time: float) -> Self:
        """As it is at a time: constant from then on."""
        if self.course is None or self.varying is None:
            return self
        return replace(self, **{self.varying: self.course.at(time), "course": None})

    def over(self, times: Sequence[float]) -> Self:
        """With values at several times, on a trailing axis, where they change with time; at one time without it."""
        if self.course is None or self.varying is None or not times:
            return self
        if len(times) == 1:
            return self.at(times[0])
        series = torch.stack([self.course.at(time) for time in times], dim=-1)
        return replace(self, **{self.varying: series, "course": None, "is_series": True})

    def last(self) -> Self:
        """Of values at several times, those at the last."""
        if self.varying is None or not getattr(self, "is_series", False):
            return self
        return replace(self, **{self.varying: getattr(self, self.varying)[..., -1], "is_series": False})

    def rank(self, values: Tensor) -> int:
        """Axes of space of one of its tensors of the unknown."""
        return values.ndim - 1 - getattr(self, "is_series", False)

    def in_units(self, reference: Reference) -> Self:
        """In other units, its course as well."""
        made = self.scaled(reference)
        if self.course is None or self.varying is None:
            return made
        name, still = self.varying, replace(self, course=None)

        def change(values: Tensor) -> Tensor:
            return getattr(replace(still, **{name: values}).scaled(reference), name)

        return replace(made, course=self.course.mapped(change).with_unit_of_time(reference.time))

    def onto(self, along: Along) -> Self:
        """On another mesh of the same domain: where normals are, facet by facet, otherwise point by point."""
        changed: dict[str, Any] = {}
        if "normals" in self.roles():
            normals = along.normals(self.mask)
            mask, points = (normals != 0).any(dim=1), torch.zeros_like(self.mask)
            changed["normals"] = normals
        else:
            mask, points = along.held(self.mask), self.mask

        def there(values: Tensor) -> Tensor:
            return only(mask, along.values(values, points))

        changed |= {name: there(getattr(self, name)) for name in self.roles() if name not in ("mask", "normals")}
        if self.course is not None:
            changed["course"] = self.course.mapped(there)
        return replace(self, mask=mask, **changed)

    def checked(self, door: Door) -> Self:
        """Given as an instance: its tensors must have the shapes of their roles, and get the unknown's precision."""
        number, space = door.mesh.points.shape
        for name, role in self.roles().items():
            shape = torch.Size([number, *[space] * role.rank_for(door.like.ndim - 1)])
            values = getattr(self, name)
            if values.shape != shape:
                raise ValueError(f"{door.label()}.{name} has shape {list(values.shape)}; it must have {list(shape)}.")
        return self.map(lambda values: values.to(door.like.dtype) if values.is_floating_point() else values)


def _chosen(mask: Tensor, mine: Tensor | None, theirs: Tensor | None) -> Tensor | None:
    if mine is None and theirs is None:
        return None
    like = theirs if mine is None else mine
    assert like is not None
    return torch.where(mask, *(torch.zeros_like(like) if each is None else each for each in (theirs, mine)))


Conditions = Mapping[str, Mapping[str, Condition]]
"""By kind, then by unknown."""


def only(mask: Bool[Tensor, " points"], values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
    """The values at these points, zero elsewhere."""
    return values.where(mask.reshape(-1, *[1] * (values.ndim - 1)), 0.0)
