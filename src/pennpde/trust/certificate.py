"""The certificate of a prediction: errors that can be measured without the true solution.

They are the errors on the boundary conditions (zero for Dirichlet by construction, measured all the same), the mass
balance, the residual of the solver, and whether the case lies within the range of the training data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from pennpde import metrics
from pennpde.case import Case, Dirichlet
from pennpde.files import plain
from pennpde.machine import remembered
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.penn import Physics, Prediction, Predictor
from pennpde.penn.equation import OUTFLOW, Check

# The training range of a network: characteristic numbers of its training cases, and whether a case lies within.
#
# A case within the range need not be like the training cases, but a case outside of it certainly is not.


Ranges = Mapping[str, tuple[float, float]]

_SLACK = 0.05
"""Relative: no network breaks down a few percent beyond its data, and no mesh is quite as fine as was asked for."""
_ZERO = 1e-6
"""Absolute: rounding errors of a number that was zero in training. Cases are compared in units that make them one."""
_FARTHEST = 100.0
"""No number is further outside than this: beyond it, how far no longer matters."""
_SMALLER_IS_BETTER = ("mean stretching of cells",)
"""Numbers whose range has no lower end: good triangles are less stretched than those of training."""


@dataclass(frozen=True)
class Comparison:
    """One number of a case and its range in training."""

    name: str
    value: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        below, above = (_SLACK * abs(end) + _ZERO for end in (self.low, self.high))
        return (self.name in _SMALLER_IS_BETTER or self.low - below <= self.value) and self.value <= self.high + above

    @property
    def beyond(self) -> float:
        """How far the value lies outside, in units of the range's own size; zero inside."""
        if self.inside:
            return 0.0
        one = max(self.high - self.low, _SLACK * max(abs(self.low), abs(self.high)), _ZERO)
        away = max(self.low - self.value, self.value - self.high) / one
        return _FARTHEST if math.isnan(away) else min(away, _FARTHEST)

    def __str__(self) -> str:
        trained = f"only at {self.low:.4g}" if self.low == self.high else f"on {self.low:.4g} to {self.high:.4g}"
        return f"{self.name.replace('_', ' ')} is {self.value:.4g}; the network was trained {trained}."


def describe(case: Case, equation: Physics | None = None) -> dict[str, float]:
    """The numbers of one case: dimensions, sizes of domain and cells, parameters, conditions, features, start.

    Args:
        case: In the units of the network.
        equation: What it knows about the case comes last.
    """
    numbers = dict(describe_mesh(case.mesh))
    for name, value in case.parameters.items():
        numbers[f"parameter {name}"] = float(value.reshape(-1).norm())
    for name, start in case.initial.items():
        held = case.dirichlet[name].mask
        numbers[f"largest prescribed {name}"] = _largest(case.dirichlet[name].values)
        numbers[f"largest normal derivative of {name}"] = _largest(case.neumann[name].normal_derivative)
        free = start[~held].reshape(int((~held).sum()), -1)
        numbers[f"typical {name} at the start"] = float(free.square().sum(dim=1).mean().sqrt()) if len(free) else 0.0
        if start.ndim > 1:
            slipping = case.slip[name].mask & ~held if name in case.slip else held.new_zeros(())
            numbers[f"share of boundary points where {name} slips"] = float(slipping.sum()) / len(
                case.mesh.boundary_points
            )
    for name, values in case.features.items():
        numbers[f"largest {name}"] = _largest(values)
    return numbers if equation is None else numbers | equation.describe(case)


@remembered  # asked for by the certificate and the expected error
def describe_mesh(mesh: Mesh) -> Mapping[str, float]:
    """Mesh-only quantities; squares have 8 neighbours, triangles 6."""
    volumes = mesh.point_volumes
    numbers = {
        "space": float(mesh.space),
        "domain size": float(volumes.sum()) ** (1 / mesh.space),
        "mean cell size": float(volumes.mean()) ** (1 / mesh.space),
        "typical number of neighbours": mesh.geometry.topology.typical_neighbours,
        "mean stretching of cells": mesh.stretching,
    }
    return MappingProxyType(numbers)  # shared by all who ask


