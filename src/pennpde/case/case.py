"""A boundary value problem.

`Case` is what every network takes and every dataset gives: a mesh, the fields at the start, the conditions of each
unknown, the parameters of the equation and, for training, the fields that should come out. It is loose at the door
(numbers, vectors, arrays, conditions by patch name) and tight inside (tensors over all points, with masks).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.case.conditions import (
    KINDS,
    Across,
    Components,
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
from pennpde.case.conditions.given import Door, field_from, finite_tensor, is_partial
from pennpde.mesh import Mesh
from pennpde.mesh.mesh import turned
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.graph import PointGraph

_NAMES = tuple(kind.kind for kind in KINDS)


@dataclass(frozen=True)
class Remark:
    """One sentence for the user about something that was left out, replaced or approximated.

    Attributes:
        text: The sentence.
        severe: Whether the predicted fields may be wrong because of it: then it is a warning, otherwise a note.
        other_physics: Whether the equations of the source have terms that are left out. Then its solution is another
            one, and how far away it is cannot be known.
    """

    text: str
    severe: bool = True
    other_physics: bool = False


@dataclass(frozen=True, eq=False, init=False)
class Case:
    """One boundary value problem, or a batch of several.

    Args:
        mesh: The mesh with its named patches.
        initial: The unknowns at the start, by name. A number is a scalar field, `space` numbers are a vector field,
            `space` rows of as many numbers a tensor field, an array over the points is itself.
        dirichlet: By unknown, then by patch, the prescribed values: numbers, vectors, matrices or arrays over the
            points, or how they change with time, as a function of time or a `Table`. Where two patches share a point,
            **the later one in the given order wins**. None in place of a component leaves it free, (0.0, None).
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
        *,
        slip: Mapping[str, Slip | str | Sequence[str]] | None = None,
        parameters: Mapping[str, Value] | None = None,
        features: Mapping[str, Value] | None = None,
        targets: Mapping[str, Value] | None = None,
        name: str = "",
        sizes: tuple[int, ...] = (),
        present: Bool[Tensor, " points"] | None = None,
        cached_operators: Mapping[str, Operators] | None = None,
        robin: Mapping[str, Robin | Mapping[str, Sequence[Varying] | Mapping[str, Varying]]] | None = None,
        periodic: Mapping[str, Periodic | Mapping[str, str | Across]] | None = None,
        conditions: Mapping[type[Condition], Mapping[str, Any]] | Conditions | None = None,
        neumann_weight: float = NEUMANN_WEIGHT,
        remarks: Sequence[Remark] = (),
    ) -> None:
        named = {"dirichlet": dirichlet, "neumann": neumann, "slip": slip, "robin": robin, "periodic": periodic}
        if not hasattr(mesh, "number_of_points"):  # what stands for a mesh will do
            raise TypeError(
                f'The mesh is given as {mesh!r:.60}; read it first, as in Case(penn.read("duct.vtu"), ...).'
            )
        fields = {"initial": initial, "parameters": parameters, "features": features, "targets": targets}
        for argument, by_name in (named | fields).items():
            if by_name is not None and not isinstance(by_name, Mapping):
                raise TypeError(f"{argument} is {by_name!r:.60}; it is given by name, as in {argument}={{NAME: ...}}.")
        given: dict[str, Mapping[str, Any]] = {}
        kinds: dict[str, type[Condition]] = {}
        for kind, by_unknown in (conditions or {}).items():
            if not isinstance(kind, str):
                kinds[kind.kind] = kind
            given[kind if isinstance(kind, str) else kind.kind] = by_unknown
        given |= {kind: by_unknown for kind, by_unknown in named.items() if by_unknown is not None}
        if not sizes:
            given = _with_components(given)
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
            settled |= _resolved(settled, kinds)
        for field_name, value in settled.items():
            object.__setattr__(self, field_name, value)

    @staticmethod
    def from_openfoam(folder: str | Path, equation: Any = None, time: float | None = None) -> Case:
        """The case in an OpenFOAM folder.

        Args:
            folder: Of the case.
            equation: Whose unknowns and parameters are read (`Physics`, such as `network.equation`); by default those
                of laminar flow: U, p and nu.
            time: Whose folder holds conditions and initial fields; by default that at which the case starts.
        """
        # By name: the readers of OpenFOAM's files and the equations are layers above.
        known = equation or import_module("pennpde.models.flow_physics").FlowPhysics()
        return import_module("pennpde.openfoam").read_problem(folder, known, time)

    def __repr__(self) -> str:
        told = []
        for name in self.initial:
            counts = {each.kind: int(each.mask.sum()) for each in self.conditions_of(name)}
            told.append(f"{name} ({', '.join(f'{kind} at {n}' for kind, n in counts.items() if n) or 'free'})")
        title = f"{self.name!r}, " if self.name else ""
        known = f"parameters: {', '.join(self.parameters) or 'none'}"
        return f"Case({title}{self.number_of_points} points in {self.space}D; {', '.join(told)}; {known})"

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
            known[name] = (
                slope.normals,
                slope.transfer,
                slope.is_robin,
                self.representative(name),
                slope.is_stress_free,
            )
            same = [other for other in made if _alike(known[other], known[name])]
            if same:
                made[name] = made[same[0]]
                continue
            normals, transfer, is_robin, representative, is_stress_free = (
                each if each is None else each.cpu() for each in known[name]
            )
            assert normals is not None
            made[name] = Operators.from_normals(
                points,
                graph,
                normals.to(points.dtype),
                transfer=transfer,
                is_robin=is_robin,
                representative=representative,
                is_stress_free=is_stress_free,
                neumann_weight=self.neumann_weight,
                dtype=like.dtype,
            ).to(device=like.device)
        return made

    def with_neumann_weight(self, weight: float) -> Case:
        """The case with another weight of the Neumann conditions; itself if it has this weight already.

        It is kept with its operators: a network of another weight asks for it in every call.
        """
        if weight == self.neumann_weight:
            return self
        kept: dict[float, Case] = self.__dict__.setdefault("_of_other_weights", {})
        if weight not in kept:
            kept[weight] = replace(self, neumann_weight=weight, cached_operators=None)
        return kept[weight]

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


