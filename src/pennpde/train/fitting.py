"""`fit`: the loop of a training."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from pennpde import __version__
from pennpde.case import Case
from pennpde.data.storage import evenly
from pennpde.files import locked_folder
from pennpde.machine import device_for, threads_for, with_threads
from pennpde.metrics import COMPONENTS, rank_of
from pennpde.penn.predictor import seen_by
from pennpde.train import folder as states
from pennpde.train.cases import Order, at_once, check_cases
from pennpde.train.folder import Journal, duration, log
from pennpde.train.settings import MAY_CHANGE, Course, Settings
from pennpde.train.steps import Loss, Steps, scaled_squared_error, standard_deviations

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
    """The lowest validation error, in units of the loss; without validation cases the lowest mean training loss."""
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
    scales: Mapping[str, float]
    dataset: str
    """A hash of the training and validation cases."""
    signal: int | None = None
    """Number of the signal that paused it, such as that of ctrl+c."""

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
    stepper: type[Steps] = Steps,
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
            error all the same.
        progress: Whether a progress bar may be shown; only on a terminal.
        on_improvement: Called with the network and the course of the training after each new best validation error.
        as_seen: Whether the cases are complete and in the network's units already (`network.inputs.seen_by`).
        judge_start: Whether the weights that the network begins with may be the best: for trained ones. Then training
            never ends worse than it began. Without validation cases all training cases are the judges.
        threads: On a CPU; None: as many as a batch is worth and the machine has idle. A continued training takes as
            many as before.
        stepper: What takes the steps.
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

    place = device_for(device)
    settings = replace(settings, batch_size=min(settings.batch_size, len(train)))
    threads = threads or threads_of(model, train, settings.batch_size, place, folder if resume else None)
    with _determinism(settings), torch.random.fork_rng(), with_threads(threads):
        torch.manual_seed(settings.seed)
        model.to(place)
        run = _Run(model, train, validation, settings, place, folder, loss, judge_start, on_improvement, stepper)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with nullcontext() if folder is None else locked_folder(folder, "another training"):
            run.begin(resume)
            with Journal(folder, run.targets, run.step, progress) as run.journal:
                run.loop(None if pause_after is None else begun + 60 * pause_after)
        return run.result()


def threads_of(
    model: nn.Module, cases: Sequence[Case], batch_size: int, device: torch.device, continued: Path | None
) -> int:
    """As many as batches of these cases are worth; another number than before the break would change the last bits."""
    found = states.load(continued) if continued else None
    before = None if found is None else found.plain.get("threads")
    points = at_once(model, batch_size) * sum(case.number_of_points for case in cases) / len(cases)
    return before or threads_for(points, device)


@dataclass(eq=False)
class _Run:
    """A training in progress."""

    model: nn.Module
    train: list[Case]
    validation: list[Case]
    settings: Settings
    device: torch.device
    folder: Path | None
    loss: Loss | None
    judge_start: bool
    on_improvement: Callable[[nn.Module, Course], None] | None
    stepper: type[Steps]

    journal: Journal = field(init=False)
    steps: Steps = field(init=False)
    best_weights: dict[str, Tensor] = field(init=False)
    course: Course = field(default_factory=Course)
    step: int = 0
    ended: Literal["budget", "early stop", "paused"] | None = None
    seconds: float = 0.0
    processor_seconds: float = 0.0
    rate: float = 0.0
    taken: int = 0
    """Steps of this call."""
    time_of_steps: float = 0.0
    signal: int | None = None
    """That asked to stop."""

    def __post_init__(self) -> None:
        settings = self.settings
        self.targets = tuple(self.train[0].targets)
        self.scales = dict(settings.scales) if settings.scales else standard_deviations(self.train)
        if missing := set(self.targets) - self.scales.keys():
            raise ValueError(f"scales lack {sorted(missing)}; the targets are {sorted(self.targets)}.")
        self.dataset = states.fingerprint([*self.train, *self.validation])
        self.order = Order(len(self.train), settings.batch_size, settings.seed)
        self.total_steps = settings.number_of_steps(len(self.train))
        self.rate = settings.learning_rate

    def begin(self, resume: bool) -> None:
        """Make everything ready for steps, where the folder says or at the start."""
        found = states.load(self.folder) if self.folder else None
        if found is not None and not resume:
            raise ValueError(
                f"{self.folder} holds a training that stands at step {found.plain['step']}: continue it with "
                "resume=True (--resume), or choose another folder."
            )
        if found is not None:  # what cannot be continued is refused before the work begins
            self._check_resumable(found)
        cases, loss = [*self.train, *self.validation], self.loss or scaled_squared_error(self.scales)
        self.steps = self.stepper.of(self.model, cases, self.device, loss, self.settings)
        self.best_weights = self.steps.weights()
        if found is not None:
            self._continue(found)
        size = sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)
        log.info(f"training {size:,} parameters on {len(self.train)} cases, on {self.device}")

    def _continue(self, found: states.State) -> None:
        self.step, self.seconds = found.plain["step"], found.plain["seconds"]
        self.processor_seconds = found.plain.get("processor_seconds", 0.0)
        self.course = Course.from_plain(found.plain["course"])
        self.ended = "early stop" if found.plain["ended"] == "early stop" else None
        self.steps.load_weights(found.part("weights"))
        self.steps.load_optimizer(found.part("optimizer"))
        self.best_weights = {name: tensor.to(self.device) for name, tensor in found.part("best").items()}
        torch.set_rng_state(found.tensors["random/cpu"])
        if self.device.type == "cuda" and "random/cuda" in found.tensors:
            torch.cuda.set_rng_state(found.tensors["random/cuda"], self.device)
        log.info(f"continued at step {self.step}, after {self.seconds:.0f} s")

    def loop(self, pause_at: float | None) -> None:
        """Take steps until the budget is used up, nothing improves, or the clock says `pause_at`."""
        saved = time.monotonic()
        with _signals(self.folder is not None) as asked_to_stop:
            if self.step == 0:
                self._save()  # a full disk is found now, and a training that is killed before the first test goes on
                if self.judge_start:
                    self._test()
            while self.ended is None and self._fraction(self.step) < 1:
                count, is_check, is_test = self._stretch_from(self.step)
                with self._counted_time():
                    losses = self._take_steps(count)
                if is_check and (trouble := self.course.trouble(self.settings)):
                    self._roll_back(trouble)
                elif is_test:
                    self._test()
                elif lost := sum(not math.isfinite(loss) for loss in losses):
                    self.journal.write(self._row(event=f"{lost} steps skipped: gradient not finite"))
                if asked_to_stop:
                    self.signal = asked_to_stop[0]
                over = bool(asked_to_stop) or (pause_at is not None and time.monotonic() > pause_at)
                self._show()
                if over and self.ended is None:
                    self.ended = "paused"
                if time.monotonic() - saved > _SAVE_EVERY:
                    self._save()
                    saved = time.monotonic()
            if self.ended is None:
                self.ended = "budget"
                if self.step and self.course.tested_at != self.step:  # the last weights may be the best
                    self._test(at_the_end=True)
        self._save()

    def result(self) -> TrainingResult:
        assert self.ended is not None
        if self.course.best is not None:
            self.steps.load_weights(self.best_weights)
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
            history=tuple(self.journal.rows),
            scales=self.scales,
            dataset=self.dataset,
            signal=self.signal if self.ended == "paused" else None,
        )

    def _save(self) -> None:
        if self.folder is None:
            return
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
            "loss": _named(self.loss),
            "threads": torch.get_num_threads(),
            "frozen": _frozen(self.model),
        }
        random = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
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

    def _test(self, at_the_end: bool = False) -> None:
        """Judge the weights; a training that is given more time later must not remember a test at the end."""
        with nullcontext() if at_the_end else self._counted_time():
            value, errors = self._validation()
            row = self._row(validation=value, **{f"validation_{name}": error for name, error in errors.items()})
            course, verdict = self.course.after_test(self.settings, self.step, value, errors)
            self._tell_test(value, errors, verdict)
            is_best = verdict == "improved"
            self.course = course if is_best or not at_the_end else replace(self.course, tested_at=self.step)
            if is_best:
                self.best_weights = self.steps.weights()
                if self.on_improvement is not None:
                    self.on_improvement(self.model, self.course)
            elif verdict == "restart" and not at_the_end:
                self._back_to_best()
                row["event"] = f"restart {self.course.restarts} from step {self.course.best_step}"
                log.info(f"{row['event']}; the rate is now {self.course.rate_scale:g} of its start")
            elif verdict == "stop" and not at_the_end:
                row["event"] = self.ended = "early stop"
            self.journal.write(row)
            self._save()

    def _validation(self) -> tuple[float, dict[str, float]]:
        """What decides which weights are the best, and the mean squared error of each target."""
        numbers: Sequence[int] = range(len(self.train), len(self.train) + len(self.validation))
        if not self.validation:
            if not self.judge_start:
                return self.course.loss, {}
            # The losses of the last steps belong to many weights; the start can only be compared with one network.
            numbers = evenly(range(len(self.train)), self.settings.judges)
        errors = {name: sum(values) / len(values) for name, values in self.steps.errors(list(numbers)).items()}
        # The paper's tables divide errors of vectors by three components, losses by those that there are.
        like = self.train[0]
        components = {name: (COMPONENTS / like.space) ** rank_of(name, like) for name in errors}
        terms = [error * components[name] / self.scales[name] ** 2 for name, error in errors.items()]
        return sum(terms) / len(terms), errors

    def _tell_test(self, value: float, errors: Mapping[str, float], verdict: str) -> None:
        left, loss = self._seconds_left(), self.course.loss
        error = math.sqrt(max(0.0, value))
        parts = [
            f"step {self.step}",
            f"epoch {self._epoch():.1f}",
            f"{self.seconds:.0f} s",
            *([f"{duration(left)} left"] if left is not None else []),
            f"rate {self.rate:.1e}",
            *([f"loss {loss:.3e}"] if math.isfinite(loss) else []),
            f"validation {value:.3e}",
            *([f"error {error:.3%}"] if errors and value >= 0 else []),
            *(f"{name} {error:.3e}" for name, error in errors.items()),
            verdict,
        ]
        log.info("  ".join(parts))

    def _roll_back(self, trouble: str) -> None:
        row = self._row()
        self.course = self.course.after_trouble(self.settings, self.step, trouble)
        self._back_to_best()
        row["event"] = f"rollback {self.course.rollbacks} to step {self.course.best_step}: {trouble}"
        self.journal.write(row)
        log.warning(f"step {self.step}: {row['event']}; the rate is now {self.course.rate_scale:g} of its start")

    def _back_to_best(self) -> None:
        self.steps.load_weights(self.best_weights)
        self.steps.optimizer.reset()

    def _fraction(self, step: int) -> float:
        """The share of the budget that is used up at a step; the clock is read only between stretches of steps."""
        settings = self.settings
        fractions = [step / self.total_steps if self.total_steps else 1.0]
        if settings.minutes is not None:
            fractions.append(self.seconds / (60 * settings.minutes))
        if settings.processor_minutes is not None:
            fractions.append(self.processor_seconds / (60 * settings.processor_minutes))
        return max(fractions)

    def _seconds_left(self) -> float | None:
        fraction = self._fraction(self.step)
        return None if fraction == 0 else max(0.0, self.seconds * (1 / fraction - 1))

    def _epoch(self) -> float:
        return self.step * self.settings.batch_size / len(self.train)

    def _row(self, **more: Any) -> dict[str, Any]:
        row = {"step": self.step, "epoch": self._epoch(), "seconds": self.seconds, "learning_rate": self.rate}
        return {**row, "loss": self.course.loss, **more}

    def _show(self) -> None:
        left, best = self._seconds_left(), self.course.best
        self.journal.show(
            completed=min(1.0, self._fraction(self.step)),
            loss=self.course.loss,
            error=math.nan if best is None else best,
            rate=self.rate,
            speed=f"{self.taken / self.time_of_steps:.3g} steps/s" if self.time_of_steps else "",
            left="" if left is None else f"{duration(left)} left",
        )

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
        if (loss := found.plain.get("loss", _named(self.loss))) != _named(self.loss):
            different.append(f"the loss was {loss} and is {_named(self.loss)}")
        if found.plain["dataset"] != self.dataset:
            different.append("the cases are others")
        if different:
            raise ValueError(
                f"The training in {self.folder} cannot be continued: {'; '.join(different)}. Start again in another "
                "folder, or give what it began with."
            )


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