def spanned(cases: Iterable[Case], equation: Physics | None = None) -> dict[str, tuple[float, float]]:
    """The range of every number over the training cases, with those that the equation knows."""
    ranges: dict[str, tuple[float, float]] = {}
    for case in cases:
        for name, value in describe(case, equation).items():
            low, high = ranges.get(name, (value, value))
            ranges[name] = (min(low, value), max(high, value))
    return ranges


def checked(given: Any, where: str = "The training range") -> dict[str, tuple[float, float]]:
    """Ranges as they were stored, such as in a network's configuration; an error names what is none."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{where} is {given!r}; it must have a lowest and a highest value for each number.")
    ranges = {}
    for name, ends in given.items():
        sound = isinstance(ends, list | tuple) and len(ends) == 2 and all(_is_number(end) for end in ends)
        if not sound or ends[0] > ends[1]:
            raise ValueError(f"{where} of {name!r} is {ends!r}; it must be a lowest and a highest value.")
        ranges[str(name)] = (float(ends[0]), float(ends[1]))
    return ranges


def compare(numbers: Mapping[str, float], ranges: Ranges) -> tuple[Comparison, ...]:
    """Every number, as `describe` gives them, that has a training range, with this range."""
    return tuple(Comparison(name, value, *ranges[name]) for name, value in numbers.items() if name in ranges)


def outside(case: Case, ranges: Ranges, equation: Physics | None = None) -> list[str]:
    """One sentence for every number of the case that the training cases did not span."""
    return [str(each) for each in compare(describe(case, equation), ranges) if not each.inside]


def _largest(values: Tensor) -> float:
    return float(values.reshape(len(values), -1).norm(dim=1).amax())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_GROWTH = 1.4
"""Of the solver's residual from its first iteration to its last. On validation cases of the flow set it was 0.96 to
1.14, on triangles, which no network was trained on, 1.5 to 25."""


@dataclass(frozen=True)
class Certificate:
    """Quantities measured on one prediction.

    Attributes:
        dirichlet: By unknown, the largest deviation from a prescribed value. Zero.
        round_off: The same in the units of the network and before the last correction: what its decoder left.
        neumann: By unknown, the root mean square of the normal derivative's deviation, with a gradient that does not
            know the condition.
        neumann_of_cell: The same times the size of a cell, over the span of the field: the share of the span by which
            the point behind the boundary is off.
        checks: What the equation measures on the fields (`Physics.checks`), such as the balance of mass.
        residuals: Of the nonlinear solver before each iteration, time step by time step.
        converged: Whether the solver's residual fell below its tolerance, or to a thousandth where it has none. A
            network has as many iterations as it was trained with, so it need not.
        diverged: Whether it grew beyond bounds, or a value is not finite.
        compared: The numbers of the case and their range in training; empty where that is not known.
        warnings: Sentences about what a user should know before trusting the fields.
        notes: Sentences about how they were made, where that is not as usual.
    """

    dirichlet: dict[str, float]
    round_off: dict[str, float]
    neumann: dict[str, float]
    neumann_of_cell: dict[str, float]
    checks: tuple[Check, ...]
    residuals: tuple[tuple[float, ...], ...]
    converged: bool
    diverged: bool
    compared: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        failed = [each.name for each in self.checks if each.passed is False]
        told = f"failed: {', '.join(failed)}" if failed else f"{len(self.checks)} checks"
        return f"Certificate({told}; {len(self.warnings)} warnings; its lines() are for people)"

    @property
    def residual_grew(self) -> bool:
        """Whether the solver's residual ended larger than it does on cases like those of training."""
        history = [value for each in self.residuals for value in each]
        return bool(history) and not history[-1] <= _GROWTH * history[0]  # NaN counts as grown

    @property
    def behaviour(self) -> dict[str, float]:
        """Quantities that show, without the true solution, whether a network behaves as in training."""
        grown = [history[-1] / history[0] for history in self.residuals if history and history[0] > 0]
        numbers = {"growth of the solver's residual": max(grown)} if grown else {}
        return numbers | {each.training_name: each.value for each in self.checks if each.training_name}

    @property
    def outside(self) -> list[str]:
        """One sentence for every number outside of the training range."""
        return [f"{str(each)[0].upper()}{str(each)[1:]}" for each in self.compared if not each.inside]

    def check(self, name: str) -> Check:
        """One of the checks, by name."""
        for each in self.checks:
            if each.name == name:
                return each
        raise KeyError(f"The certificate has no check {name!r}; it has {[each.name for each in self.checks]}.")

    def as_dict(self) -> dict[str, Any]:
        """The certificate in JSON's terms; what is not finite is None."""
        record = asdict(self)
        record["checks"] = {
            each.name: {"value": each.value, "limit": each.limit, "passed": each.passed} for each in self.checks
        }
        record["compared"] = {
            each.name: {"value": each.value, "trained_on": [each.low, each.high], "inside": each.inside}
            for each in self.compared
        }
        return plain(record)

    def lines(self, warnings: bool = True) -> list[str]:
        """The certificate as lines of text; without its notes and warnings where those are printed elsewhere."""
        rows = [(f"largest error on prescribed {name}", f"{error:.1e}") for name, error in self.dirichlet.items()]
        rows += [
            (f"normal derivative of {name}", f"{100 * self.neumann_of_cell[name]:.2g} % of the field's range per cell")
            for name in self.neumann
        ]
        rows += [(each.name, each.text) for each in self.checks]
        iterations = sum(map(len, self.residuals))
        if iterations:
            ends = ", ".join(f"{history[0]:.1e} to {history[-1]:.1e}" for history in self.residuals if history)
            how = "DIVERGED" if self.diverged else "converged" if self.converged else "fixed count"
            rows.append(("residual of the neural solver", f"{ends}, {iterations} iterations ({how})"))
        if self.compared:
            inside = sum(each.inside for each in self.compared)
            rows.append(("within the training range", f"{inside} of {len(self.compared)} numbers"))
        else:
            rows.append(("within the training range", "unknown: the network does not record its training range"))
        told = [f"  note: {each}" for each in self.notes] + [f"  warning: {each}" for each in self.warnings]
        return [f"  {what:<32}{value}" for what, value in rows] + (told if warnings else [])


