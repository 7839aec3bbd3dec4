"""Training steps and validation.

A step whose gradient is not finite changes nothing instead of raising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.machine import nothing_captured
from pennpde.metrics import rank_of, squared_error
from pennpde.train.cases import Batches, at_once
from pennpde.train.losses import Loss
from pennpde.train.optimizers import Adam, Soap
from pennpde.train.settings import Settings

USUAL_LAST_STEPS = 32
"""Steps of a march with gradient, where the settings say nothing."""


class Steps:
    """Trains a network step by step."""

    def __init__(self, model: nn.Module, batches: Batches, loss: Loss, settings: Settings, targets: Sequence[str]):
        self.model, self.batches, self.loss, self.clip = model, batches, loss, settings.clip
        self.targets = tuple(targets)
        self.together = at_once(model, settings.batch_size)
        self.last_steps = LastSteps.of(model, settings.last_steps)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise ValueError(f"{type(model).__name__} has no parameter that could be trained.")
        self.gradient = _one_gradient(parameters)
        self.optimizer = (
            Adam(parameters, settings.betas)
            if settings.optimizer == "adam"
            else Soap(parameters, self.gradient, settings.betas)
        )

    def run(self, first: int, chosen: Int[Tensor, "steps batch"], rates: Sequence[float]) -> list[float]:
        """Take some steps from number `first` on; returns their losses."""
        self.model.train()
        losses = []
        for step, (row, rate) in enumerate(zip(chosen, rates, strict=True), first):
            losses.append(self._gradients(row))
            self._update(rate)
            if self.optimizer.refresh_every and (step + 1) % self.optimizer.refresh_every == 0:
                self.optimizer.refresh()
        return torch.stack(losses).double().tolist()  # waits for the device once, at the end

    @torch.no_grad()
    def errors(self, numbers: Sequence[int]) -> dict[str, list[float]]:
        """The mean squared error of each target, case by case, in physical units as in the paper's tables."""
        self.model.eval()
        found = [self._errors_of(row) for row in torch.tensor(numbers).split(self.together)]
        self.model.train()
        return dict(zip(self.targets, torch.cat(found, dim=1).double().tolist(), strict=True))

    def weights(self) -> dict[str, Tensor]:
        """A copy of the network's weights and buffers."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.model.state_dict().items():
            tensor.copy_(weights[name])

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.optimizer.tensors().items():
            tensor.copy_(tensors[name])

    def _gradients(self, row: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        losses = [self._gradient(part) for part in row.split(self.together)]
        if len(losses) == 1:
            return losses[0]
        self.gradient.div_(len(losses))
        return torch.stack(losses).mean()

    def _gradient(self, row: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        case, weights = self.batches.draw(row)
        if self.last_steps is None:
            loss = self.loss(self.model, case, weights)
        else:
            # A steady state, and a case without a time, come when they come.
            times = case.parameters if getattr(self.model, "takes_times", False) else {}
            end = float(times.get("time", math.inf))
            loss = self.last_steps(tuple(row.tolist()), lambda: self.loss(self.model, case, weights), end)
        loss.backward()
        return loss.detach()

    def _update(self, rate: float) -> None:
        if self.clip is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
        # A sum is not finite where any of its terms is not: then the whole gradient is left out.
        finite = torch.isfinite(self.gradient.sum())
        self.gradient.copy_(torch.where(finite, self.gradient, 0.0))
        self.optimizer.step(rate)
        self.gradient.zero_()

    def _errors_of(self, row: Int[Tensor, " batch"]) -> Float[Tensor, "targets batch"]:
        case, weights = self.batches.draw(row)
        fields = self.model(case)
        pairs = ((name, fields[name], case.targets[name]) for name in self.targets)
        at_points = (squared_error(found, target, rank_of(name, case)) for name, found, target in pairs)
        return torch.stack([case.sum(weights * errors) for errors in at_points]) * len(case.sizes)


def _one_gradient(parameters: Sequence[nn.Parameter]) -> Float[Tensor, " numbers"]:
    """One vector whose parts are the parameters' gradients: it is clipped, exchanged and reset in one operation."""
    first = parameters[0]
    if other := next((each for each in parameters if (each.dtype, each.device) != (first.dtype, first.device)), None):
        raise ValueError(
            f"The network has parameters in {first.dtype} on {first.device} and in {other.dtype} on {other.device}; "
            "training takes one precision on one device."
        )
    whole = first.new_zeros(sum(each.numel() for each in parameters))
    for parameter, part in zip(parameters, whole.split([each.numel() for each in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    return whole


class LastSteps:
    """Gradients through the last steps of a network that marches in time.

    A march of hundreds of steps keeps too much for a gradient, and the first steps have little left to say about its
    end. So the march goes without gradient to near the end, and the gradient through the last steps: back-propagation
    through time, truncated. Where the time of the end is known, the lengths of the steps tell when it is near;
    otherwise the march is made once to count its steps.

    Each step calls `part` of the network once; these calls are counted. Of a network that takes times, the last
    argument is the length of the step.
    """

    def __init__(self, part: nn.Module, number: int):
        self.part, self.number = part, number
        self._calls: dict[Hashable, int] = {}

    @staticmethod
    def of(model: nn.Module, number: int | None) -> LastSteps | None:
        """For a network that names the part which its steps call, `called_each_step`; None for others."""
        name = getattr(model, "called_each_step", None)
        return (
            None
            if name is None
            else LastSteps(model.get_submodule(name), USUAL_LAST_STEPS if number is None else number)
        )

    def __call__(self, key: Hashable, work: Callable[[], Tensor], end: float = math.inf) -> Tensor:
        """The outcome of a march, with gradient.

        Args:
            key: Of the march: how many steps it takes is known from the last time, as it changes little in training.
            work: Marches and returns a number.
            end: The time to which it marches, infinity where that is not known. With it nothing has to be remembered:
                about as many steps as were asked for have a gradient, fewer while steps still grow.
        """
        if math.isfinite(end):
            outcome, self._calls[key] = self._watched(work, self._near(end))
        else:
            if key not in self._calls:
                _, self._calls[key] = self._watched(work, lambda *_: False)
            outcome, self._calls[key] = self._watched(work, self._after(self._calls[key]))
        if not outcome.requires_grad:  # it ended much earlier than before, or than it should
            outcome, self._calls[key] = self._watched(work, self._after(self._calls[key]))
        return outcome

    def _after(self, calls: int) -> Callable[[int, Sequence[Any]], bool]:
        return lambda call, _: call >= calls - self.number

    def _near(self, end: float) -> Callable[[int, Sequence[Any]], bool]:
        now = 0.0

        def is_near(_: int, arguments: Sequence[Any]) -> bool:
            nonlocal now
            step = float(arguments[-1])
            # A step that calls twice, or that is taken again, counts twice; then there are a few more with gradient.
            left, now = (end - now) / step, now + step
            return left < self.number + 0.5

        return is_near

    def _watched(self, work: Callable[[], Tensor], is_near: Callable[[int, Sequence[Any]], bool]) -> tuple[Tensor, int]:
        """The outcome with gradient from the first call on that is near the end, and how many calls there were."""
        calls = 0

        def count(_: nn.Module, arguments: Sequence[Any]) -> None:
            nonlocal calls
            if is_near(calls, arguments):
                torch.set_grad_enabled(True)
            calls += 1

        hook = self.part.register_forward_pre_hook(count)
        try:
            # Without gradient a march may be captured; then its steps could not be counted, and the last would have
            # none either. `no_grad` also restores what `count` has switched on.
            with nothing_captured(), torch.no_grad():
                return work(), calls
        finally:
            hook.remove()
