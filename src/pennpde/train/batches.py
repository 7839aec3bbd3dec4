"""Cases as batches: which cases a step sees, and how they go through a network together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.case import Case, batch
from pennpde.mesh import Mesh

Item = TypeVar("Item")


def evenly(items: Sequence[Item], most: int | None) -> list[Item]:
    """At most so many of a list, evenly over all of it; None: all."""
    if most is None or len(items) <= most:
        return list(items)
    return [items[(2 * place + 1) * len(items) // (2 * most)] for place in range(most)]


@dataclass(frozen=True)
class Order:
    """Which cases a step sees: every case once per epoch, each epoch in a different order.

    Depends only on seed and step, so that a resumed training sees the same.
    """

    cases: int
    batch_size: int
    seed: int

    def batches(self, step: int, count: int) -> Int[Tensor, "count batch"]:
        """The batches of `count` steps from `step` on. One may hold the end of an epoch and the start of the next."""
        first, last = step * self.batch_size, (step + count) * self.batch_size
        chosen = [_epoch(self, place // self.cases)[place % self.cases] for place in range(first, last)]
        return torch.tensor(chosen).reshape(count, self.batch_size)


@lru_cache(maxsize=2)
def _epoch(order: Order, number: int) -> list[int]:
    generator = torch.Generator().manual_seed(1_000_003 * order.seed + number)
    return torch.randperm(order.cases, generator=generator).tolist()


@dataclass(frozen=True, eq=False)
class Batches:
    """Cases on the device; those of a batch go side by side, as `case.batch` puts them."""

    cases: tuple[Case, ...]
    _meshes: dict[tuple[int, ...], Mesh] = field(default_factory=dict, init=False, repr=False)
    """What batches of cases on one mesh have as their mesh, by number of cases: networks keep operators with it."""

    @classmethod
    def of(cls, model: nn.Module, cases: Sequence[Case], device: torch.device) -> Batches:
        """In the network's precision; where it takes any, a copy in another, with operators of its own, is saved."""
        dtype = None if getattr(model, "takes_any_precision", False) else next(model.parameters()).dtype
        return cls(tuple(case.to(dtype, device) for case in cases))

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        cases = [self.cases[number] for number in chosen.tolist()]
        like = next(iter(cases[0].initial.values()))
        sizes = [case.number_of_points for case in cases]
        together = batch(cases)
        if len(cases) > 1 and all(case.mesh is cases[0].mesh for case in cases):
            key = (id(cases[0].mesh), len(cases))
            together = replace(together, mesh=self._meshes.setdefault(key, together.mesh))
        return together, torch.cat([like.new_full((size,), 1 / size / len(cases)) for size in sizes])


def at_once(model: nn.Module, batch_size: int) -> int:
    """How many cases of a batch a network takes together: one where each has its own time, and so its own steps."""
    return 1 if getattr(model, "takes_times", False) else batch_size


def check_cases(cases: Sequence[Case], what: str, like: Case) -> None:
    """Refuse cases that one training cannot hold."""
    for case in cases:
        if not case.targets:
            raise ValueError(f"The {what} case {case.name!r} has no targets; training needs the fields to come out.")
        if case.targets.keys() != like.targets.keys():
            raise ValueError(
                f"The {what} case {case.name!r} has targets {sorted(case.targets)}, others have {sorted(like.targets)}."
            )
