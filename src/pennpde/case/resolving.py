"""A case as it was given, loose, becomes tensors over all points: fields, parameters and conditions of every kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from pennpde.case.conditions import KINDS, Condition, Conditions, Periodic
from pennpde.case.conditions.given import Door, field_from, finite_tensor
from pennpde.mesh import Mesh


def resolved(given: Mapping[str, Any], kinds: Mapping[str, type[Condition]]) -> dict[str, Any]:
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
