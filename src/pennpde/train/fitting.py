"""`fit`: the loop of a training."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pennpde import __version__
from pennpde.case import Case
from pennpde.metrics import COMPONENTS, rank_of
from pennpde.penn.predictor import seen_by
from pennpde.train import state as states
from pennpde.train.batches import Stacked, at_once, check_cases, disagreement, prepared
from pennpde.train.evaluation import with_threads
from pennpde.train.log import Journal, Shown, duration, log
from pennpde.train.losses import Loss, RelativeError, scaled_squared_error, standard_deviations
from pennpde.train.order import Order, evenly
from pennpde.train.processes import Processes
from pennpde.train.schedule import Course
from pennpde.train.settings import MAY_CHANGE, Settings
from pennpde.train.steps import Steps
from pennpde.train.threads import threads_for, threads_of_before

_SAVE_EVERY = 60.0
"""Seconds between two states on disk, tests aside."""
_LONGEST_STRETCH = 2.0
"""Seconds of steps, about, between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A trained network and how it was trained."""

    model: nn.Module
    """The network that was given, with the best weights."""
    ended: Literal["budget", "early stop", "paused"]
    best: float | None
    """The lowest validation error, in units of the loss; without validation cases the lowest mean training loss. With
    the loss `RelativeError` it is the geometric mean of the relative errors."""
    best_step: int
    best_errors: Mapping[str, float]
    """The mean squared error of each target on the validation cases then, in the network's units."""
    steps: int
    epochs: float
    seconds: float
    """In steps and tests, over all pauses."""
    processor_seconds: float
    """What processors worked for these, of this process."""
    milliseconds_per_step: float
    restarts: int
    rollbacks: int
    history: tuple[Mapping[str, Any], ...]
    """One row per validation or event of this call, as in the CSV file."""
    description: str
    """How steps were taken: eager or captured, on which device, in which shapes."""
    scales: Mapping[str, float]
    dataset: str
    """A hash of the training and validation cases."""
    is_main: bool = True
    """Whether this process is the one that writes files; only of several does it matter."""

    @property
    def finished(self) -> bool:
        return self.ended != "paused"


