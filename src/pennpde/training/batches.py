"""Cases as batches, in an order that depends on the seed and the step alone.

`Stacked` keeps all cases on the device in one shape, so that drawing a batch is a gather and every step has the same
shapes. A network can work on it if it needs nothing of a case but its fields, conditions, parameters and operators, and
if points without neighbours do not disturb it. Whether that holds is tried out (`disagreement`). `Blocks` suits every
network: cases side by side, as `conditions.batch` makes them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.conditions import Case, batch
from pennpde.damped_laplacian import Damping
from pennpde.stack import CaseStack

_WASTE = {"cpu": 1.5, "cuda": 4.0}
"""Points with those that fill up over points without: a GPU gains more from one shape than it loses."""

_TOLERANCE = 2e-2
"""Of the relative difference between a case alone and in a stack; a solver amplifies float32's round-off to 1e-3."""


class Batches(Protocol):
    """Draws batches; the cases are known by their number."""

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        """The chosen cases as one, and the weight of each point in a mean over cases."""
        ...


class NoMesh:
    """Stands where a stacked batch has no mesh, so that a network which needs one fails instead of seeing zeros."""

    def __init__(self, number_of_points: int, space: int):
        self.number_of_points, self.space = number_of_points, space

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"it asks for mesh.{name}, which cases filled up to one shape do not have")


@dataclass(frozen=True, eq=False)
class Stacked:
    """Batches of one shape."""

    stack: CaseStack

    @classmethod
    def of(
        cls, cases: Sequence[Case], dtype: torch.dtype, device: torch.device, laplacian_damping: float | Damping = 0.0
    ) -> Stacked:
        return cls(CaseStack.of(cases, dtype, device, laplacian_damping))

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        case, weights = self.stack.batch(chosen)
        mesh: Any = NoMesh(case.number_of_points, case.space)
        return replace(case, mesh=mesh), weights


@dataclass(frozen=True, eq=False)
class Blocks:
    """Batches of cases as they are."""

    cases: tuple[Case, ...]

    @classmethod
    def of(cls, cases: Sequence[Case], dtype: torch.dtype, device: torch.device) -> Blocks:
        return cls(tuple(case.to(dtype, device) for case in cases))

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        cases = [self.cases[number] for number in chosen.tolist()]
        like = next(iter(cases[0].initial.values()))
        sizes = [case.number_of_points for case in cases]
        return batch(cases), torch.cat([like.new_full((size,), 1 / size / len(cases)) for size in sizes])


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
        return Stacked.of(cases, dtype, device, _damping(model))
    tell(f"cases go block by block: {reason}")
    return Blocks.of(cases, dtype, device)


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
            filled, weights = Stacked.of(probe, dtype, device, _damping(model)).draw(numbers)
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
    """What the network's equation wants added to Laplacians."""
    return getattr(getattr(model, "equation", None), "laplacian_damping", 0.0)


class Order:
    """Which cases a step sees: every case once an epoch, each epoch in an order of its own."""

    def __init__(self, cases: int, batch_size: int, seed: int):
        self.cases, self.batch_size, self.seed = cases, batch_size, seed
        self._epochs: dict[int, list[int]] = {}

    def batches(self, step: int, count: int) -> Int[Tensor, "count batch"]:
        """The batches of `count` steps from `step` on. One may hold the end of an epoch and the start of the next."""
        first, last = step * self.batch_size, (step + count) * self.batch_size
        chosen = [self._epoch(place // self.cases)[place % self.cases] for place in range(first, last)]
        return torch.tensor(chosen).reshape(count, self.batch_size)

    def _epoch(self, number: int) -> list[int]:
        if number not in self._epochs:
            self._epochs = {old: order for old, order in self._epochs.items() if old == number - 1}
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + number)
            self._epochs[number] = torch.randperm(self.cases, generator=generator).tolist()
        return self._epochs[number]


def standard_deviations(cases: Sequence[Case]) -> dict[str, float]:
    """Of every target, about its mean, over all components, times, points and cases."""
    found = {}
    for name in cases[0].targets:
        values = torch.cat([case.targets[name].double().flatten().cpu() for case in cases])
        deviation = float(values.std(correction=0))
        found[name] = deviation if deviation > 0 else 1.0
    return found


def check_cases(cases: Sequence[Case], what: str, like: Case) -> None:
    """Refuse cases that one training cannot hold."""
    for case in cases:
        if not case.targets:
            raise ValueError(f"The {what} case {case.name!r} has no targets; training needs the fields to come out.")
        if case.targets.keys() != like.targets.keys():
            raise ValueError(
                f"The {what} case {case.name!r} has targets {sorted(case.targets)}, others have {sorted(like.targets)}."
            )


Loss = Callable[[nn.Module, Case, Tensor], Tensor]
"""loss(model, case, weights): what to make small for a batch; `weights` make a sum over points a mean over cases."""


def scaled_squared_error(scales: Mapping[str, float]) -> Loss:
    """The mean over the targets of the mean squared error over the square of the target's scale.

    Every case counts with its own mean: one on a fine mesh does not count for more.
    """

    def loss(model: nn.Module, case: Case, weights: Tensor) -> Tensor:
        fields = model(case)
        terms = []
        for name, target in case.targets.items():
            if name not in fields:
                raise KeyError(f"The network gives {sorted(fields)}, but the target is {name!r}.")
            if fields[name].shape != target.shape:
                raise ValueError(
                    f"The network's {name!r} has shape {list(fields[name].shape)}, the target {list(target.shape)}."
                )
            squares = (fields[name] - target).square().reshape(len(target), -1).mean(dim=1)
            terms.append((weights * squares).sum() / scales[name] ** 2)
        return torch.stack(terms).mean()

    return loss
