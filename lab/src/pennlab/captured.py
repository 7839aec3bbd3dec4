"""Training steps that a GPU captures as graphs: small networks need thousands of kernels a step, each told by the host.

A captured step never looks at the device: batches are drawn by an index tensor, rates and losses lie in tensors. Where
the network takes cases filled up to one shape (`CaseStack`), there is one graph for all batches; where it asks for the
meshes, as the authors' networks do, one for each batch, captured when the batch comes for the second time. What cannot
be captured is taken step by step, and the log says so.

    pennpde.train.run(experiment, data, out, stepper=CapturedSteps)
"""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennlab.stacks import CaseStack
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.train.cases import Batches
from pennpde.train.settings import Settings
from pennpde.train.steps import Adam, Loss, Steps

log = logging.getLogger("pennpde.train")

_MOST_GRAPHS = 400
_TOLERANCE = 2e-2
"""Largest relative difference between a case by itself and in a stack; a solver amplifies round-off to 1e-3."""


class Turns(Protocol):
    """Who talks to the GPU, where several trainings share it; see `side_by_side`."""

    def take(self) -> None: ...

    def give_way(self) -> None: ...


TURNS: ContextVar[Turns | None] = ContextVar("turns", default=None)


class CapturedSteps(Steps):
    """Trains a network step by step, on a GPU by replaying what was captured once."""

    @classmethod
    def of(cls, model: nn.Module, cases: Sequence[Case], device: torch.device, loss: Loss, settings: Settings) -> Self:
        batches, reason = stacked(model, cases, device)
        if reason:
            log.info(f"cases are taken as they are: {reason}")
        targets = tuple(cases[0].targets)
        return cls(model, batches or Batches.of(model, cases, device), loss, settings, targets)

    def __init__(self, model: nn.Module, batches: Any, loss: Loss, settings: Settings, targets: Sequence[str]):
        if (turns := TURNS.get()) is not None:
            turns.take()
        super().__init__(model, batches, loss, settings, targets)
        if settings.optimizer == "adam":
            self.optimizer = _Adam(self.optimizer.parameters, settings.betas)
        device = self.gradient.device
        self.is_stack = not isinstance(batches, Batches)
        self.captured = {"step", "update", "test"} if device.type == "cuda" else set()
        """What is captured when it comes for the second time."""
        self._chosen = torch.zeros(settings.batch_size, dtype=torch.int64, device=device)
        self._rate, self._loss = torch.zeros((), device=device), torch.zeros((), device=device)
        self._found = torch.zeros(len(targets), settings.batch_size, device=device)
        self._graphs: dict[tuple[Any, ...], Any] = {}
        """By what it does, a graph; None: done once, and not captured yet."""
        self._pool: Any = None

    def run(self, first: int, chosen: Int[Tensor, "steps batch"], rates: Sequence[float]) -> list[float]:
        self.model.train()
        device = self.gradient.device
        losses, of_rates = torch.zeros(len(rates), device=device), torch.tensor(rates, device=device)
        on_device = chosen.to(device)
        for place in range(len(rates)):
            self._chosen.copy_(on_device[place])
            self._rate.copy_(of_rates[place])
            row = None if self.is_stack else chosen[place]
            self._do(("step", row), lambda row=row: self._learn(row))
            losses[place].copy_(self._loss)
            self._do(("update", None), lambda: self._update(self._rate))  # pyright: ignore[reportArgumentType]
            every = self.optimizer.refresh_every
            if every and (first + place + 1) % every == 0:
                self.optimizer.refresh()
        _give_way()
        return losses.double().tolist()

    @torch.no_grad()
    def errors(self, numbers: Sequence[int]) -> dict[str, list[float]]:
        self.model.eval()
        size, found = len(self._chosen), []
        for row in torch.tensor(numbers).split(size):
            if self.is_stack:  # a graph wants one size
                self._chosen.copy_(torch.cat([row, row[-1:].expand(size - len(row))]))
                self._do(("test", None), lambda: self._found.copy_(self._errors_of(self._chosen)))
                found.append(self._found[:, : len(row)].clone())
            else:
                found.append(self._errors_of(row))
            _give_way()
        self.model.train()
        return dict(zip(self.targets, torch.cat(found, dim=1).double().tolist(), strict=True))

    def _learn(self, row: Tensor | None) -> None:
        self._loss.copy_(self._gradients(self._chosen if row is None else row))

    def _do(self, what: tuple[str, Tensor | None], work: Callable[[], object]) -> None:
        """Replay it; or do it now, and capture it when it comes again."""
        key = (what[0], None if what[1] is None else tuple(what[1].tolist()))
        if what[0] in self.captured and key in self._graphs and self._graphs[key] is None:
            self._graphs[key] = self._captured(key, work)
        graph = self._graphs.get(key)
        if graph is not None:
            graph.replay()
            return
        work()
        if what[0] in self.captured and len(self._graphs) < _MOST_GRAPHS:
            self._graphs[key] = None
        _give_way()

    def _captured(self, key: tuple[Any, ...], work: Callable[[], object]) -> Any:
        """A graph of some work that was done before; None where it cannot be had, and then never again."""
        graph, began = torch.cuda.CUDAGraph(), time.monotonic()
        stream = torch.cuda.current_stream()
        own = None if stream == torch.cuda.default_stream() else stream
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=own, capture_error_mode="thread_local"):
                work()
        except Exception as error:  # a network may do anything; plain steps still work
            torch.cuda.synchronize()
            self.gradient.zero_()
            self.captured.discard(key[0])
            reason = (str(error).splitlines() or [""])[0]
            log.warning(f"a {key[0]} could not be captured, others are plain: {type(error).__name__}: {reason}")
            return None
        self._pool = graph.pool()
        if len(self._graphs) <= 3 or len(self._graphs) % 50 == 0:
            log.info(f"captured a {key[0]} in {time.monotonic() - began:.2f} s")
        return graph