# Several cases as one


def batch(cases: Sequence[Case]) -> Case:
    """Several cases as one, block by block. Every case keeps its own step sizes, parameters and conditions."""
    if not cases:
        raise ValueError("batch needs at least one case; got an empty sequence.")
    if len(cases) == 1:
        return cases[0]
    first = cases[0]
    for case in cases[1:]:
        for part, mine, theirs in _parts(first, case):
            if mine.keys() != theirs.keys():
                raise ValueError(
                    f"Cases of one batch have the same {part}; {first.name!r} has {sorted(mine)}, "
                    f"{case.name!r} has {sorted(theirs)}."
                )
        if case.neumann_weight != first.neumann_weight:
            raise ValueError(
                f"Cases of one batch have the same neumann_weight; {first.name!r} has {first.neumann_weight:g}, "
                f"{case.name!r} has {case.neumann_weight:g}."
            )

    def joined(part: str) -> dict[str, Tensor]:
        return {name: torch.cat([getattr(case, part)[name] for case in cases]) for name in getattr(first, part)}

    def per_case(name: str) -> Tensor:
        parts = [c.parameters[name] if len(c.sizes) > 1 else c.parameters[name][None] for c in cases]
        return torch.cat(parts)

    points = [case.number_of_points for case in cases]
    return Case(
        mesh=Mesh.concatenate([case.mesh for case in cases]),
        initial=joined("initial"),
        conditions={
            kind: {
                name: type(each).joined([case.conditions[kind][name] for case in cases], points)
                for name, each in by_unknown.items()
            }
            for kind, by_unknown in first.conditions.items()
        },
        parameters={name: per_case(name) for name in first.parameters},
        features=joined("features"),
        targets=joined("targets"),
        name=" + ".join(case.name for case in cases),
        present=None if all(case.present is None for case in cases) else torch.cat([_present(case) for case in cases]),
        sizes=tuple(size for case in cases for size in case.sizes),
        neumann_weight=first.neumann_weight,
        cached_operators={
            name: Operators.block_diagonal([case.operators[name] for case in cases]) for name in first.initial
        },
    )


def _parts(first: Case, case: Case) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    for part in ("initial", "parameters", "features", "targets"):
        yield part, getattr(first, part), getattr(case, part)
    for kind in {**first.conditions, **case.conditions}:
        yield kind, first.conditions.get(kind, {}), case.conditions.get(kind, {})


def _present(case: Case) -> Tensor:
    if case.present is not None:
        return case.present
    return torch.ones(case.number_of_points, dtype=torch.bool, device=case.device)


def unbatch(fields: Mapping[str, Tensor], case: Case) -> list[dict[str, Tensor]]:
    """Fields over a batch, case by case."""
    parts = {name: values.split(case.sizes) for name, values in fields.items()}
    return [{name: parts[name][number] for name in parts} for number in range(len(case.sizes))]


# From what is given, loose, to tensors over all points


