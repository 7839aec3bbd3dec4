"""Training steps and validation; on a GPU each is captured as a CUDA graph.

Nothing in a step waits for the device: batches are drawn by an index tensor, learning rates and losses lie in tensors,
and a step whose gradient is not finite changes nothing instead of raising.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde.metrics import rank_of, squared_error
from pennpde.operators.machine import Graph, can_capture, capture
from pennpde.train.batches import Blocks, Stacked, at_once
from pennpde.train.last_steps import LastSteps
from pennpde.train.losses import Loss
from pennpde.train.optimizers import Adam, Optimizer, Soap
from pennpde.train.processes import Processes
from pennpde.train.settings import Settings


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
        batches: Stacked | Blocks,
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
        device = processes.device
        on_gpu = can_capture(device)
        self.gradient = _one_gradient(self.parameters)
        self.optimizer: Optimizer = (
            Adam(self.parameters, settings.betas)
            if settings.optimizer == "adam"
            else Soap(self.parameters, self.gradient, settings.betas)
        )

        self._step_graphs: tuple[Graph, ...] = ()
        self._test_graph: Graph | None = None
        self._compiles = on_gpu and settings.compiled and bool(getattr(model, "compiled_methods", ()))
        if on_gpu:
            self._capture_all(tell)
        how = "captured" if self._step_graphs else "eager"
        self.description = f"{how}{', compiled' if self._compiles else ''} on {device}, " + (
            f"batches of one shape, {batches.stack.points_per_case} points per case"
            if isinstance(batches, Stacked)
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
            for step in range(first, first + len(rates)):
                self._replay()
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
        size = self.together
        found = torch.zeros(len(self.targets), len(numbers), dtype=torch.float64, device=self.processes.device)
        places = list(range(len(numbers)))[self.processes.rank :: self.processes.count]
        self.model.eval()
        for start in range(0, len(places), size):
            some = places[start : start + size]
            row = [numbers[place] for place in some]
            row += row[-1:] * (size - len(row))  # graphs and compiled code want one size
            errors = self._test(torch.tensor(row))
            found[:, some] = errors[:, : len(some)].double()
        self.model.train()
        return dict(zip(self.targets, self.processes.total(found).tolist(), strict=True))

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
        errors = []
        for name in self.targets:
            at_points = squared_error(fields[name], case.targets[name], rank_of(name, case))
            errors.append(case.sum(weights * at_points) * len(case.sizes))
        return torch.stack(errors)

    def _capture_all(self, tell: Callable[[str], None]) -> None:
        if not self.settings.captured:
            return
        if not isinstance(self.batches, Stacked):
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
                self._step_graphs, self._test_graph = (), None
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

    def _captured_steps(self) -> tuple[Graph, ...]:
        static = self._static
        static.rates.zero_()  # the steps before the capture must not train

        def forward_and_backward() -> None:
            row = static.chosen.index_select(0, static.place)[0]
            static.losses.index_copy_(0, static.place, self._gradients(row).reshape(1).to(static.losses.dtype))

        def update() -> None:
            self._update(static.rates.index_select(0, static.place)[0])
            static.place.add_(1)

        def both() -> None:
            forward_and_backward()
            update()

        def begin() -> None:
            static.place.zero_()

        self.model.train()
        with self._compiled_methods():
            if self.processes.count == 1:
                return (capture(both, begin),)
            # Gradients are exchanged between the two graphs: a collective inside one would tie it to its communicator.
            first = capture(forward_and_backward, begin)
            return first, capture(update, begin)

    def _captured_test(self) -> Graph:
        static = self._static
        self.model.eval()
        # Without compiled methods: they would be compiled once more for inference, which takes longer than it saves.
        return capture(lambda: static.errors.copy_(self._errors_of(static.tested)), lambda: None)

    def _replay(self) -> None:
        self._step_graphs[0].replay()
        if len(self._step_graphs) > 1:
            self._average_gradients()
            self._step_graphs[1].replay()

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