def certify(
    prediction: Prediction,
    case: Case,
    ranges: Ranges | None = None,
    equation: Physics | None = None,
    *,
    fields: Mapping[str, Tensor] | None = None,
    compared: Case | None = None,
    operators: Operators | None = None,
) -> Certificate:
    """Measure a prediction against its case.

    Args:
        prediction: From `Predictor.solve`.
        case: The case that the fields are measured against; with time-dependent conditions, `case.over(times)`.
        ranges: The training range (`certificate.spanned`), for warnings outside of it.
        equation: What it checks on the fields and knows about the case; None: only what holds for any equation.
        fields: What is handed out, where that is not the prediction itself but the same in other units: those of
            `case`, in which `prediction.outflow` is then as well.
        compared: Then the case in the units of the network, to be compared with the ranges.
        operators: Plain ones of the mesh, where they are known already.
    """
    judged = {name: values.detach().cpu() for name, values in (fields or prediction.fields).items()}
    dirichlet = {
        name: _largest_deviation(values, case.dirichlet[name])
        for name, values in judged.items()
        if name in case.dirichlet and bool(case.dirichlet[name].mask.any())
    }
    # Of a time series the last field is measured.
    last = {
        name: (values[..., -1] if values.ndim > case.initial[name].ndim else values).to(case.mesh.points)
        for name, values in judged.items()
    }
    finite = all(bool(torch.isfinite(values).all()) for values in judged.values())
    if prediction.outflow is not None:
        last[OUTFLOW] = prediction.outflow[..., -1] if prediction.outflow.ndim > 1 else prediction.outflow
    # The operators of the case include its Neumann conditions and would hide their error.
    operators = operators or Operators.on(case.mesh, singular="pseudoinverse")
    held = [name for name in last if name in case.neumann and bool(case.neumann[name].mask.any())]
    neumann = {name: _normal_derivative_error(last[name], case, name, operators) for name in held}
    certificate = Certificate(
        dirichlet=dirichlet,
        round_off={name: float(error) for name, error in prediction.round_off.items()},
        neumann={name: error for name, (error, _) in neumann.items()},
        neumann_of_cell={name: share for name, (_, share) in neumann.items()},
        checks=() if equation is None else tuple(equation.checks(case, last, operators)),
        residuals=tuple(tuple(solution.residuals.amax(dim=1).tolist()) for solution in prediction.solutions),
        converged=finite and all(bool(solution.converged.all()) for solution in prediction.solutions),
        diverged=not finite or any(bool(solution.diverged.any()) for solution in prediction.solutions),
    )
    if ranges:
        numbers = describe(compared or case, equation) | certificate.behaviour
        certificate = replace(certificate, compared=compare(numbers, ranges))
    return replace(certificate, warnings=tuple(_warnings(certificate)))