def _with_components(given: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Prescribed values that leave components free are conditions of a kind of their own."""
    whole, single = {}, {}
    for name, by_patch in given.get(Dirichlet.kind, {}).items():
        whole[name] = by_patch
        if isinstance(by_patch, Mapping) and (some := {k: each for k, each in by_patch.items() if is_partial(each)}):
            whole[name] = {patch: each for patch, each in by_patch.items() if patch not in some}
            single[name] = some
    if not single:
        return dict(given)
    known = given.get(Components.kind, {})
    return {**given, Dirichlet.kind: whole, Components.kind: {**known, **single}}


def _resolved(given: Mapping[str, Any], kinds: Mapping[str, type[Condition]]) -> dict[str, Any]:
    """What was given, loose, as tensors over all points."""
    mesh: Mesh = given["mesh"]
    initial = {name: field_from(value, mesh, f"initial[{name!r}]") for name, value in given["initial"].items()}
    if not initial:
        raise ValueError('A case has at least one unknown; give it an initial field, as in initial={"T": 0.0}.')
    parameters = {name: _parameter(name, value, mesh) for name, value in given["parameters"].items()}
    conditions = _resolved_conditions(given["conditions"], mesh, initial, kinds)
    if "time" in parameters:
        time = float(parameters["time"])
        conditions = {
            kind: {name: each.at(time) for name, each in by_unknown.items()} for kind, by_unknown in conditions.items()
        }
    present = given["present"]
    if present is None:
        present = counted_points(conditions, initial)
    return {
        "initial": initial,
        "parameters": parameters,
        "features": {name: field_from(value, mesh, f"features[{name!r}]") for name, value in given["features"].items()},
        "targets": {name: _target(name, value, mesh, initial.get(name)) for name, value in given["targets"].items()},
        "sizes": (mesh.number_of_points,),
        "present": present,
        "conditions": conditions,
    }


def counted_points(conditions: Conditions, unknowns: Collection[str]) -> Bool[Tensor, " points"] | None:
    """Where sums count: a point and its periodic copies count once, if all unknowns agree on them; None: everywhere."""
    periodic = [each for each in conditions["periodic"].values() if isinstance(each, Periodic)]
    if len(periodic) < len(unknowns):
        return None
    return ~torch.stack([each.copies for each in periodic]).all(dim=0)


def _resolved_conditions(
    given: Mapping[str, Mapping[str, Any]],
    mesh: Mesh,
    initial: Mapping[str, Tensor],
    kinds: Mapping[str, type[Condition]],
) -> dict[str, dict[str, Condition]]:
    every = {**kinds, **{kind.kind: kind for kind in KINDS}}
    resolved: dict[str, dict[str, Condition]] = {}
    for kind, by_unknown in given.items():
        if kind not in every:
            instances = [type(each) for each in by_unknown.values() if isinstance(each, Condition)]
            if len(instances) != len(by_unknown) or not instances:
                raise KeyError(
                    f"Conditions of the kind {kind!r} are not known; give them by class: conditions={{Kind: ...}}."
                )
            every = {kind: instances[0], **every}
    for kind, made in every.items():
        by_unknown = given.get(kind, {})
        if unknown := by_unknown.keys() - initial.keys():
            raise KeyError(
                f"{kind} names {sorted(unknown)}, but the unknowns of the case are {sorted(initial)}: give each "
                "unknown an initial field."
            )
        resolved[kind] = {}
        for name, like in initial.items():
            if name in by_unknown or made.on_every_unknown:
                others = {other: given[other][name] for other in given if other != kind and name in given[other]}
                door = Door(kind, name, mesh, like, lambda others=others: _facets(others, every, mesh))
                resolved[kind][name] = made.resolve(by_unknown.get(name, {}), door)
    for name, periodic in resolved["periodic"].items():
        assert isinstance(periodic, Periodic)
        for kind, by_unknown in resolved.items():
            if name in by_unknown and kind != "periodic":
                by_unknown[name] = periodic.closing(by_unknown[name], name)
    return resolved


def _facets(given: Mapping[str, Any], kinds: Mapping[str, type[Condition]], mesh: Mesh) -> np.ndarray:
    """The exterior facets on which an unknown has one of these conditions."""
    return np.concatenate([np.zeros(0, np.int64), *(kinds[kind].facets(each, mesh) for kind, each in given.items())])


def _parameter(name: str, value: Any, mesh: Mesh) -> Tensor:
    tensor = finite_tensor(value, mesh, f"parameters[{name!r}]")
    if tensor.shape not in ((), (mesh.space,)):
        raise ValueError(
            f"parameters[{name!r}] has shape {list(tensor.shape)}; a parameter is a number or a vector of "
            f"{mesh.space}. A field over the points belongs into features."
        )
    return tensor


def _target(name: str, value: Any, mesh: Mesh, unknown: Tensor | None) -> Tensor:
    """A target: of an unknown with or without an axis of times, of anything else a field."""
    where = f"targets[{name!r}]"
    if unknown is None:
        return field_from(value, mesh, where)
    tensor = finite_tensor(value, mesh, where)
    if tensor.shape[: unknown.ndim] != unknown.shape or tensor.ndim > unknown.ndim + 1:
        raise ValueError(
            f"{where} has shape {list(tensor.shape)}; the unknown has {list(unknown.shape)}, and its target that or "
            "one axis of times more."
        )
    return tensor
