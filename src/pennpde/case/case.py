"""A boundary value problem.

`Case` is what every network takes and every dataset gives: a mesh, the fields at the start, the conditions of each
unknown, the parameters of the equation and, for training, the fields that should come out. It is loose at the door
(numbers, vectors, arrays, conditions by patch name) and tight inside (tensors over all points, with masks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.case.conditions import (
    KINDS,
    Across,
    Condition,
    Conditions,
    Dirichlet,
    Neumann,
    Periodic,
    Robin,
    Slip,
    Slope,
    Value,
    Varying,
)
from pennpde.case.remarks import Remark
from pennpde.case.resolving import resolved
from pennpde.mesh import Mesh
from pennpde.mesh.mesh import turned
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.graph import PointGraph

_NAMES = tuple(kind.kind for kind in KINDS)


@dataclass(frozen=True, eq=False, init=False)
class Case:
    """One boundary value problem, or a batch of several.

    Args:
        mesh: The mesh with its named patches.
        initial: The unknowns at the start, by name. A number is a scalar field, `space` numbers are a vector field,
            `space` rows of as many numbers a tensor field, an array over the points is itself.
        dirichlet: By unknown, then by patch, the prescribed values: numbers, vectors, matrices or arrays over the
            points, or how they change with time, as a function of time or a `Table`. Where two patches share a point,
            **the later one in the given order wins**.
        neumann: By unknown, then by patch, the prescribed normal derivatives, likewise; where two patches share a
            point, the later value and the mean normal hold. A number in place of the patches stands for all of the
            boundary that has no other condition of this unknown.
        slip: By unknown, the patches without normal component.
        parameters: Numbers of the equation, or vectors of space, by name. One that is called "time" is the time at
            which the conditions hold.
        features: Further known fields over the points, by name.
        targets: The fields that should come out. Named as an unknown they may have a trailing axis of output times.
        name: What the case is called in records and messages.
        sizes: Number of points of each case of a batch; leave it to `batch`.
        present: Not at points that only fill a case up to a size (`stack`) or are a copy of another one (periodic),
            which sums leave out; None: everywhere.
        cached_operators: Operators that are known already.
        robin: By unknown, then by patch, (a, b, c) of a f + b df/dn = c.
        periodic: By unknown, for the first patch of each periodic pair the second, `Across("outlet", jump=-1.0)` where
            the unknown is larger there.
        conditions: Conditions of further kinds, by class, then by unknown. Afterwards all conditions, by kind and
            unknown.
        neumann_weight: The strength w of Neumann conditions against one neighbour, see `Operators.on`. A network that
            was trained with another one than the paper's 10 sets it by itself (`PENN.adapted`).
        remarks: What the source of the case says and the case does not hold; the certificate of a prediction names it.
    """

    mesh: Mesh
    initial: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor]
    features: Mapping[str, Tensor]
    targets: Mapping[str, Tensor]
    name: str
    sizes: tuple[int, ...]
    present: Bool[Tensor, " points"] | None
    cached_operators: Mapping[str, Operators] | None
    conditions: Conditions
    neumann_weight: float
    remarks: tuple[Remark, ...]

    def __init__(
        self,
        mesh: Mesh,
        initial: Mapping[str, Value],
        dirichlet: Mapping[str, Dirichlet | Mapping[str, Varying]] | None = None,
        neumann: Mapping[str, Neumann | Mapping[str, Varying] | Varying] | None = None,
        slip: Mapping[str, Slip | str | Sequence[str]] | None = None,
        parameters: Mapping[str, Value] | None = None,
        features: Mapping[str, Value] | None = None,
        targets: Mapping[str, Value] | None = None,
        name: str = "",
        sizes: tuple[int, ...] = (),
        present: Bool[Tensor, " points"] | None = None,
        cached_operators: Mapping[str, Operators] | None = None,
        *,
        robin: Mapping[str, Robin | Mapping[str, Sequence[Varying] | Mapping[str, Varying]]] | None = None,
        periodic: Mapping[str, Periodic | Mapping[str, str | Across]] | None = None,
        conditions: Mapping[type[Condition], Mapping[str, Any]] | Conditions | None = None,
        neumann_weight: float = NEUMANN_WEIGHT,
        remarks: Sequence[Remark] = (),
    ) -> None:
        named = {"dirichlet": dirichlet, "neumann": neumann, "slip": slip, "robin": robin, "periodic": periodic}
        given: dict[str, Mapping[str, Any]] = {}
        kinds: dict[str, type[Condition]] = {}
        for kind, by_unknown in (conditions or {}).items():
            if not isinstance(kind, str):
                kinds[kind.kind] = kind
            given[kind if isinstance(kind, str) else kind.kind] = by_unknown
        given |= {kind: by_unknown for kind, by_unknown in named.items() if by_unknown is not None}
        settled: dict[str, Any] = {
            "mesh": mesh,
            "initial": initial,
            "parameters": parameters or {},
            "features": features or {},
            "targets": targets or {},
            "name": name,
            "sizes": sizes,
            "present": present,
            "cached_operators": cached_operators,
            "neumann_weight": neumann_weight,
            "remarks": tuple(remarks),
            # Further kinds act first: a prescribed value keeps the last word.
            "conditions": {kind: of_kind for kind, of_kind in given.items() if kind not in _NAMES}
            | {kind: given.get(kind, {}) for kind in _NAMES},
        }
        if not sizes:  # otherwise made by `replace`, `to`, `moved` or `batch` of what was checked before
            settled |= resolved(settled, kinds)
        for field_name, value in settled.items():
            object.__setattr__(self, field_name, value)

    @property
    def dirichlet(self) -> Mapping[str, Dirichlet]:
        """Prescribed values: every unknown has such a condition, maybe an empty one."""
        return cast(Mapping[str, Dirichlet], self.conditions["dirichlet"])

    @property
    def neumann(self) -> Mapping[str, Neumann]:
        """Prescribed normal derivatives: every unknown has such a condition, maybe an empty one."""
        return cast(Mapping[str, Neumann], self.conditions["neumann"])

    @property
    def slip(self) -> Mapping[str, Slip]:
        return cast(Mapping[str, Slip], self.conditions["slip"])

    @property
    def robin(self) -> Mapping[str, Robin]:
        return cast(Mapping[str, Robin], self.conditions["robin"])

    @property
    def periodic(self) -> Mapping[str, Periodic]:
        return cast(Mapping[str, Periodic], self.conditions["periodic"])

    def remarked(self, *remarks: Remark) -> Case:
        """The case with further remarks; one that it has already is not repeated."""
        new = tuple(each for each in dict.fromkeys(remarks) if each not in self.remarks)
        return replace(self, remarks=(*self.remarks, *new)) if new else self

    def conditions_of(self, name: str) -> list[Condition]:
        """All conditions of an unknown, in the order in which they act."""
        return [by_unknown[name] for by_unknown in self.conditions.values() if name in by_unknown]

    def slope(self, name: str) -> Slope:
        """The prescribed normal derivative of an unknown, all kinds together."""
        slopes = [slope for each in self.conditions_of(name) if (slope := each.slope()) is not None]
        together = slopes[0]
        for slope in slopes[1:]:
            together = together.under(slope)
        return together

    def representative(self, name: str) -> Int[Tensor, " points"] | None:
        """For each point the representative of it and its periodic copies, if the unknown is periodic."""
        found = [each.representative for each in self.conditions_of(name)]
        return next((each for each in found if each is not None), None)

    def periods(self, name: str) -> Float[np.ndarray, "periods space"]:
        """The shifts under which an unknown repeats itself, each with its opposite; none where it is not periodic."""
        return self.periodic[name].periods(self.mesh) if name in self.periodic else np.zeros((0, self.space))

    @property
    def changes_with_time(self) -> bool:
        """Whether any condition does."""
        return any(each.course is not None for of_kind in self.conditions.values() for each in of_kind.values())

    def at(self, time: float) -> Case:
        """The case at a time: its conditions as they are then, and the time as its parameter "time"."""
        known = next(iter(self.initial.values())).new_full((len(self.sizes),) if len(self.sizes) > 1 else (), time)
        return self.with_conditions(lambda _, each: each.at(time), parameters={**self.parameters, "time": known})

    def over(self, times: Sequence[float]) -> Case:
        """The case for evaluating fields at several times: time-dependent conditions get a trailing axis of times.

        Fields at one time have no such axis, and neither have the conditions.
        """
        return self.with_conditions(lambda _, each: each.over(times)) if self.changes_with_time else self

    def fulfilled(self, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Fields with the prescribed values set, bit for bit."""

        def fulfil(name: str, values: Tensor) -> Tensor:
            for condition in self.conditions_of(name):
                if condition.is_exact:
                    values = condition.apply(values)
            return values

        return {name: fulfil(name, values) for name, values in fields.items()}

    def with_conditions(self, change: Callable[[str, Any], Condition], **changes: Any) -> Case:
        """The case with every condition changed, given its unknown; and with other changes, as for `replace`."""
        conditions = {
            kind: {name: change(name, each) for name, each in by_unknown.items()}
            for kind, by_unknown in self.conditions.items()
        }
        return replace(self, conditions=conditions, **changes)

    @property
    def operators(self) -> Mapping[str, Operators]:
        """The differential operators of each unknown, with its own Neumann boundary; assembled once."""
        if self.cached_operators is None:
            assemble = self._assembled_operators
            if torch.compiler.is_compiling():
                # Not as a decorator: it would load the compiler, a second and a half, wherever a case is used.
                assemble = torch.compiler.disable()(assemble)  # it would trace into SciPy
            object.__setattr__(self, "cached_operators", assemble())
        assert self.cached_operators is not None
        return self.cached_operators

    # Kept for later, when gradients may be wanted: tensors made in inference mode could never have any.
    @torch.inference_mode(mode=False)
    def _assembled_operators(self) -> dict[str, Operators]:
        like = next(iter(self.initial.values()))
        points = self.mesh.points
        graph = PointGraph.of(self.mesh.edges, self.number_of_points, self.space)
        made: dict[str, Operators] = {}
        known: dict[str, tuple[Tensor | None, ...]] = {}
        for name in self.initial:
            slope = self.slope(name)
            known[name] = slope.normals, slope.transfer, slope.is_robin, self.representative(name)
            same = [other for other in made if _alike(known[other], known[name])]
            if same:
                made[name] = made[same[0]]
                continue
            normals, transfer, is_robin, representative = (each if each is None else each.cpu() for each in known[name])
            assert normals is not None
            made[name] = Operators.from_normals(
                points,
                graph,
                normals.to(points.dtype),
                transfer=transfer,
                is_robin=is_robin,
                representative=representative,
                neumann_weight=self.neumann_weight,
                dtype=like.dtype,
            ).to(device=like.device)
        return made

    def with_neumann_weight(self, weight: float) -> Case:
        """The case with another weight of the Neumann conditions; itself if it has this weight already."""
        if weight == self.neumann_weight:
            return self
        return replace(self, neumann_weight=weight, cached_operators=None)

    @property
    def space(self) -> int:
        return self.mesh.space

    @property
    def number_of_points(self) -> int:
        return sum(self.sizes)

    @property
    def device(self) -> torch.device:
        return next(iter(self.initial.values())).device

    @property
    def index(self) -> Int[Tensor, " points"]:
        """The case of a batch that each point belongs to."""
        counts = torch.tensor(self.sizes, device=self.device)
        return torch.repeat_interleave(counts, output_size=self.number_of_points)

    def parameter(self, name: str, like: Float[Tensor, "points *axes"]) -> Tensor:
        """A parameter at each point, shaped to multiply the field `like`, in a single case and in a batch."""
        if name not in self.parameters:
            raise KeyError(f"The case has no parameter {name!r}; it has {sorted(self.parameters)}.")
        value = self.parameters[name].to(like.dtype)
        batched = len(self.sizes) > 1
        axes = value.ndim - batched
        if like.ndim - 1 < axes:
            raise ValueError(f"The parameter {name!r} is a vector; it cannot multiply a field of {list(like.shape)}.")
        at_points = self.at_points(value) if batched else value.reshape(1, *value.shape)
        return at_points.reshape(-1, *at_points.shape[1:], *[1] * (like.ndim - 1 - axes))

    def sum(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "cases *axes"]:
        """Sum over the points of each case."""
        values = self._without_fillers(values)
        if len(set(self.sizes)) == 1:  # a plain sum: an index_add is slow, forward and backward
            return values.reshape(len(self.sizes), self.sizes[0], *values.shape[1:]).sum(dim=1)
        total = values.new_zeros(len(self.sizes), *values.shape[1:])
        return total.index_add(0, self.index, values)

    def total(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, " cases"]:
        """Sum over the points of each case and all other axes."""
        values = self._without_fillers(values)
        if len(set(self.sizes)) == 1:  # in one go: channel by channel first is slower on a GPU
            return values.reshape(len(self.sizes), -1).sum(dim=1)
        return self.sum(values.reshape(values.shape[0], -1).sum(dim=1))

    def _without_fillers(self, values: Float[Tensor, "points *axes"]) -> Float[Tensor, "points *axes"]:
        if self.present is None:
            return values
        return torch.where(self.present.reshape(-1, *[1] * (values.ndim - 1)), values, 0.0)

    def at_points(self, per_case: Float[Tensor, "cases *axes"]) -> Float[Tensor, "points_or_one *axes"]:
        """Spread one value per case over its points."""
        if len(self.sizes) == 1:
            return per_case
        if len(set(self.sizes)) == 1:
            return per_case.repeat_interleave(self.sizes[0], dim=0)
        return per_case[self.index]

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Case:
        """The case in another precision or on another device. The mesh stays where it is."""
        first = next(iter(self.initial.values()))
        if (dtype is None or first.dtype == dtype) and (device is None or first.device == torch.device(device)):
            return self

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

        operators = {name: each.to(dtype, device) for name, each in self.operators.items()}
        return self._map(move, cached_operators=operators)

    def moved(self, rotation: Float[Tensor, "space space"], translation: Float[Tensor, " space"]) -> Case:
        """The case after a rigid motion: rotation or reflection, then translation.

        Points, normals and every vector or tensor field turn with it; scalars stay.
        """
        turn = torch.as_tensor(rotation).to(self.mesh.points)
        ranks = {name: values.ndim - 1 for name, values in self.initial.items()}
        batched = len(self.sizes) > 1
        return self.with_conditions(
            lambda name, each: each.moved(turn, ranks[name]),
            mesh=self.mesh.moved(turn, translation),
            initial={name: turned(values, turn, ranks[name]) for name, values in self.initial.items()},
            parameters={
                name: value @ turn.T.to(value) if value.ndim - batched == 1 else value
                for name, value in self.parameters.items()
            },
            features={name: turned(values, turn, values.ndim - 1) for name, values in self.features.items()},
            targets={
                name: turned(values, turn, ranks.get(name, values.ndim - 1)) for name, values in self.targets.items()
            },
            cached_operators=None,
        )

    def _map(self, move: Callable[[Tensor], Tensor], **changes: Any) -> Case:
        def each(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: move(values) for name, values in fields.items()}

        settled: dict[str, Any] = {
            "initial": each(self.initial),
            "parameters": each(self.parameters),
            "features": each(self.features),
            "targets": each(self.targets),
            "present": None if self.present is None else move(self.present),
        }
        return self.with_conditions(lambda _, condition: condition.map(move), **(settled | changes))


def _alike(one: Sequence[Tensor | None], other: Sequence[Tensor | None]) -> bool:
    """Whether two unknowns have the same operators."""
    return all(
        a is b or (a is not None and b is not None and torch.equal(a, b)) for a, b in zip(one, other, strict=True)
    )
