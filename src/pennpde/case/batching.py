"""Several cases as one, block by block, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pennpde.case.case import Case
from pennpde.mesh import Mesh
from pennpde.operators import Operators


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
