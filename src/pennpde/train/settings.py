"""Every number of a training, checked when it is given, and the decisions of its protocol.

A `Course` is where a training stands: learning rate, early stop, restart from the best weights, rollback. It knows no
tensor and no clock, so that a continued training takes the very same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Verdict = Literal["improved", "no improvement", "restart", "stop"]
_USUAL = 10
"""How many windows of losses make the usual level."""


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        optimizer: "adam" as in the paper, or "soap": Adam in the eigenbasis of the gradients' second moments, which
            needs fewer steps for the same error (docs/experiments.md).
        learning_rate: At the start.
        batch_size: Cases per step.
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
        scales: By target, what its error is divided by in the loss; None: the standard deviation of the target over
            the training cases.
        divergence: A mean loss over `check_every` steps this many times the usual one counts as diverged.
        rollbacks: How often training may go back to the best weights with a lower rate before it gives up.
        check_every: Steps between two checks of the losses, which wait for the device.
        seed: Of the order of the cases and of random numbers in the network.
        deterministic: Ask PyTorch for algorithms that give the same bits each time; slower on a GPU.
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
    scales: Mapping[str, float] | None = None
    divergence: float = 100.0
    rollbacks: int = 10
    check_every: int = 50
    seed: int = 0
    deterministic: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, known in {"optimizer": ("adam", "soap"), "schedule": ("restart", "cosine", "constant")}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it may be one of {', '.join(known)}.")
        positive = ("learning_rate", "batch_size", "test_every", "check_every", "divergence", "clip")
        for name in (*positive, "epochs", "minutes", "processor_minutes", "judges"):
            _check_positive(name, getattr(self, name))
        counts = ("batch_size", "steps", "check_every", "patience", "restarts", "rollbacks", "warm_up", "seed")
        for name in (*counts, "judges"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ValueError(f"{name} is {value!r}; it must be a whole number, zero or more.")
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
MAY_CHANGE = frozenset({*BUDGETS, "patience", "restarts", "rollbacks"})
"""Settings that a resumed training may change."""


def _check_positive(name: str, value: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}; it must be a positive number.")


class TrainingDivergedError(RuntimeError):
    """The loss diverged too often: too many rollbacks to the best weights."""


@dataclass(frozen=True)
class Course:
    """State of the schedule."""

    rate_scale: float = 1.0
    restarts: int = 0
    rollbacks: int = 0
    tested_at: int = -1
    """The step of the last test."""
    tests_without_improvement: int = 0
    origin: int = 0
    """The step of the last start, restart or rollback, from which the rate warms up."""
    best: float | None = None
    best_step: int = 0
    best_errors: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[float | None, ...] = ()
    """The losses of the last `check_every` steps; None for one that was not finite."""
    levels: tuple[float, ...] = ()
    """Means of the last windows of losses."""

    def rate(self, settings: Settings, step: int, fraction: float) -> float:
        """The learning rate of a step, given the fraction of the budget that is used up."""
        rate = settings.learning_rate * self.rate_scale
        if settings.schedule == "cosine":
            fall = 0.5 * (1 + math.cos(math.pi * min(1.0, fraction)))
            rate *= settings.final_rate + (1 - settings.final_rate) * fall
        if settings.warm_up:
            rate *= min(1.0, (step - self.origin + 1) / settings.warm_up)
        return rate

    def after_steps(self, settings: Settings, losses: Sequence[float]) -> Course:
        """Take note of the losses of some steps."""
        seen = self.recent + tuple(loss if math.isfinite(loss) else None for loss in losses)
        noted = replace(self, recent=seen[-settings.check_every :])
        levels = self.levels if math.isnan(noted.loss) else (*self.levels, noted.loss)
        return replace(noted, levels=levels[-_USUAL:])

    @property
    def loss(self) -> float:
        """The mean loss of the last steps."""
        finite = [loss for loss in self.recent if loss is not None]
        return sum(finite) / len(finite) if finite else math.nan

    def trouble(self, settings: Settings) -> str | None:
        """What is wrong with the last steps, None where nothing is.

        A single step that is not finite changes no weight (see `steps`) and is no reason to go back.
        """
        lost = self.recent.count(None)
        if lost >= max(2, len(self.recent) // 10):
            return f"{lost} of the last {len(self.recent)} losses are not finite"
        if len(self.levels) > 2:
            earlier = sorted(self.levels[:-1])
            usual = earlier[len(earlier) // 2]
            if self.levels[-1] > settings.divergence * usual:
                return f"the loss rose to {self.levels[-1]:.3g} from {usual:.3g}"
        return None

    def after_trouble(self, settings: Settings, step: int, trouble: str) -> Course:
        """Back to the best weights with a lower rate."""
        if self.rollbacks >= settings.rollbacks:
            raise TrainingDivergedError(
                f"Training diverged at step {step} ({trouble}) and has gone back to its best weights "
                f"{self.rollbacks} times already. Start with a learning rate below {settings.learning_rate:g} "
                "or clip gradients harder."
            )
        return self._started_anew(settings, step, rollbacks=self.rollbacks + 1)

    def after_test(
        self, settings: Settings, step: int, value: float, errors: Mapping[str, float]
    ) -> tuple[Course, Verdict]:
        """Judge a validation error."""
        tested = replace(self, tested_at=step)
        if math.isfinite(value) and (self.best is None or value < self.best):
            better = replace(tested, best=value, best_step=step, best_errors=dict(errors), tests_without_improvement=0)
            return better, "improved"
        waited = replace(tested, tests_without_improvement=self.tests_without_improvement + 1)
        patience = settings.patience
        if patience is None:
            patience = 3 if settings.schedule == "restart" else math.inf
        if waited.tests_without_improvement < patience:
            return waited, "no improvement"
        if settings.schedule == "restart" and self.restarts < settings.restarts:
            return waited._started_anew(settings, step, restarts=self.restarts + 1), "restart"
        return waited, "stop"

    def _started_anew(self, settings: Settings, step: int, **counts: int) -> Course:
        return replace(
            self,
            rate_scale=self.rate_scale * settings.rate_factor,
            tests_without_improvement=0,
            origin=step,
            recent=(),
            levels=(),
            **counts,
        )

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Course:
        return cls(**{**plain, "recent": tuple(plain["recent"]), "levels": tuple(plain["levels"])})
