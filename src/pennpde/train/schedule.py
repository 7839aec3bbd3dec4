"""The protocol of a training as pure decisions: learning rate, early stop, restart from the best, rollback.

A `Course` is where a training stands. It knows no tensor and no clock, so that a continued training takes the very
same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pennpde.train.settings import Settings

Verdict = Literal["improved", "no improvement", "restart", "stop"]

_USUAL = 10
"""How many windows of losses make the usual level."""


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
        recent = seen[-settings.check_every :]
        finite = [loss for loss in recent if loss is not None]
        levels = self.levels + ((sum(finite) / len(finite),) if finite else ())
        return replace(self, recent=recent, levels=levels[-_USUAL:])

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