def certify_interpolated(
    prediction: Prediction,
    predicted: Case,
    case: Case,
    ranges: Ranges | None = None,
    equation: Physics | None = None,
    *,
    fields: Mapping[str, Tensor],
) -> Certificate:
    """The certificate of fields that were predicted on another mesh than that of their case.

    Conditions and mass are measured on the fields that are handed out; the solver, and all that is compared with the
    training, on what the network saw.

    Args:
        prediction: On the other mesh.
        predicted: The case there, in the units of the network.
        case: What the fields are judged by.
        ranges: What the network was trained on.
        equation: As for `certify`.
        fields: What is handed out, in the units of `case`.
    """
    seen = certify(prediction, predicted, ranges, equation)
    given = certify(replace(prediction, balance={}), case, None, equation, fields=fields)
    certificate = replace(given, compared=seen.compared)
    return replace(certificate, warnings=tuple(_warnings(certificate)))


def behaviour_range(model: Predictor, cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """How a network behaves on cases that it is good at, such as those of validation: a part of its `Ranges`.

    A case may look like those of training in every number and still not be like them; then the solver or the mass
    balance shows it.
    """
    seen: dict[str, list[float]] = {}
    for case in cases:
        with torch.inference_mode():
            certificate = certify(model.solve(case), case.over(model.output_times), None, model.equation)
        for name, value in certificate.behaviour.items():
            seen.setdefault(name, []).append(value if math.isfinite(value) else math.inf)
    # Not the largest: the network may have failed on one of them. And smaller is never worse.
    limits = {name: 1.25 * sorted(values)[(9 * len(values) - 1) // 10] for name, values in seen.items()}
    return {name: (0.0, limit) for name, limit in limits.items() if math.isfinite(limit)}


def _largest_deviation(values: Tensor, condition: Dirichlet) -> float:
    # In the precision of the field: a float32 cannot be a prescribed 0.1 of more digits.
    return float((values - condition.apply(values))[condition.mask].abs().amax())


def _normal_derivative_error(values: Tensor, case: Case, name: str, operators: Operators) -> tuple[float, float]:
    condition = case.neumann[name].last()
    error = metrics.neumann_squared_error(operators.grad(values), condition)
    sizes = case.mesh.point_volumes[condition.mask] ** (1 / case.space)
    flat = values.reshape(len(values), -1)
    span = float((flat.amax(dim=0) - flat.amin(dim=0)).norm())
    of_cell = float((error * sizes.square()).mean().sqrt())
    return float(error.mean().sqrt()), of_cell / span if span > 0 else 0.0


def _warnings(certificate: Certificate) -> list[str]:
    warnings = []
    if certificate.diverged:
        warnings.append("The neural solver diverged: do not use these fields.")
    for name, error in certificate.dirichlet.items():
        if error != 0:  # NaN as well
            warnings.append(
                f"A prescribed value of {name} is missed by {error:.1e}; this network does not enforce them."
            )
    warnings += [each.warning for each in certificate.checks if each.passed is False and each.warning]
    return warnings + certificate.outside
