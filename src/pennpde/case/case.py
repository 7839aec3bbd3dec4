"""A boundary value problem.

`Case` is what every network takes and every dataset gives: a mesh, the fields at the start, the conditions of each
unknown, the parameters of the equation and, for training, the fields that should come out. It is loose at the door
(numbers, vectors, arrays, conditions by patch name) and tight inside (tensors over all points, with masks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.case.conditions import Dirichlet, Neumann, Slip
from pennpde.mesh import Mesh
from pennpde.operators import NEUMANN_WEIGHT, Operators
from pennpde.operators.graph import PointGraph

Value = float | Sequence[float] | np.ndarray | Tensor
"""A number, a vector of space, or one of these for each point."""


@dataclass(frozen=True, eq=False)
class Case:
    """One boundary value problem, or a batch of them side by side.

    Args:
        mesh: The mesh with its named patches.
        initial: The unknowns at the start, by name. A number is a scalar field, `space` numbers are a vector field, an
            array over the points is itself.
        dirichlet: By unknown, then by patch, the prescribed values. Where two patches share a point, **the later one
            in the given order wins**.
        neumann: By unknown, then by patch, the prescribed normal derivatives; where two patches share a point, the
            later value and the mean normal hold. A number in place of the patches stands for all of the boundary that
            has no Dirichlet or slip condition of this unknown.
        slip: By unknown, the patches without normal component.
        parameters: Numbers of the equation, or vectors of space, by name.
        features: Further known fields over the points, by name.
        targets: The fields that should come out. Named as an unknown they may have a trailing axis of output times.
        name: What the case is called in records and messages.
        sizes: Number of points of each case of a batch; leave it to `batch`.
        present: Not at points that only fill a case up to a size (`stack`), which sums leave out; None: everywhere.
        neumann_weight: The strength w of Neumann conditions against one neighbour, see `Operators.on`. A network that
            was trained with another one than the paper's 10 sets it by itself (`PENN.adapted`).
    """

    mesh: Mesh
    initial: Mapping[str, Any]
    dirichlet: Mapping[str, Any] = field(default_factory=dict)
    neumann: Mapping[str, Any] = field(default_factory=dict)
    slip: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    sizes: tuple[int, ...] = ()
    present: Bool[Tensor, " points"] | None = None
    neumann_weight: float = NEUMANN_WEIGHT
    cached_operators: Mapping[str, Operators] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.sizes:
            return  # made by `replace`, `to`, `moved` or `batch` of what was checked before
        number = self.mesh.number_of_points
        initial = {name: _field(value, self.mesh, f"initial[{name!r}]") for name, value in self.initial.items()}
        if not initial:
            raise ValueError('A case has at least one unknown; give it an initial field, as in initial={"T": 0.0}.')
        for kind in ("dirichlet", "neumann", "slip"):
            if unknown := getattr(self, kind).keys() - initial.keys():
                raise KeyError(
                    f"{kind} names {sorted(unknown)}, but the unknowns of the case are {sorted(initial)}: give each "
                    "unknown an initial field."
                )
        slip = {name: self._resolve_slip(name, given, initial[name]) for name, given in self.slip.items()}
        dirichlet = {
            name: self._resolve_dirichlet(name, self.dirichlet.get(name, {}), initial[name]) for name in initial
        }
        neumann = {name: self._resolve_neumann(name, self.neumann.get(name, {}), initial[name]) for name in initial}
        settled = {
            "initial": initial,
            "dirichlet": dirichlet,
            "neumann": neumann,
            "slip": slip,
            "parameters": {name: _parameter(name, value, self.mesh) for name, value in self.parameters.items()},
            "features": {
                name: _field(value, self.mesh, f"features[{name!r}]") for name, value in self.features.items()
            },
            "targets": {
                name: _target(name, value, self.mesh, initial.get(name)) for name, value in self.targets.items()
            },
            "sizes": (number,),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)

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
        for name, neumann in self.neumann.items():
            same = [other for other in made if torch.equal(self.neumann[other].normals, neumann.normals)]
            if same:
                made[name] = made[same[0]]
                continue
            normals = neumann.normals.to("cpu", points.dtype)
            made[name] = Operators.from_normals(
                points, graph, normals, neumann_weight=self.neumann_weight, dtype=like.dtype
            ).to(device=like.device)
        return made

    def with_neumann_weight(self, weight: float) -> Case:
        """The case with Neumann conditions of another strength; itself where that is the strength it has."""
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
        """Spread one value a case over its points."""
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

        def turned(values: Tensor, rank: int) -> Tensor:
            for axis in range(1, rank + 1):
                values = torch.movedim(torch.movedim(values, axis, -1) @ turn.T.to(values), -1, axis)
            return values

        ranks = {name: values.ndim - 1 for name, values in self.initial.items()}
        batched = len(self.sizes) > 1
        return replace(
            self,
            mesh=self.mesh.moved(turn, translation),
            initial={name: turned(values, ranks[name]) for name, values in self.initial.items()},
            dirichlet={
                name: Dirichlet(each.mask, turned(each.values, ranks[name])) for name, each in self.dirichlet.items()
            },
            neumann={
                name: Neumann(each.mask, turned(each.normals, 1), turned(each.normal_derivative, ranks[name]))
                for name, each in self.neumann.items()
            },
            slip={name: Slip(each.mask, turned(each.normals, 1)) for name, each in self.slip.items()},
            parameters={
                name: value @ turn.T.to(value) if value.ndim - batched == 1 else value
                for name, value in self.parameters.items()
            },
            features={name: turned(values, values.ndim - 1) for name, values in self.features.items()},
            targets={name: turned(values, ranks.get(name, values.ndim - 1)) for name, values in self.targets.items()},
            cached_operators=None,
        )

    def _map(self, move: Callable[[Tensor], Tensor], **changes: Any) -> Case:
        def each(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return {name: move(values) for name, values in fields.items()}

        settled: dict[str, Any] = {
            "initial": each(self.initial),
            "dirichlet": {name: Dirichlet(move(c.mask), move(c.values)) for name, c in self.dirichlet.items()},
            "neumann": {
                name: Neumann(move(c.mask), move(c.normals), move(c.normal_derivative))
                for name, c in self.neumann.items()
            },
            "slip": {name: Slip(move(c.mask), move(c.normals)) for name, c in self.slip.items()},
            "parameters": each(self.parameters),
            "features": each(self.features),
            "targets": each(self.targets),
            "present": None if self.present is None else move(self.present),
        }
        return replace(self, **(settled | changes))

    def _resolve_dirichlet(self, name: str, given: Any, like: Tensor) -> Dirichlet:
        if isinstance(given, Dirichlet):
            _check_shape(f"dirichlet[{name!r}].mask", given.mask, like.shape[:1])
            _check_shape(f"dirichlet[{name!r}].values", given.values, like.shape)
            return Dirichlet(given.mask, given.values.to(like.dtype))
        mask = torch.zeros(like.shape[0], dtype=torch.bool)
        values = torch.zeros_like(like)
        for patch, value in _by_patch("dirichlet", name, given).items():
            points = torch.from_numpy(self.mesh.patch(patch).points)
            prescribed = _field(value, self.mesh, f"dirichlet[{name!r}][{patch!r}]", like)
            mask[points] = True
            values[points] = prescribed[points]
        return Dirichlet(mask, values)

    def _resolve_neumann(self, name: str, given: Any, like: Tensor) -> Neumann:
        if isinstance(given, Neumann):
            _check_shape(f"neumann[{name!r}].mask", given.mask, like.shape[:1])
            _check_shape(f"neumann[{name!r}].normals", given.normals, self.mesh.points.shape)
            _check_shape(f"neumann[{name!r}].normal_derivative", given.normal_derivative, like.shape)
            return Neumann(given.mask, given.normals.to(like.dtype), given.normal_derivative.to(like.dtype))
        if not isinstance(given, Mapping):
            return self._neumann_on(name, self._free_facets(name), {None: given}, like)
        facets = [self.mesh.patch(patch).facets for patch in given]
        for patch, of_patch in zip(given, facets, strict=True):
            if not len(of_patch):
                raise ValueError(
                    f"neumann[{name!r}] names the patch {patch!r}, which has points but no whole facet, and so no "
                    "normal. Give the patch all points of its facets."
                )
        return self._neumann_on(name, np.unique(np.concatenate([*facets, np.empty(0, np.int64)])), given, like)

    def _neumann_on(self, name: str, facets: np.ndarray, values: Mapping[Any, Any], like: Tensor) -> Neumann:
        normals = self.mesh.normals_of_facets(facets)
        mask = (normals != 0).any(dim=1)
        derivative = torch.zeros_like(like)
        for patch, value in values.items():
            where = f"neumann[{name!r}]" if patch is None else f"neumann[{name!r}][{patch!r}]"
            points = mask if patch is None else torch.from_numpy(self.mesh.patch(patch).points)
            derivative[points] = _field(value, self.mesh, where, like)[points]
        derivative[~mask] = 0.0
        return Neumann(mask, normals, derivative)

    def _free_facets(self, name: str) -> np.ndarray:
        """The exterior facets on which the unknown has no other condition."""
        taken = np.zeros(len(self.mesh.facets), dtype=bool)
        for given in (self.dirichlet.get(name, {}), self.slip.get(name, ())):
            if isinstance(given, Dirichlet | Slip):
                taken |= self.mesh.facets.within(given.mask.numpy())
            else:
                for patch in _names(given):
                    taken[self.mesh.patch(patch).facets] = True
        return np.flatnonzero(~taken)

    def _resolve_slip(self, name: str, given: Any, like: Tensor) -> Slip:
        if like.ndim < 2:
            raise ValueError(f"slip names {name!r}, which is a scalar: only a vector has a normal component.")
        if isinstance(given, Slip):
            _check_shape(f"slip[{name!r}].mask", given.mask, like.shape[:1])
            _check_shape(f"slip[{name!r}].normals", given.normals, self.mesh.points.shape)
            return Slip(given.mask, given.normals.to(like.dtype))
        normals = self.mesh.point_normals(_names(given))
        return Slip((normals != 0).any(dim=1), normals)


def _by_patch(kind: str, name: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    raise ValueError(f"{kind}[{name!r}] is {given!r}; give the values by patch, as {{'inlet': {given!r}}}.")


def _names(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else list(given)


def _check_shape(where: str, given: Tensor, shape: Sequence[int]) -> None:
    if given.shape != torch.Size(shape):
        raise ValueError(f"{where} has shape {list(given.shape)}; it must have {list(shape)}.")


def _tensor(value: Any, mesh: Mesh, where: str) -> Tensor:
    """A finite tensor in the precision of the mesh."""
    try:
        tensor = torch.as_tensor(value, dtype=mesh.points.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} is {value!r}, which does not make numbers: {error}") from None
    if not torch.isfinite(tensor).all():
        first = tuple((~torch.isfinite(tensor)).nonzero()[0].tolist())
        at = f", at index {list(first)}" if first else ""
        raise ValueError(f"{where} holds a value that is not finite{at}: {float(tensor[first])}.")
    return tensor


def _field(value: Value, mesh: Mesh, where: str, like: Tensor | None = None) -> Tensor:
    """A field over all points from a number, a vector or an array, shaped as `like` where that is given."""
    number, space = mesh.number_of_points, mesh.space
    tensor = _tensor(value, mesh, where)
    if tensor.shape[:1] == (number,) and all(size == space for size in tensor.shape[1:]):
        full = tensor
    elif tensor.ndim == 0:
        full = tensor.expand(number)
    elif tensor.shape == (space,):
        full = tensor.expand(number, space)
    else:
        raise ValueError(
            f"{where} has shape {list(tensor.shape)}; it may be a number, a vector of {space}, or one of these for "
            f"each of the {number} points."
        )
    if like is None or full.shape == like.shape:
        return full.clone()
    if full.ndim == 1:  # one number for all components: zero velocity on a wall is written as 0
        return full.reshape(-1, *[1] * (like.ndim - 1)).expand(like.shape).clone()
    raise ValueError(f"{where} has shape {list(full.shape)}, but the unknown has {list(like.shape)}.")


def _parameter(name: str, value: Any, mesh: Mesh) -> Tensor:
    tensor = _tensor(value, mesh, f"parameters[{name!r}]")
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
        return _field(value, mesh, where)
    tensor = _tensor(value, mesh, where)
    if tensor.shape[: unknown.ndim] != unknown.shape or tensor.ndim > unknown.ndim + 1:
        raise ValueError(
            f"{where} has shape {list(tensor.shape)}; the unknown has {list(unknown.shape)}, and its target that or "
            "one axis of times more."
        )
    return tensor