def fit(
    model: nn.Module,
    train: Sequence[Case],
    validation: Sequence[Case] = (),
    settings: Settings | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    pause_after: float | None = None,
    device: torch.device | str | None = None,
    loss: Loss | None = None,
    progress: bool = True,
    on_improvement: Callable[[nn.Module, Course], None] | None = None,
    as_seen: bool = False,
    judge_start: bool = False,
    threads: int | None = None,
    **changes: Any,
) -> TrainingResult:
    """Train a network that maps a case to fields, and leave its best weights in it.

    Cases are completed and brought to the network's units as in prediction: the same data in SI units, millimetres or
    dimensionless give the same network.

    ::

        penn.fit(model, train_cases, validation=validation_cases, learning_rate=5e-4, minutes=10)

    Args:
        model: Any `nn.Module` that takes a `Case` (or a batch of them) and returns fields by the names of its targets.
        train: Cases with targets.
        validation: Cases that decide which weights are the best; none: the training loss decides.
        settings: All numbers of the training; see `Settings`.
        folder: Where the state, from which a training can be continued, and the CSV file go; None: nowhere.
        resume: Continue what the folder holds; where it holds nothing, begin. On a CPU the result is the same, bit for
            bit, as without the break, as long as the budget counts steps or epochs.
        pause_after: Minutes after which this call saves its state and returns.
        device: Where to train; by default the GPU where there is one.
        loss: loss(model, case, weights) in place of the scaled squared error. Weights are judged by the scaled squared
            error all the same, unless it is a `RelativeError`.
        progress: Whether a progress bar may be shown; only on a terminal.
        on_improvement: Called with the network and the course of the training after each new best validation error.
        as_seen: Whether the cases are complete and in the network's units already (`network.inputs.seen_by`).
        judge_start: Whether the weights that the network begins with may be the best: for trained ones. Then training
            never ends worse than it began. Without validation cases all training cases are the judges.
        threads: On a CPU; None: as many as a batch is worth and the machine has idle. A continued training takes as
            many as before.
        **changes: Settings by name, in place of those in `settings`.
    """
    begun = time.monotonic()
    settings = (settings or Settings()).with_changes(changes)
    if not train:
        raise ValueError("fit needs at least one training case; got none.")
    adapted = getattr(model, "adapted", lambda case: case)

    def ready(case: Case) -> Case:
        return adapted(case if as_seen else seen_by(model, case).case)

    train, validation = ([ready(case) for case in some] for some in (train, evenly(validation, settings.judges)))
    check_cases(train, "training", train[0])
    check_cases(validation, "validation", train[0])
    folder = Path(folder) if folder is not None else None
    if folder is None and (resume or pause_after is not None):
        raise ValueError("resume and pause_after need the folder that keeps the state of the training.")

    processes = Processes(device)
    if settings.batch_size > len(train):
        settings = replace(settings, batch_size=len(train))
    if getattr(model, "takes_times", False):
        # Every case has its own time, and so its own steps; each process takes as many of a batch as the others.
        whole = processes.count * math.ceil(settings.batch_size / processes.count)
        settings = replace(settings, batch_size=whole, stacked=False)
    if threads is None:
        threads = threads_of_before(folder) if resume and folder else None
    if threads is None:
        threads = threads_for(train, at_once(model, settings.batch_size // processes.count), processes.device)
    with _determinism(settings), _own_random_numbers(settings.seed), with_threads(threads):
        model.to(processes.device)
        run = _Run(model, train, validation, settings, processes, folder, resume, loss, judge_start)
        run.loop(begun, pause_after, progress, on_improvement)
        return run.end()


class _Run:
    """A training in progress."""

    def __init__(
        self,
        model: nn.Module,
        train: list[Case],
        validation: list[Case],
        settings: Settings,
        processes: Processes,
        folder: Path | None,
        resume: bool,
        loss: Loss | None,
        judge_start: bool,
    ):
        self.model, self.settings, self.processes, self.folder = model, settings, processes, folder
        self.train, self.validation, self.judge_start = train, validation, judge_start
        self.targets, self.relative = tuple(train[0].targets), loss if isinstance(loss, RelativeError) else None
        self.loss_name = _named(loss)
        self.scales = dict(settings.scales) if settings.scales else standard_deviations(train)
        if missing := set(self.targets) - self.scales.keys():
            raise ValueError(f"scales lack {sorted(missing)}; the targets are {sorted(self.targets)}.")
        self.dataset = states.fingerprint([*train, *validation])
        self.order = Order(len(train), settings.batch_size, settings.seed)
        self.total_steps = settings.number_of_steps(len(train))
        self.step, self.course = 0, Course()
        self.seconds, self.processor_seconds = 0.0, 0.0
        self.rate, self.taken, self.time_of_steps = settings.learning_rate, 0, 0.0
        self.tell: Callable[[str], None] = log.info if processes.is_main else log.debug
        self.ended: Literal["budget", "early stop", "paused"] | None = None
        self.history: tuple[Mapping[str, Any], ...] = ()

        found = self._found(resume)  # what cannot be continued is refused before the work begins
        dtype = next(model.parameters()).dtype
        batches = prepared(model, [*train, *validation], dtype, processes.device, settings.stacked, self.tell)
        self.steps = Steps(
            model, batches, loss or scaled_squared_error(self.scales), settings, processes, self.targets, self.tell
        )
        if processes.count > 1:
            self.steps.load_weights(processes.same(self.steps.weights()))
        self.best_weights = self.steps.weights()
        if found is not None:
            self._continue(found)

    def _found(self, resume: bool) -> states.State | None:
        found = self.processes.same(states.load(self.folder) if self.folder and self.processes.is_main else None)
        if found is None:
            if self.folder and self.processes.is_main:
                self.folder.mkdir(parents=True, exist_ok=True)
            return None
        if not resume:
            raise ValueError(
                f"{self.folder} holds a training that stands at step {found.plain['step']}: continue it with "
                "resume=True (--resume), or choose another folder."
            )
        self._check_resumable(found)
        return found

    def _continue(self, found: states.State) -> None:
        self.step, self.seconds = found.plain["step"], found.plain["seconds"]
        self.processor_seconds = found.plain.get("processor_seconds", 0.0)
        self.course = Course.from_plain(found.plain["course"])
        ended = found.plain["ended"]
        self.ended = ended if ended == "early stop" else None
        self.steps.load_weights(found.part("weights"))
        self.steps.load_optimizer(found.part("optimizer"))
        self.best_weights = {name: tensor.to(self.processes.device) for name, tensor in found.part("best").items()}
        torch.set_rng_state(found.tensors["random/cpu"])
        if self.processes.device.type == "cuda" and "random/cuda" in found.tensors:
            torch.cuda.set_rng_state(found.tensors["random/cuda"], self.processes.device)
        self.tell(f"continued at step {self.step}, after {self.seconds:.0f} s")

    def loop(
        self,
        begun: float,
        pause_after: float | None,
        progress: bool,
        on_improvement: Callable[[nn.Module, Course], None] | None,
    ) -> None:
        main = self.processes.is_main
        journal = Journal(self.folder if main else None, self.targets, self.step, progress and main)
        self.tell(f"training {_size(self.model):,} parameters on {len(self.train)} cases: {self.steps.description}")
        saved = time.monotonic()
        with journal, _signals(self.folder is not None) as asked_to_stop:
            if self.step == 0 and self.folder and main:
                self.save()  # a full disk is found now, and a training that is killed before the first test goes on
            if self.step == 0 and self.judge_start:
                with self._counted_time():
                    self._test(journal, on_improvement)
            while self.ended is None and self._fraction(self.step) < 1:
                count, is_check, is_test = self._stretch_from(self.step)
                with self._counted_time():
                    losses = self._take_steps(count)
                if is_check and (trouble := self.course.trouble(self.settings)):
                    self._roll_back(trouble, journal)
                elif is_test:
                    with self._counted_time():
                        self._test(journal, on_improvement)
                elif lost := sum(not math.isfinite(loss) for loss in losses):
                    journal.write(self._row(event=f"{lost} steps skipped: gradient not finite"))
                over = pause_after is not None and time.monotonic() - begun > 60 * pause_after
                # The main process's clock counts: all must take the same decision.
                self.seconds, self.processor_seconds, over = self.processes.same(
                    (self.seconds, self.processor_seconds, over or bool(asked_to_stop))
                )
                self._show(journal)
                if over and self.ended is None:
                    self.ended = "paused"
                if self.folder and main and time.monotonic() - saved > _SAVE_EVERY:
                    self.save()
                    saved = time.monotonic()
            if self.ended is None:
                self.ended = "budget"
                self._test_at_the_end(journal, on_improvement)
        self.history = tuple(journal.rows)
        if self.folder and main:
            self.save()

    def end(self) -> TrainingResult:
        assert self.ended is not None
        if self.course.best is not None:
            self.steps.load_weights(self.best_weights)
        # Untrained, a network may hide that it minds the points which fill cases up; trained, it does not.
        if isinstance(self.steps.batches, Stacked) and self.taken and (reason := disagreement(self.model, self.train)):
            log.warning(f"training ran on cases filled up to one shape, but {reason}; train with stacked=False")
        self.model.zero_grad(set_to_none=True)
        self.model.eval()
        return TrainingResult(
            model=self.model,
            ended=self.ended,
            best=self.course.best,
            best_step=self.course.best_step,
            best_errors=self.course.best_errors,
            steps=self.step,
            epochs=self._epoch(),
            seconds=self.seconds,
            processor_seconds=self.processor_seconds,
            milliseconds_per_step=1e3 * self.time_of_steps / max(1, self.taken),
            restarts=self.course.restarts,
            rollbacks=self.course.rollbacks,
            history=self.history,
            description=self.steps.description,
            scales=self.scales,
            dataset=self.dataset,
            is_main=self.processes.is_main,
        )

    def save(self) -> None:
        assert self.folder is not None
        plain = {
            "version": __version__,
            "step": self.step,
            "seconds": self.seconds,
            "processor_seconds": self.processor_seconds,
            "ended": self.ended,
            "course": asdict(self.course),
            "settings": asdict(self.settings),
            "scales": self.scales,
            "dataset": self.dataset,
            "loss": self.loss_name,
            "processes": self.processes.count,
            "threads": torch.get_num_threads(),
            "frozen": _frozen(self.model),
        }
        random = {"cpu": torch.get_rng_state()}
        if self.processes.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.processes.device)
        parts: dict[str, Mapping[str, Tensor]] = {
            "weights": self.steps.weights(),
            "best": self.best_weights,
            "optimizer": self.steps.optimizer.tensors(),
            "random": random,
        }
        tensors = {f"{kind}/{name}": tensor for kind, part in parts.items() for name, tensor in part.items()}
        states.save(states.State(plain, tensors), self.folder)

    @contextmanager
    def _counted_time(self) -> Iterator[None]:
        """Time that counts against the budget."""
        clock, processor = time.monotonic(), time.process_time()
        yield
        self.seconds += time.monotonic() - clock
        self.processor_seconds += time.process_time() - processor

    def _stretch_from(self, step: int) -> tuple[int, bool, bool]:
        """Steps until the clock is read next, whether the losses are read as well, and whether a validation follows.

        The losses are judged and tests are made at the same steps always; a break must not change a training.
        """
        per_epoch = len(self.train) / self.settings.batch_size
        next_check = (step // self.settings.check_every + 1) * self.settings.check_every
        spacing = max(1, round(self.settings.test_every * per_epoch))
        next_test = (step // spacing + 1) * spacing
        due = int(min(next_check, next_test, self.total_steps))
        # Where steps take seconds, fifty of them would let a budget, a pause and Ctrl-C wait for minutes.
        quick = int(_LONGEST_STRETCH * step / self.seconds) if self.seconds else 0
        end = min(due, step + max(1, quick))
        return end - step, end == due, end == next_test

    def _take_steps(self, count: int) -> list[float]:
        clock = time.monotonic()
        steps = range(self.step, self.step + count)
        rates = [self.course.rate(self.settings, step, self._fraction(step)) for step in steps]
        losses = self.steps.run(self.step, self.order.batches(self.step, count), rates)
        self.time_of_steps += time.monotonic() - clock
        self.rate, self.taken, self.step = rates[-1], self.taken + count, self.step + count
        self.course = self.course.after_steps(self.settings, losses)
        return losses

    def _test(self, journal: Journal, on_improvement: Callable[[nn.Module, Course], None] | None) -> None:
        value, errors = self._validation()
        row = self._row(validation=value, **{f"validation_{name}": error for name, error in errors.items()})
        loss = self.course.loss
        self.course, verdict = self.course.after_test(self.settings, self.step, value, errors)
        self._tell_test(loss, value, errors, verdict)
        if verdict == "improved":
            self._keep_as_best(on_improvement)
        elif verdict == "restart":
            self._back_to_best()
            row["event"] = f"restart {self.course.restarts} from step {self.course.best_step}"
            self.tell(f"{row['event']}; the rate is now {self.course.rate_scale:g} of its start")
        elif verdict == "stop":
            row["event"] = self.ended = "early stop"
        journal.write(row)
        if self.folder and self.processes.is_main:
            self.save()

    def _test_at_the_end(self, journal: Journal, on_improvement: Callable[[nn.Module, Course], None] | None) -> None:
        """The last weights may be the best. A training that is given more time later must not remember this test."""
        if self.course.tested_at == self.step or not self.step:
            return
        value, errors = self._validation()
        course, verdict = self.course.after_test(self.settings, self.step, value, errors)
        self._tell_test(self.course.loss, value, errors, verdict)
        if verdict == "improved":
            self.course = course
            self._keep_as_best(on_improvement)
        self.course = replace(self.course, tested_at=self.step)
        journal.write(self._row(validation=value, **{f"validation_{name}": error for name, error in errors.items()}))

    def _validation(self) -> tuple[float, dict[str, float]]:
        numbers: Sequence[int] = range(len(self.train), len(self.train) + len(self.validation))
        if not self.validation:
            if not self.judge_start:
                return self.course.loss, {}
            # The losses of the last steps belong to many weights; the start can only be compared with one network.
            numbers = evenly(range(len(self.train)), self.settings.judges)
        by_case = self.steps.errors(list(numbers))
        errors = {name: sum(values) / len(values) for name, values in by_case.items()}
        if self.relative is not None:
            return self._relative_error(self.relative, numbers, by_case), errors
        return self._in_units_of_loss(errors), errors

    def _tell_test(self, loss: float, value: float, errors: Mapping[str, float], verdict: str) -> None:
        parts = [
            f"step {self.step}",
            f"epoch {self._epoch():.1f}",
            f"{self.seconds:.0f} s",
            *([f"{duration(left)} left"] if (left := self._seconds_left()) is not None else []),
            f"rate {self.rate:.1e}",
            *([f"loss {loss:.3e}"] if math.isfinite(loss) else []),
            f"validation {value:.3e}",
            *([f"error {value if self.relative else math.sqrt(value):.3%}"] if errors and value >= 0 else []),
            *(f"{name} {error:.3e}" for name, error in errors.items()),
            verdict,
        ]
        self.tell("  ".join(parts))

    def _keep_as_best(self, on_improvement: Callable[[nn.Module, Course], None] | None) -> None:
        self.best_weights = self.steps.weights()
        if on_improvement is not None and self.processes.is_main:
            on_improvement(self.model, self.course)

    def _roll_back(self, trouble: str, journal: Journal) -> None:
        row = self._row()
        self.course = self.course.after_trouble(self.settings, self.step, trouble)
        self._back_to_best()
        row["event"] = f"rollback {self.course.rollbacks} to step {self.course.best_step}: {trouble}"
        journal.write(row)
        if self.processes.is_main:
            log.warning(f"step {self.step}: {row['event']}; the rate is now {self.course.rate_scale:g} of its start")

    def _back_to_best(self) -> None:
        self.steps.load_weights(self.best_weights)
        self.steps.optimizer.reset()

    def _in_units_of_loss(self, errors: Mapping[str, float]) -> float:
        """The scaled squared error from errors per target; the paper's tables divide vectors by three components."""
        terms = [error * self._components(name) / self.scales[name] ** 2 for name, error in errors.items()]
        return sum(terms) / len(terms)

    def _relative_error(
        self, loss: RelativeError, numbers: Sequence[int], errors: Mapping[str, Sequence[float]]
    ) -> float:
        """The geometric mean of relative errors, from mean squared errors per target and case."""
        cases = [*self.train, *self.validation]
        terms = []
        for name, values in errors.items():
            sizes = torch.stack([cases[number].targets[name].detach().double().square().mean() for number in numbers])
            terms.append(loss.logarithm(self._components(name) * torch.tensor(values).double(), sizes.cpu()))
        return float(torch.stack(terms).mean().exp())

    def _components(self, name: str) -> float:
        """By what to multiply an error of the paper's tables, over three components, for one over those there are."""
        return (COMPONENTS / self.train[0].space) ** rank_of(name, self.train[0])

    def _fraction(self, step: int) -> float:
        """The share of the budget that is used up at a step; the clock is read only between stretches of steps."""
        fraction = step / self.total_steps if self.total_steps else 1.0
        if self.settings.minutes is not None:
            fraction = max(fraction, self.seconds / (60 * self.settings.minutes))
        if self.settings.processor_minutes is not None:
            fraction = max(fraction, self.processor_seconds / (60 * self.settings.processor_minutes))
        return fraction

    def _epoch(self) -> float:
        return self.step * self.settings.batch_size / len(self.train)

    def _row(self, **more: Any) -> dict[str, Any]:
        row = {"step": self.step, "epoch": self._epoch(), "seconds": self.seconds, "learning_rate": self.rate}
        return {**row, "loss": self.course.loss, **more}

    def _show(self, journal: Journal) -> None:
        per_second = self.taken / self.time_of_steps if self.time_of_steps else None
        shown = Shown(self._fraction(self.step), self.course.loss, self.course.best, self.rate, per_second)
        journal.show(shown, self._seconds_left())

    def _seconds_left(self) -> float | None:
        fraction = self._fraction(self.step)
        return None if fraction == 0 else max(0.0, self.seconds * (1 / fraction - 1))

    def _check_resumable(self, found: states.State) -> None:
        before, now = dict(found.plain["settings"]), asdict(self.settings)
        before["betas"] = tuple(before["betas"])
        different = [
            f"{name} was {before.get(name)!r} and is {value!r}"
            for name, value in now.items()
            if name not in MAY_CHANGE and before.get(name) != value
        ]
        weights = {name: tuple(tensor.shape) for name, tensor in self.model.state_dict().items()}
        if weights != {name: tuple(tensor.shape) for name, tensor in found.part("weights").items()}:
            different.append("the network has other weights")
        if found.plain.get("frozen", []) != _frozen(self.model):
            different.append("other layers are frozen")
        # States of earlier versions do not say which loss they made small.
        if (loss := found.plain.get("loss", self.loss_name)) != self.loss_name:
            different.append(f"the loss was {loss} and is {self.loss_name}")
        if found.plain["dataset"] != self.dataset:
            different.append("the cases are others")
        if different:
            raise ValueError(
                f"The training in {self.folder} cannot be continued: {'; '.join(different)}. Start again in another "
                "folder, or give what it began with."
            )


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _named(loss: Loss | None) -> str:
    """What a training makes small, such that another loss has another name."""
    if loss is None:
        return "the scaled squared error"
    return getattr(loss, "__qualname__", None) or repr(loss)


def _frozen(model: nn.Module) -> list[str]:
    return sorted(name for name, parameter in model.named_parameters() if not parameter.requires_grad)


@contextmanager
def _signals(taken: bool) -> Iterator[list[int]]:
    """Collects SIGINT and SIGTERM, so that a training can save itself; a second one interrupts as usual."""
    received: list[int] = []
    if not taken or threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, _: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, receive)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _own_random_numbers(seed: int) -> Iterator[None]:
    """Seeded for the training, and as before afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def _determinism(settings: Settings) -> Iterator[None]:
    if not settings.deterministic:
        yield
        return
    # Read by cuBLAS when it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
