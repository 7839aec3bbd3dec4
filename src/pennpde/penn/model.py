"""PENN: encode, solve under the encoded boundary conditions, decode with the pseudoinverse.

`Equation` is the part that a user writes. Everything else (encoders, Dirichlet layers, solver, decoders, time series,
the ablations of the paper) is `PENN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from pennpde.case import Case, Condition, Dirichlet, batch, unbatch
from pennpde.operators import NEUMANN_WEIGHT
from pennpde.operators.damping import Damping
from pennpde.penn.decoder import BoundaryFeatures, Correction, PlainDecoder
from pennpde.penn.encoder import Encoder
from pennpde.penn.equation import Clue, EncodedCase, Equation
from pennpde.penn.predictor import STEADY, Prediction, Predictor, attempted
from pennpde.penn.solver import MOST_ITERATIONS, BarzilaiBorwein, Memory, Solver, State
from pennpde.penn.start import Start, Started

_WIDEST = 65_536
"""Feature channels; matrices have the square of it."""
_AT_ONCE, _AT_ONCE_ON_A_GPU = 50_000, 500_000
"""Points of all times together that are solved as one batch: more only take memory."""


class PENN(Predictor):
    """A physics-embedded neural network for one equation.

    Args:
        equation: The equation in the encoded space.
        width: Feature channels of every unknown.
        solver: How a step is solved.
        steps: Output times, each solved from the encoded state of the one before.
        time_step: Time between outputs.
        encoders: By unknown, an encoder other than the linear one; "mlp" is the paper's for pressure, with one hidden
            layer and LeakyReLU.
        decoder: "pseudoinverse"; "corrected", which adds to it what is learned from the other channels, but where a
            value is prescribed; or "mlp" for the ablations.
        dirichlet_in_solver: Whether iterations see the conditions in "encoded" space, in "physical" space, or not.
        dirichlet_after_decoding: Set the physical values once more at the end.
        boundary_features: Feed value and flag to the encoders instead (ablation E). Only of use with decoder="mlp".
        neumann_weight: Strength of Neumann conditions in the operators; 0 leaves them out.
        moment: When the output of a network with one step holds, where it learned another moment than `time_step`
            after the start; "steady": the steady state.
        start: Gives the state that the solver starts from, at any time; None: the initial fields of the case.
    """

    def __init__(
        self,
        equation: Equation,
        width: int,
        solver: Solver | None = None,
        *,
        steps: int = 1,
        time_step: float = 1.0,
        encoders: Mapping[str, Encoder | Literal["linear", "mlp"]] | None = None,
        decoder: Literal["pseudoinverse", "corrected", "mlp"] = "pseudoinverse",
        dirichlet_in_solver: Literal["encoded", "physical", "none"] = "encoded",
        dirichlet_after_decoding: bool = False,
        boundary_features: bool = False,
        neumann_weight: float = NEUMANN_WEIGHT,
        moment: float | Literal["steady"] | None = None,
        start: Start | None = None,
    ):
        super().__init__()
        if start is not None and (steps != 1 or moment is not None):
            raise ValueError("A network with a start is solved once at each time: leave out steps and moment.")
        if moment is not None and steps != 1:
            raise ValueError(f"moment is {moment!r}, but the network has {steps} steps; it is for networks with one.")
        if isinstance(moment, str) and moment != "steady":
            raise ValueError(f'moment is {moment!r}; it may be a time or "steady".')
        if boundary_features and decoder != "mlp":
            raise ValueError(
                "boundary_features widens the encoders' input, so their pseudoinverse no longer gives the field back; "
                'use decoder="mlp" with it.'
            )
        for what, number, most in (("width", width, _WIDEST), ("steps", steps, MOST_ITERATIONS)):
            if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
                raise ValueError(f"{what} is {number!r}; it must be a whole number from 1 to {most}.")
        self.equation = equation
        self.width = width
        self.solver = solver or BarzilaiBorwein(iterations=8)
        self.steps = steps
        self.time_step = time_step
        self.moment = STEADY if moment == "steady" else moment
        self.decoder = decoder
        self.dirichlet_in_solver = dirichlet_in_solver
        self.dirichlet_after_decoding = dirichlet_after_decoding
        self.boundary_features = boundary_features
        self.neumann_weight = float(neumann_weight)
        self.start = start
        if unknown := sorted((encoders or {}).keys() - equation.unknowns.keys()):
            raise ValueError(f"encoders names {unknown}; the unknowns of the equation are {sorted(equation.unknowns)}.")
        self.encoders = nn.ModuleDict(
            {name: _encoder_of((encoders or {}).get(name, "linear"), name, width) for name in equation.unknowns}
        )
        if boundary_features:
            self.boundary_encoders = nn.ModuleDict(
                {name: BoundaryFeatures(width, rank) for name, rank in equation.unknowns.items()}
            )
        if decoder != "pseudoinverse":
            kind = PlainDecoder if decoder == "mlp" else Correction
            self.decoders = nn.ModuleDict({name: kind(width, rank) for name, rank in equation.unknowns.items()})

    @property
    def fulfils_dirichlet(self) -> bool:
        """Whether the structure guarantees the conditions, so that the last round-off may be removed."""
        encoded = self.decoder != "mlp" and self.dirichlet_in_solver != "none"
        return encoded or self.dirichlet_after_decoding

    @property
    def laplacian_damping(self) -> float | Damping:
        """What the equation wants added to Laplacians; whoever composes operators for the network adds it."""
        return self.equation.laplacian_damping

    @property
    def output_times(self) -> tuple[float, ...]:
        """When the fields that come out hold, from the start on: conditions that change are taken at these times."""
        if self.start is not None:
            return self.start.output_times
        if self.moment is not None:
            return (float(self.moment),)
        return tuple((step + 1) * self.time_step for step in range(self.steps))

    def adapted(self, case: Case) -> Case:
        """The case with operators as this network was trained with; the case itself where it has them already."""
        return case.with_neumann_weight(self.neumann_weight)

    @property
    def takes_times(self) -> bool:
        """Whether `solve` takes any times: where it starts from a solution that can be had at any time."""
        return self.start is not None

    @property
    def takes_any_precision(self) -> bool:
        """Whether fields come in the precision of the case whatever that of the parameters."""
        return self.start is not None

    @property
    def levels(self) -> tuple[str, ...]:
        """See `Predictor`."""
        return () if self.start is None else self.start.levels

    @property
    def level(self) -> str:
        """See `Predictor`."""
        return "" if self.start is None else self.start.level

    def set_level(self, level: str) -> None:
        """See `Predictor`."""
        self._check_level(level)
        assert self.start is not None
        self.start.level = level

    def can_keep(self, cases: Sequence[Case]) -> bool:
        start = self.start
        return start is None or all(map(start.is_started, cases)) or start.can_keep(cases)

    def points_solved(self, case: Case) -> int:
        return case.number_of_points if self.start is None else self.start.points_solved(case)

    def clues(self, case: Case) -> Sequence[Clue]:
        return () if self.start is None else self.start.clues(case)

    def coarser_solution(self, case: Case, times: Sequence[float]) -> Mapping[str, Tensor] | None:
        return None if self.start is None else self.start.coarser(case, times)

    def prepare(self, case: Case) -> None:
        """Compute what depends only on the mesh; it is kept with the case's operators."""
        if self.start is not None and not self.start.is_started(case):
            self.start.prepare(case)
            return
        for name in self.equation.unknowns:
            case.operators[name].composed(self.laplacian_damping)

    def learned(self, case: Case) -> Sequence[Case]:
        if self.start is None:
            return (case,)
        time = case.parameters.get("time")
        with torch.no_grad():
            return self.start.learned(case, self.output_times[-1] if time is None else float(time))

    def forward(self, case: Case) -> dict[str, Tensor]:
        if self.start is not None and not self.start.is_started(case):
            time = case.parameters.get("time")
            return self.solve(case, None if time is None else [float(time)]).fields
        return self._predict(case, record=False).fields

    def solve(self, case: Case, times: Sequence[float] | None = None) -> Prediction:
        """Predict, with solver histories and the round-off of the decoder."""
        if self.start is not None:
            return self._predict_from(self.start, case, self.output_times if times is None else tuple(times))
        self.only_own_times(times)
        return self._predict(case, record=True)

    def solve_together(
        self, cases: Sequence[Case], times: Sequence[Sequence[float] | None], device: torch.device | str = "cpu"
    ) -> list[Prediction | Exception]:
        if self.start is None:
            return super().solve_together(cases, times, device)
        wanted = [self.output_times if each is None else tuple(each) for each in times]
        with torch.no_grad():
            started = self.start.solve_together(cases, wanted, device)
        return self._finished(self.start, cases, wanted, started, device)

    def _predict_from(self, start: Start, case: Case, times: tuple[float, ...]) -> Prediction:
        """What the network makes of a cheap solution, at each time."""
        with torch.no_grad():
            started = start.solve(case, times)
        (found,) = self._finished(start, [case], [times], [started], self.placement[1])
        if isinstance(found, Exception):
            raise found
        return found

    def _finished(
        self,
        start: Start,
        cases: Sequence[Case],
        times: Sequence[tuple[float, ...]],
        started: Sequence[Started | Exception],
        device: torch.device | str,
    ) -> list[Prediction | Exception]:
        """What the network makes of cheap solutions of several cases, of which it sees as many as fit at once."""
        seen = [
            each for found in started if not isinstance(found, Exception) and found.corrected for each in found.cases
        ]
        corrected = iter(self._corrected(seen, device))

        def finished(case: Case, wanted: tuple[float, ...], found: Started | Exception) -> Prediction:
            if isinstance(found, Exception):
                raise found
            frames = [next(corrected) if found.corrected else dict(each.initial) for each in found.cases]
            if found.corrected and not torch.is_grad_enabled():
                frames = [start.finished(case, *each) for each in zip(found.cases, frames, strict=True)]
            return _series(case, wanted, found, frames)

        return [attempted(finished, *each) for each in zip(cases, times, started, strict=True)]

    def _corrected(self, cases: Sequence[Case], device: torch.device | str) -> list[dict[str, Tensor]]:
        """The network's fields, of as many cases at once as it takes points."""
        found, home = [], self.placement[1]
        moves = torch.device(device) != home
        if moves:
            self.to(device)
        try:
            while len(found) < len(cases):
                left = cases[len(found) :]
                most = _AT_ONCE if torch.device(device).type == "cpu" else _AT_ONCE_ON_A_GPU
                together = batch(left[: max(1, most // left[0].number_of_points)])
                fields = self._predict(together, record=False).fields
                if moves:
                    fields = {name: values.to(home) for name, values in fields.items()}
                found += unbatch(fields, together)
        finally:
            if moves:
                self.to(home)
        return found

    def _predict(self, case: Case, *, record: bool) -> Prediction:
        parameter = next(self.parameters())
        case = self.adapted(case).to(parameter.dtype, parameter.device)
        changes = case.changes_with_time
        encoded = self._encode(case.over(self.output_times[:1]))
        state = {name: self._encode_initial(name, case) for name in self.equation.unknowns}
        solutions, frames = [], []

        for step, time in enumerate(self.output_times):
            if changes and step > 0:  # implicit steps: what holds at their end
                encoded = self._encode(case.over([time]))
            iterate = partial(self.iterate, encoded, state)
            solution = self.solver.repeat(iterate, encoded.project(state), case, record=record)
            state = solution.state
            solutions.append(solution)
            frames.append({name: self._decode(name, values, case) for name, values in state.items()})
        fields = {
            name: frames[0][name] if self.steps == 1 else torch.stack([frame[name] for frame in frames], dim=-1)
            for name in frames[0]
        }
        # Under autocast the decoder's output is coarser than the prescribed values; those must come out as they are.
        fields = {name: values.to(parameter.dtype) for name, values in fields.items()}
        if not self.training:
            _refuse_overflow_of_half_precision(fields)
        if changes:
            case = case.over(self.output_times)
        round_off = {name: _largest_error(case, name, values) for name, values in fields.items()} if record else {}
        if self.fulfils_dirichlet:
            # Where the structure holds the condition, what is left is the decoder's round-off: remove it bit for bit.
            fields = case.fulfilled(fields)
        return Prediction(fields, tuple(solutions), round_off)

    def iterate(self, encoded: EncodedCase, start: State, state: State, memory: Memory) -> tuple[State, Memory, State]:
        """One iteration of the solver."""
        step = partial(self._step, encoded)
        return self.solver.iterate(step, start, encoded.case, encoded.project, state, memory)

    def _step(self, encoded: EncodedCase, state: State, start: State, fraction: float) -> State:
        return self.equation.step(state, start, encoded, fraction * self.time_step)

    def _encode(self, case: Case) -> EncodedCase:
        boundary, physical = {}, {}
        if self.dirichlet_in_solver == "encoded":
            boundary = {name: self.encoders[name](case.dirichlet[name].values) for name in self.equation.unknowns}
        elif self.dirichlet_in_solver == "physical":
            physical = {name: self._encoder(name) for name in self.equation.unknowns}
        held = {name: self._encode_held(name, case) for name in self.equation.unknowns}
        encoded = EncodedCase(case, boundary, physical, self._encode_neumann(case), held)
        return replace(encoded, constants=self.equation.prepare(encoded))

    def _encode_held(self, name: str, case: Case) -> tuple[Condition, ...]:
        encoder = self._encoder(name)
        acting = [each for each in case.conditions_of(name) if each.acts and not isinstance(each, Dirichlet)]
        return tuple(each.encoded(encoder, encoder.is_linear, name) for each in acting)

    def _encode_neumann(self, case: Case) -> dict[str, Tensor]:
        encoded = {}
        for name in self.equation.unknowns:
            condition, encoder = case.slope(name), self._encoder(name)
            if condition.is_homogeneous:
                continue
            values = condition.normal_derivative
            # To ask whether all are zero would wait for a GPU and cut a compiled graph: encoding zeros costs less.
            unasked = encoder.is_linear and (values.is_cuda or torch.compiler.is_compiling())
            if not unasked and not bool(values.any()):
                continue
            if not encoder.is_linear:
                raise ValueError(
                    f"The normal derivative of {name!r} is prescribed and not zero, but the encoder is not linear: a "
                    "derivative does not pass through it. Use the default, Encoder.linear."
                )
            encoded[name] = encoder(values)
        return encoded

    def _encoder(self, name: str) -> Encoder:
        encoder = self.encoders[name]
        assert isinstance(encoder, Encoder)
        return encoder

    def _encode_initial(self, name: str, case: Case) -> Tensor:
        encoded = self._encoder(name)(case.initial[name])
        if self.boundary_features:
            encoded = encoded + self.boundary_encoders[name](case.dirichlet[name])
        return encoded

    def _decode(self, name: str, values: Tensor, case: Case) -> Tensor:
        if self.decoder == "mlp":
            return self.decoders[name](values)
        decoded = self._encoder(name).decode(values)
        if self.decoder == "pseudoinverse":
            return decoded
        prescribed = case.dirichlet[name].mask.reshape(-1, *[1] * (decoded.ndim - 1))
        return decoded + torch.where(prescribed, 0.0, self.decoders[name](values))


def _series(case: Case, times: tuple[float, ...], started: Started, frames: list[dict[str, Tensor]]) -> Prediction:
    """The prediction whose fields at each time are known."""
    stacked = {
        name: (values if len(times) == 1 else torch.stack([frame[name] for frame in frames], dim=-1))
        for name, values in frames[0].items()
    }
    balance = {name: stacked.pop(name, each) for name, each in started.balance.items()}
    fields = {name: values.to(case.initial[name]) for name, values in stacked.items()}
    settled = case.over(times) if case.changes_with_time else case
    return Prediction(settled.fulfilled(fields), started.solutions, {}, started.coarser, balance, started.finer)


def _encoder_of(given: Encoder | Literal["linear", "mlp"], name: str, width: int) -> Encoder:
    if isinstance(given, Encoder):
        return given
    if given == "linear":
        return Encoder.linear(width)
    if given == "mlp":
        return Encoder((1, max(width // 2, 4), width))
    raise ValueError(f'encoders[{name!r}] is {given!r}; it may be "linear", "mlp" or an Encoder.')


def _refuse_overflow_of_half_precision(fields: Mapping[str, Tensor]) -> None:
    """Numbers beyond 65,504 are infinite in float16, and second derivatives on fine meshes are larger than that."""
    device = next(iter(fields.values())).device.type
    if not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) != torch.float16:
        return
    if not all(bool(torch.isfinite(values).all()) for values in fields.values()):
        raise FloatingPointError(
            "Under autocast to float16 the network's numbers overflowed: the fields are not finite. Use bfloat16, "
            "torch.autocast(..., dtype=torch.bfloat16), or no autocast."
        )


def _largest_error(case: Case, name: str, values: Tensor) -> Tensor:
    condition = case.dirichlet[name]
    return (values - condition.apply(values)).detach().abs().amax()
