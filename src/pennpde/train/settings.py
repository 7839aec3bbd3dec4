"""Every number of a training, checked when it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        optimizer: "adam" as in the paper, or "soap": Adam in the eigenbasis of the gradients' second moments, which
            needs fewer steps for the same error (docs/experiments.md).
        learning_rate: At the start.
        batch_size: Cases per step, over all processes together.
        epochs: Stop after this many passes over the training cases.
        steps: Stop after this many steps.
        minutes: Stop after this time in steps and validations; reading data, compiling and pauses do not count.
        processor_minutes: The same in time that processors work for this training: on a busy machine the clock runs,
            but the training does not.
        schedule: "restart", the paper's protocol: if the validation error has not improved in `patience` validations,
            training continues from the best weights with a fresh Adam and `rate_factor` times the learning rate, at
            most `restarts` times. "cosine": the learning rate falls to `final_rate` over the budget, which must be
            given. "constant": it does not change.
        test_every: Epochs between two validations.
        judges: Largest number of validation cases that decide which weights are the best, chosen evenly over the list;
            None: all. For networks that need seconds for a case.
        patience: Consecutive validations without improvement that end a stage of "restart", or the whole training under
            another schedule. None: 3 for "restart", unlimited otherwise.
        restarts: Largest number of restarts.
        rate_factor: Factor on the learning rate at each restart and each rollback.
        final_rate: Final learning rate of "cosine", as a share of the initial one.
        warm_up: Steps over which the rate rises at the start, and after a restart or rollback.
        betas: Of Adam; the second is the authors', not PyTorch's default.
        clip: Largest norm of the gradient; None: no clipping.
        last_steps: Of a network that marches in time, steps that the gradient goes through; None: 32. Others: not used.
        scales: By target, what its error is divided by in the loss; None: the standard deviation of the target over
            the training cases.
        divergence: A mean loss over `check_every` steps this many times the usual one counts as diverged.
        rollbacks: How often training may go back to the best weights with a lower rate before it gives up.
        check_every: Steps between two checks of the losses, which wait for the device.
        seed: Of the order of the cases and of random numbers in the network.
        deterministic: Ask PyTorch for algorithms that give the same bits each time; slower on a GPU.
        stacked: Pad cases to one shape (see `CaseStack`). None: if the network accepts it and not too much memory is
            wasted.
        captured: On a GPU, capture the step as a graph.
        compiled: On a GPU, compile the methods that the network names in `compiled_methods`.
    """

    optimizer: Literal["adam", "soap"] = "adam"
    learning_rate: float = 5e-4
    batch_size: int = 8
    epochs: float | None = None
    steps: int | None = None
    minutes: float | None = None
    processor_minutes: float | None = None
    schedule: Literal["restart", "cosine", "constant"] = "restart"
    test_every: float = 10
    judges: int | None = None
    patience: int | None = None
    restarts: int = 9
    rate_factor: float = 0.5
    final_rate: float = 0.01
    warm_up: int = 0
    betas: tuple[float, float] = (0.9, 0.99)
    clip: float | None = 1.0
    last_steps: int | None = None
    scales: Mapping[str, float] | None = None
    divergence: float = 100.0
    rollbacks: int = 10
    check_every: int = 50
    seed: int = 0
    deterministic: bool = False
    stacked: bool | None = None
    captured: bool = True
    compiled: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        if self.optimizer not in ("adam", "soap"):
            raise ValueError(f'optimizer is {self.optimizer!r}; it may be "adam" or "soap".')
        if self.schedule not in ("restart", "cosine", "constant"):
            raise ValueError(f'schedule is {self.schedule!r}; it may be "restart", "cosine" or "constant".')
        for name in ("learning_rate", "batch_size", "test_every", "check_every", "divergence", "clip"):
            _check_positive(name, getattr(self, name))
        for name in ("epochs", "minutes", "processor_minutes"):
            _check_positive(name, getattr(self, name))
        for name in ("batch_size", "steps", "check_every", "patience", "restarts", "rollbacks", "warm_up", "seed"):
            _check_count(name, getattr(self, name))
        for name in ("last_steps", "judges"):
            _check_count(name, getattr(self, name))
            _check_positive(name, getattr(self, name))
        if not 0 < self.rate_factor < 1:
            raise ValueError(f"rate_factor is {self.rate_factor}; a restart lowers the rate, so it lies in (0, 1).")
        if not 0 <= self.final_rate <= 1:
            raise ValueError(f"final_rate is {self.final_rate}; it is a share of the learning rate, in [0, 1].")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas is {self.betas}; Adam takes two numbers in [0, 1).")
        for name, scale in (self.scales or {}).items():
            _check_positive(f"scales[{name!r}]", scale)
        if self.schedule == "cosine" and all(getattr(self, name) is None for name in BUDGETS):
            raise ValueError('schedule "cosine" falls over the whole training: give epochs, steps or minutes.')

    def with_changes(self, changes: Mapping[str, Any]) -> Settings:
        """These settings with some changed; an unknown name is refused, with a list of the known ones."""
        known = sorted(each.name for each in fields(self))
        if unknown := sorted(changes.keys() - set(known)):
            raise ValueError(f"Training has no setting {', '.join(map(repr, unknown))}; it has {', '.join(known)}.")
        return replace(self, **changes)

    def number_of_steps(self, cases: int) -> float:
        """Steps that the budgets in epochs and steps allow; infinity where neither is given."""
        bounds = [math.inf if self.steps is None else self.steps]
        if self.epochs is not None:
            bounds.append(math.ceil(self.epochs * cases / self.batch_size))
        return min(bounds)


BUDGETS = ("epochs", "steps", "minutes", "processor_minutes")
MAY_CHANGE = frozenset({*BUDGETS, "patience", "restarts", "rollbacks", "captured", "compiled"})
"""Settings that a resumed training may change: budgets, and how the device does the work."""


def _check_positive(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a positive number.")


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{name} is {value!r}; it must be a whole number, zero or more.")