def _give_way() -> None:
    if (turns := TURNS.get()) is not None:
        turns.give_way()


class _Adam(Adam):
    """With its rate in a tensor on a GPU, from which a graph reads it."""

    def __init__(self, parameters: Sequence[nn.Parameter], betas: tuple[float, float]):
        on_gpu = parameters[0].device.type == "cuda"
        rate: Any = torch.zeros((), device=parameters[0].device) if on_gpu else 0.0
        self.parameters = parameters
        self.optimizer = torch.optim.Adam(parameters, lr=rate, betas=betas, fused=True, capturable=on_gpu)
        self.optimizer.step()
        self.reset()

    def step(self, rate: float | Tensor) -> None:
        own = self.optimizer.param_groups[0]["lr"]
        if isinstance(own, Tensor):
            own.copy_(torch.as_tensor(rate))
            self.optimizer.step()
        else:
            super().step(float(rate))


@dataclass(frozen=True, eq=False)
class _OnOneMesh:
    """A stack of cases that share a mesh, for networks that ask for it."""

    stack: CaseStack
    mesh: Mesh
    _meshes: dict[int, Mesh] = field(default_factory=dict)

    def draw(self, chosen: Int[Tensor, " batch"]) -> tuple[Case, Float[Tensor, " points"]]:
        number = len(chosen)
        if number not in self._meshes:
            self._meshes[number] = self.mesh if number == 1 else Mesh.concatenate([self.mesh] * number)
        case, weights = self.stack.draw(chosen)
        return replace(case, mesh=self._meshes[number], present=None), weights


def stacked(
    model: nn.Module, cases: Sequence[Case], device: torch.device
) -> tuple[CaseStack | _OnOneMesh | None, str | None]:
    """The cases in one shape, if the network gives the same for them as one by one; else why not."""
    ordered = sorted(cases, key=lambda case: case.number_of_points)
    probe = [ordered[-1], ordered[0]]  # the small one last, filled up to the large one
    mesh = cases[0].mesh
    shared = all(case.mesh is mesh or _same(case.mesh, mesh) for case in cases)
    tried = copy.deepcopy(model).cpu().eval()
    dtype = next(model.parameters()).dtype
    asked_for = (getattr(model, "laplacian_damping", 0.0), getattr(model, "output_times", ()))

    def stack(some: Sequence[Case], where: torch.device) -> CaseStack | _OnOneMesh:
        made = CaseStack.of(some, dtype, where, *asked_for)
        return _OnOneMesh(made, mesh) if shared else made

    try:
        with torch.no_grad():
            filled, weights = stack(probe, torch.device("cpu")).draw(torch.arange(2))
            together = tried(filled)
            alone = [tried(case.to(dtype, "cpu")) for case in probe]
    except Exception as error:  # whatever a network asks for, one by one may still work
        return None, f"{type(error).__name__}: {error}"
    for name, values in together.items():
        wanted = torch.cat([each[name] for each in alone])
        difference = float((values[weights > 0] - wanted).norm() / wanted.norm().clamp_min(1e-30))
        if not difference <= _TOLERANCE:
            return None, f"{name!r} differs by {difference:.1e} when cases are filled up"
    return stack(cases, device), None


def _same(mesh: Mesh, other: Mesh) -> bool:
    return torch.equal(mesh.points, other.points) and (mesh.edges == other.edges).all()
