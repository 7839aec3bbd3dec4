"""Training steps and validation; on a GPU each is captured as a CUDA graph.

Nothing in a step waits for the device: batches are drawn by an index tensor, learning rates and losses lie in tensors,
and a step whose gradient is not finite changes nothing instead of raising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.metrics import rank_of, squared_error
from pennpde.operators.machine import Graph, can_capture, capture, nothing_captured
from pennpde.train.batches import Blocks, CaseStack, at_once
from pennpde.train.losses import Loss
from pennpde.train.machine import Processes
from pennpde.train.optimizers import Adam, Optimizer, Soap
from pennpde.train.settings import Settings

USUAL_LAST_STEPS = 32
"""Steps of a march with gradient, where the settings say nothing."""


@dataclass(frozen=True, eq=False)
class _Static:
    """What a captured step reads and writes: the graph holds these very tensors."""

    chosen: Int[Tensor, "steps batch"]
    rates: Float[Tensor, " steps"]
    losses: Float[Tensor, " steps"]
    place: Int[Tensor, " one"]
    tested: Int[Tensor, " batch"]
    errors: Float[Tensor, "targets batch"]


class Steps:
    """Trains a network step by step."""

    def __init__(
        self,
        model: nn.Module,
        batches: CaseStack | Blocks,
        loss: Loss,
        settings: Settings,
        processes: Processes,
        targets: Sequence[str],
        tell: Callable[[str], None],
    ):
        self.model, self.batches, self.loss, self.settings, self.processes = model, batches, loss, settings, processes
        self.targets = tuple(targets)
        self.share = processes.share(settings.batch_size)
        self.together = at_once(model, self.share.stop - self.share.start)
        self.last_steps = LastSteps.of(model, settings.last_steps)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not self.parameters:
            raise ValueError(f"{type(model).__name__} has no parameter that could be trained.")
        device, on_gpu = processes.device, can_capture(processes.device)
        self.gradient = _one_gradient(self.parameters)
        self.optimizer: Optimizer = (
            Adam(self.parameters, settings.betas)
            if settings.optimizer == "adam"
            else Soap(self.parameters, self.gradient, settings.betas)
        )

        self._step_graphs: tuple[Graph, Graph] | None = None
        self._test_graph: Graph | None = None
        self._compiles = on_gpu and settings.compiled and bool(getattr(model, "compiled_methods", ()))
        if on_gpu:
            self._capture_all(tell)
        how = "captured" if self._step_graphs else "eager"
        self.description = f"{how}{', compiled' if self._compiles else ''} on {device}, " + (
            f"batches of one shape, {batches.points_per_case} points per case"
            if isinstance(batches, CaseStack)
            else "batches block by block"
        )

    def run(self, first: int, chosen: Int[Tensor, "steps batch"], rates: Sequence[float]) -> list[float]:
        """Take some steps from number `first` on; waits for them at the end, and returns their losses."""
        chosen = chosen[:, self.share]
        self.model.train()
        if self._step_graphs:
            static = self._static
            static.chosen[: len(rates)].copy_(chosen)
            static.rates[: len(rates)].copy_(torch.tensor(rates))
            static.place.zero_()
            forward_and_backward, update = self._step_graphs
            for step in range(first, first + len(rates)):
                forward_and_backward.replay()
                self._average_gradients()
                update.replay()
                self._refresh(step)
            losses = static.losses[: len(rates)]
        else:
            seen = []
            with self._compiled_methods():
                for step, (row, rate) in enumerate(zip(self._placed(chosen), rates, strict=True), first):
                    seen.append(self._gradients(row))
                    self._average_gradients()
                    self._update(rate)
                    self._refresh(step)
            losses = torch.stack(seen)
        return self.processes.mean(losses.double()).tolist()

    def errors(self, numbers: Sequence[int]) -> dict[str, list[float]]:
        """The mean squared error of each target, case by case, in physical units as in the paper's tables."""
        size = self.together  # graphs and compiled code want one size
        found = torch.zeros(len(self.targets), len(numbers), dtype=torch.float64, device=self.processes.device)
        places = list(range(len(numbers)))[self.processes.rank :: self.processes.count]
        self.model.eval()
        for start in range(0, len(places), size):
            some = places[start : start + size]
            row = [numbers[place] for place in (some + some[-1:] * size)[:size]]
            found[:, some] = self._test(torch.tensor(row))[:, : len(some)].double()
        self.model.train()
        return dict(zip(self.targets, (self.processes.mean(found) * self.processes.count).tolist(), strict=True))

    def weights(self) -> dict[str, Tensor]:
        """A copy of the network's weights and buffers."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.model.state_dict().items():
            tensor.copy_(weights[name])  # in place: a graph holds these very tensors

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

    def _average_gradients(self) -> None:
        if self.processes.count > 1:
            self.gradient.copy_(self.processes.mean(self.gradient))

    def _update(self, rate: float | Tensor) -> None:
        if self.settings.clip is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((self.settings.clip / (norm + 1e-6)).clamp(max=1.0))
        # A sum is not finite where any of its terms is not: then the whole gradient is left out.
        finite = torch.isfinite(self.gradient.sum())
        self.gradient.copy_(torch.where(finite, self.gradient, 0.0))
        self.optimizer.step(rate)
        self.gradient.zero_()

    def _refresh(self, step: int) -> None:
        if self.optimizer.refresh_every and (step + 1) % self.optimizer.refresh_every == 0:
            self.optimizer.refresh()

    def _test(self, row: Int[Tensor, " batch"]) -> Float[Tensor, "targets batch"]:
        if self._test_graph is None:
            return self._errors_of(self._placed(row))
        self._static.tested.copy_(row)
        self._test_graph.replay()
        return self._static.errors

    def _placed(self, chosen: Tensor) -> Tensor:
        """Case numbers where the batches look for them: those of blocks are wanted by the host."""
        return chosen if isinstance(self.batches, Blocks) else chosen.to(self.processes.device)

    @torch.no_grad()
    def _errors_of(self, row: Int[Tensor, " batch"]) -> Float[Tensor, "targets batch"]:
        case, weights = self.batches.draw(row)
        fields = self.model(case)
        pairs = ((name, fields[name], case.targets[name]) for name in self.targets)
        at_points = (squared_error(found, target, rank_of(name, case)) for name, found, target in pairs)
        return torch.stack([case.sum(weights * errors) for errors in at_points]) * len(case.sizes)

    def _capture_all(self, tell: Callable[[str], None]) -> None:
        if not self.settings.captured:
            return
        if not isinstance(self.batches, CaseStack):
            tell("steps are not captured: batches have no common shape")
            return
        before = self.weights()
        for compiles in (True, False) if self._compiles else (False,):
            self._compiles = compiles
            try:
                self._step_graphs = self._captured_steps()
                self._test_graph = self._captured_test()
                break
            except Exception as error:  # a network of a user may do anything; eager steps still work
                self._step_graphs = self._test_graph = None
                reason = (str(error).splitlines() or [""])[0]
                what = "compiled steps" if compiles else "steps"
                tell(f"{what} could not be captured: {type(error).__name__}: {reason}")
            finally:
                self.load_weights(before)
                self.optimizer.reset()
                self.gradient.zero_()

    @cached_property
    def _static(self) -> _Static:
        steps, batch = self.settings.check_every, self.share.stop - self.share.start
        device = self.processes.device

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return _Static(
            chosen=whole(steps, batch),
            rates=torch.zeros(steps, device=device),
            losses=torch.zeros(steps, device=device),
            place=whole(1),
            tested=whole(batch),
            errors=torch.zeros(len(self.targets), batch, device=device),
        )

    def _captured_steps(self) -> tuple[Graph, Graph]:
        static = self._static
        static.rates.zero_()  # the steps before the capture must not train

        def forward_and_backward() -> None:
            row = static.chosen.index_select(0, static.place)[0]
            static.losses.index_copy_(0, static.place, self._gradients(row).reshape(1).to(static.losses.dtype))

        def update() -> None:
            self._update(static.rates.index_select(0, static.place)[0])
            static.place.add_(1)

        self.model.train()
        with self._compiled_methods():
            # Gradients are exchanged between the two graphs: a collective inside one would tie it to its communicator.
            return capture(forward_and_backward, static.place.zero_), capture(update, static.place.zero_)

    def _captured_test(self) -> Graph:
        static = self._static
        self.model.eval()
        # Without compiled methods: they would be compiled once more for inference, which takes longer than it saves.
        return capture(lambda: static.errors.copy_(self._errors_of(static.tested)), lambda: None)

    @contextmanager
    def _compiled_methods(self) -> Iterator[None]:
        """The network with its methods compiled, as long as this lasts: elsewhere it stays as its author wrote it."""
        if not self._compiles:
            yield
            return
        for owner, method, compiled in self._compiled:
            setattr(owner, method, compiled)
        try:
            yield
        finally:
            for owner, method, _ in self._compiled:
                delattr(owner, method)

    @cached_property
    def _compiled(self) -> list[tuple[nn.Module, str, Callable]]:
        parts = []
        for path in getattr(self.model, "compiled_methods", ()):
            owner, _, method = path.rpartition(".")
            module = self.model.get_submodule(owner)
            parts.append((module, method, torch.compile(getattr(module, method), dynamic=False, fullgraph=True)))
        return parts


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
