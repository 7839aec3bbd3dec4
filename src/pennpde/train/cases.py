"""Which cases a step sees, with which targets, and by which targets a network is judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.case import Case, batch
from pennpde.case.moments import FOREVER, Moment, moments, number_of_moments, without_steady_state
from pennpde.data.vtkhdf import CaseFile
from pennpde.mesh import Mesh
from pennpde.penn.equation import Physics
from pennpde.penn.predictor import seen_by


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


# Targets

_SAME_MOMENT = 0.02
"""Relative difference of two times that count as the same."""


def learned(model: nn.Module, file: CaseFile, *, frames: bool = False) -> list[Case]:
    """The case with the targets that a network learns; one case for each moment where it takes any time.

    Args:
        model: A network that does not say at which times it predicts learns all of them.
        file: The case with its times.
        frames: Whether the targets are a run from its start on, of which such a network learns the end.
    """
    case = file.case
    if getattr(model, "takes_times", False):
        found = moments(case, file.times)
        # To march until nothing changes takes many steps, too many to learn from where there are moments.
        return [each.with_parameter for each in found if not each.is_steady or len(found) == 1]
    times = own_times(model)
    if (not times and not frames) or (len(times) > 1 and number_of_moments(case) == len(times)):
        return [without_steady_state(case)]
    found = moments_of(model, file)
    if not found or (number_of_moments(case) is None and len(found) == 1 and not found[0].is_steady):
        return [case]  # such as a gradient, or one moment: as it is
    return [_nearest(found, times).case]


def learned_time(model: nn.Module, file: CaseFile) -> float | None:
    """The time of the single target that a network learns, in the network's units; None where there is none."""
    found = moments_of(model, file)
    return _nearest(found, own_times(model)).time if found else None


def own_times(model: nn.Module) -> tuple[float, ...]:
    """At which a network predicts; none of one that takes any time, or knows none."""
    return tuple(getattr(model, "output_times", ()))


def moments_of(model: nn.Module, file: CaseFile) -> list[Moment]:
    """The case at each of its moments, with their times in the network's units."""
    found, equation = moments(file.case, file.times), getattr(model, "equation", None)
    units = equation.training_units(file.case) if found and isinstance(equation, Physics) else None
    unit = 1.0 if units is None else units.time
    return [each if each.time is None else replace(each, time=each.time / unit) for each in found]


def _nearest(found: Sequence[Moment], wanted: Sequence[float]) -> Moment:
    """The moment that a network predicts; where there is none, the last, and the steady state only if it is alone."""
    moving = [each for each in found if not each.is_steady]
    return matching(found, wanted) or (moving or found)[-1]


def matching(found: Sequence[Moment], wanted: Sequence[float]) -> Moment | None:
    last = wanted[-1] if wanted else None
    for each in found:
        if each.time is None or last is None:
            continue
        if each.time == last or abs(each.time - last) <= _SAME_MOMENT * last < FOREVER:
            return each
    return None


def seen_cases(model: nn.Module, cases: Sequence[Case]) -> list[Case]:
    """The cases as the network sees them, with operators as it wants them."""
    adapted = getattr(model, "adapted", lambda case: case)
    return [adapted(seen_by(model, case).case) for case in cases]
