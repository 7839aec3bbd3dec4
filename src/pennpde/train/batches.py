"""Cases as batches.

`Stacked` keeps all cases on the device in one shape, so that drawing a batch is a gather and every step has the same
shapes. A network can work on it if it needs nothing of a case but its fields, conditions, parameters and operators, and
if points without neighbours do not disturb it. Whether that holds is tried out (`disagreement`). `Blocks` suits every
network: cases side by side, as `case.batch` makes them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.case import Case, batch
from pennpde.mesh import Mesh
from pennpde.operators.damping import Damping
from pennpde.train.stack import CaseStack

_WASTE = {"cpu": 1.5, "cuda": 4.0}
"""Points with those that fill up over points without: a GPU gains more from one shape than it loses."""

_TOLERANCE = 2e-2
"""Largest relative difference between a case by itself and in a stack; a solver amplifies round-off to 1e-3."""


class Batches(Protocol):
    """Draws batches; the cases are known by their number."""

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        """The chosen cases as one, and the weight of each point in a mean over cases."""
        ...


@dataclass(frozen=True, eq=False)
class Stacked:
    """Batches of one shape."""

    stack: CaseStack

    @classmethod
    def of(
        cls,
        cases: Sequence[Case],
        dtype: torch.dtype,
        device: torch.device,
        laplacian_damping: float | Damping = 0.0,
        times: Sequence[float] = (),
    ) -> Stacked:
        return cls(CaseStack.of(cases, dtype, device, laplacian_damping, times))

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        return self.stack.batch(chosen)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Batches of cases as they are."""

    cases: tuple[Case, ...]
    _meshes: dict[tuple[int, ...], Mesh] = field(default_factory=dict, init=False, repr=False)
    """What batches of cases on one mesh have as their mesh, by number of cases: networks keep operators with it."""

    @classmethod
    def of(cls, cases: Sequence[Case], dtype: torch.dtype | None, device: torch.device) -> Blocks:
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


def prepared(
    model: nn.Module,
    cases: Sequence[Case],
    dtype: torch.dtype,
    device: torch.device,
    wanted: bool | None,
    tell: Callable[[str], None],
) -> Stacked | Blocks:
    """The cases stacked where that is wanted, or not forbidden and good; else block by block."""
    reason = None
    sizes = [case.number_of_points for case in cases]
    if wanted is False:
        reason = "stacked is off"
    elif wanted is None and max(sizes) * len(sizes) > _WASTE.get(device.type, 1.5) * sum(sizes):
        reason = f"meshes of {min(sizes)} to {max(sizes)} points would waste too much in one shape"
    else:
        reason = disagreement(model, cases)
        if reason and wanted:
            raise ValueError(f"stacked=True, but the network does not take cases filled up to one shape: {reason}.")
    if reason is None:
        return Stacked.of(cases, dtype, device, _damping(model), _times(model))
    tell(f"cases go block by block: {reason}")
    # In another precision every case would be a copy, with operators that the network may not even need.
    return Blocks.of(cases, None if getattr(model, "takes_any_precision", False) else dtype, device)


def disagreement(model: nn.Module, cases: Sequence[Case]) -> str | None:
    """Why a network gives something else for filled-up cases than for cases by themselves; None if it does not.

    Tried on the CPU, whatever the network is to be trained on: it is a matter of its structure.
    """
    ordered = sorted(cases, key=lambda case: case.number_of_points)
    probe = [ordered[-1], ordered[0]]  # the small one last, filled up to the large one
    numbers, device = torch.arange(len(probe)), torch.device("cpu")
    copied = copy.deepcopy(model).to(device).eval()
    dtype = next(copied.parameters()).dtype
    try:
        with torch.no_grad():
            together, _ = Blocks.of(probe, dtype, device).draw(numbers)
            alone = copied(together)
            filled, weights = Stacked.of(probe, dtype, device, _damping(model), _times(model)).draw(numbers)
            stacked = copied(filled)
    except Exception as error:  # whatever a user's network raises, block by block may still work
        return f"{type(error).__name__}: {error}".rstrip(".")
    real = weights > 0
    for name in alone:
        values, found = alone[name].detach(), stacked[name].detach()[real]
        if found.shape != values.shape:
            return f"{name!r} has shape {list(found.shape)} instead of {list(values.shape)}"
        both = torch.isfinite(found) & torch.isfinite(values)
        size = values[both].square().sum().sqrt()
        difference = float((found[both] - values[both]).square().sum().sqrt() / size.clamp_min(1e-30))
        if size > 0 and difference > _TOLERANCE:
            return f"{name!r} differs by {difference:.1e} when cases are filled up"
    return None


def _damping(model: nn.Module) -> float | Damping:
    """What the network wants added to Laplacians; a network of yours that says nothing takes them as they are."""
    return getattr(model, "laplacian_damping", 0.0)


def _times(model: nn.Module) -> Sequence[float]:
    """When a network asks for conditions that change with time; a user's may not say."""
    return getattr(model, "output_times", ())


def check_cases(cases: Sequence[Case], what: str, like: Case) -> None:
    """Refuse cases that one training cannot hold."""
    for case in cases:
        if not case.targets:
            raise ValueError(f"The {what} case {case.name!r} has no targets; training needs the fields to come out.")
        if case.targets.keys() != like.targets.keys():
            raise ValueError(
                f"The {what} case {case.name!r} has targets {sorted(case.targets)}, others have {sorted(like.targets)}."
            )
