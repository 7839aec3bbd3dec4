"""Several cases as one, block by block, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pennpde.case.case import Case
from pennpde.case.conditions import Dirichlet, Neumann, Slip
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
        for part in ("initial", "parameters", "features", "targets", "slip"):
            if getattr(case, part).keys() != getattr(first, part).keys():
                raise ValueError(
                    f"Cases of one batch have the same {part}; {first.name!r} has {sorted(getattr(first, part))}, "
                    f"{case.name!r} has {sorted(getattr(case, part))}."
                )
        if case.neumann_weight != first.neumann_weight:
            raise ValueError(
                f"Cases of one batch have the same neumann_weight; {first.name!r} has {first.neumann_weight:g}, "
                f"{case.name!r} has {case.neumann_weight:g}."
            )

    def joined(part: str) -> dict[str, Tensor]:
        return {name: torch.cat([getattr(case, part)[name] for case in cases]) for name in getattr(first, part)}

    def conditions(part: str, kind: type, attributes: tuple[str, ...]) -> dict[str, Any]:
        return {
            name: kind(*(torch.cat([getattr(getattr(case, part)[name], a) for case in cases]) for a in attributes))
            for name in getattr(first, part)
        }

    def per_case(name: str) -> Tensor:
        parts = [c.parameters[name] if len(c.sizes) > 1 else c.parameters[name][None] for c in cases]
        return torch.cat(parts)

    return Case(
        mesh=Mesh.concatenate([case.mesh for case in cases]),
        initial=joined("initial"),
        dirichlet=conditions("dirichlet", Dirichlet, ("mask", "values")),
        neumann=conditions("neumann", Neumann, ("mask", "normals", "normal_derivative")),
        slip=conditions("slip", Slip, ("mask", "normals")),
        parameters={name: per_case(name) for name in first.parameters},
        features=joined("features"),
        targets=joined("targets"),
        name=" + ".join(case.name for case in cases),
        sizes=tuple(size for case in cases for size in case.sizes),
        neumann_weight=first.neumann_weight,
        cached_operators={
            name: Operators.block_diagonal([case.operators[name] for case in cases]) for name in first.initial
        },
    )


def unbatch(fields: Mapping[str, Tensor], case: Case) -> list[dict[str, Tensor]]:
    """Fields over a batch, case by case."""
    parts = {name: values.split(case.sizes) for name, values in fields.items()}
    return [{name: parts[name][number] for name in parts} for number in range(len(case.sizes))]
