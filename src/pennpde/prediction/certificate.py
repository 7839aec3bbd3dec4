"""What a prediction guarantees, measured on the prediction itself.

Nobody should have to believe a network. Every prediction comes with the errors that can be had without the truth: on
the conditions (those of Dirichlet are zero by construction, and checked), in mass, in the solver, and how far the case
lies from the training data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from pennpde import metrics
from pennpde.case import Case, Dirichlet
from pennpde.case.units import facet_velocity
from pennpde.network import PENN, Prediction
from pennpde.operators import Operators
from pennpde.prediction.ranges import Comparison, Ranges, compare, describe

_LARGE_IMBALANCE = 0.05
_DIVERGENCE_AGAINST_TRUTH = 3.0


@dataclass(frozen=True)
class Flux:
    """Volume that crosses the boundary in a unit of time, from the values at the points."""

    inward: float
    outward: float

    @property
    def imbalance(self) -> float:
        """What is lost or gained, as a share of the larger of the two."""
        largest = max(self.inward, self.outward)
        return abs(self.outward - self.inward) / largest if largest > 0 else 0.0


@dataclass(frozen=True)
class Certificate:
    """Measured guarantees of one prediction.

    Attributes:
        dirichlet: By unknown, the largest deviation from a prescribed value. Zero.
        round_off: The same in the units of the network and before the last correction: what its decoder left.
        neumann: By unknown, the root mean square of the normal derivative's deviation, with a gradient that does not
            know the condition.
        neumann_of_cell: The same times the size of a cell, over the span of the field: the share of the span by which
            the point behind the boundary is off.
        divergence: Root mean square of div u times cell size over the largest speed: the share of a cell's throughput
            that does not add up. None without a velocity.
        divergence_of_truth: The same of the target, where there is one: the interpolated truth has one, too.
        flux: In and out. None without a velocity.
        residuals: Of the nonlinear solver before each iteration, time step by time step.
        converged: Whether the solver's residual fell below its tolerance, or to a thousandth where it has none. A
            network has as many iterations as it was trained with, so it need not.
        diverged: Whether it grew beyond bounds, or a value is not finite.
        compared: The numbers of the case beside what the network was trained on; empty where that is not known.
        warnings: Sentences about what a user should know before trusting the fields.
        notes: Sentences about how they were made, where that is not as usual.
    """

    dirichlet: dict[str, float]
    round_off: dict[str, float]
    neumann: dict[str, float]
    neumann_of_cell: dict[str, float]
    divergence: float | None
    divergence_of_truth: float | None
    flux: Flux | None
    residuals: tuple[tuple[float, ...], ...]
    converged: bool
    diverged: bool
    compared: tuple[Comparison, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def behaviour(self) -> dict[str, float]:
        """What tells, without the truth, whether a network does what it did in training."""
        grown = [history[-1] / history[0] for history in self.residuals if history and history[0] > 0]
        numbers = {"growth of the solver's residual": max(grown)} if grown else {}
        if self.divergence is not None:
            numbers["divergence over a cell's throughput"] = self.divergence
        return numbers

    def as_dict(self) -> dict[str, Any]:
        """The certificate in JSON's terms; what is not finite is None."""
        record = asdict(self)
        if self.flux is not None:
            record["flux"]["imbalance"] = self.flux.imbalance
        record["compared"] = {
            each.name: {"value": each.value, "trained_on": [each.low, each.high], "inside": each.inside}
            for each in self.compared
        }
        return _plain(record)

    def lines(self) -> list[str]:
        """The certificate for people."""
        rows = [(f"largest error on prescribed {name}", f"{error:.1e}") for name, error in self.dirichlet.items()]
        rows += [
            (f"normal derivative of {name}", f"off by {error:.1e}, {self.neumann_of_cell[name]:.1e} of its span a cell")
            for name, error in self.neumann.items()
        ]
        if self.divergence is not None:
            beside = "" if self.divergence_of_truth is None else f" (truth: {self.divergence_of_truth:.1e})"
            rows.append(("divergence", f"{self.divergence:.1e} of a cell's throughput{beside}"))
        if self.flux is not None:
            flux = self.flux
            rows.append(
                ("flux", f"{flux.inward:.4g} in, {flux.outward:.4g} out, {100 * flux.imbalance:.2g} % imbalance")
            )
        iterations = sum(map(len, self.residuals))
        if iterations:
            ends = ", ".join(f"{history[0]:.1e} to {history[-1]:.1e}" for history in self.residuals if history)
            how = "DIVERGED" if self.diverged else "converged" if self.converged else "of a fixed number"
            rows.append(("residual of the neural solver", f"{ends} in {iterations} iterations, {how}"))
        if self.compared:
            inside = sum(each.inside for each in self.compared)
            rows.append(("within the training range", f"{inside} of {len(self.compared)} numbers"))
        else:
            rows.append(("within the training range", "not known: the network does not tell its range"))
        told = [f"  note: {each}" for each in self.notes] + [f"  warning: {each}" for each in self.warnings]
        return [f"  {what:<32}{value}" for what, value in rows] + told


def certify(
    prediction: Prediction,
    case: Case,
    ranges: Ranges | None = None,
    *,
    fields: Mapping[str, Tensor] | None = None,
    compared: Case | None = None,
) -> Certificate:
    """Measure what a prediction keeps of its case.

    Args:
        prediction: From `PENN.solve`.
        case: What the fields are judged by.
        ranges: What the network was trained on (`ranges.spanned`), to warn outside of it.
        fields: What is handed out, where that is not the prediction itself but the same in other units: those of
            `case`.
        compared: Then the case in the units of the network, to be compared with the ranges.
    """
    judged = {name: values.detach().cpu() for name, values in (fields or prediction.fields).items()}
    dirichlet = {
        name: _largest_deviation(values, case.dirichlet[name])
        for name, values in judged.items()
        if name in case.dirichlet and bool(case.dirichlet[name].mask.any())
    }
    # A time series is judged by its last field.
    last = {
        name: (values[..., -1] if values.ndim > case.initial[name].ndim else values).to(case.mesh.points)
        for name, values in judged.items()
    }
    finite = all(bool(torch.isfinite(values).all()) for values in judged.values())
    # Those of the case were made to agree with its Neumann conditions: they would judge in their own favour.
    operators = Operators.on(case.mesh, singular="pseudoinverse")
    held = [name for name in last if name in case.neumann and bool(case.neumann[name].mask.any())]
    neumann = {name: _normal_derivative_error(last[name], case, name, operators) for name in held}
    divergence = flux = of_truth = None
    velocity = last.get("u") if "u" in case.initial and case.initial["u"].ndim == 2 else None
    if velocity is not None:
        divergence = _divergence(velocity, case, operators)
        flux = boundary_flux(velocity, case)
        truth = case.targets.get("u")
        if truth is not None and truth.shape == velocity.shape:
            of_truth = _divergence(truth.to(velocity), case, operators)
    certificate = Certificate(
        dirichlet=dirichlet,
        round_off={name: float(error) for name, error in prediction.round_off.items()},
        neumann={name: error for name, (error, _) in neumann.items()},
        neumann_of_cell={name: share for name, (_, share) in neumann.items()},
        divergence=divergence,
        divergence_of_truth=of_truth,
        flux=flux,
        residuals=tuple(tuple(solution.residuals.amax(dim=1).tolist()) for solution in prediction.solutions),
        converged=finite and all(bool(solution.converged.all()) for solution in prediction.solutions),
        diverged=not finite or any(bool(solution.diverged.any()) for solution in prediction.solutions),
    )
    if ranges:
        numbers = describe(compared or case) | certificate.behaviour
        certificate = replace(certificate, compared=compare(numbers, ranges))
    return replace(certificate, warnings=tuple(_warnings(certificate)))


def certify_interpolated(
    prediction: Prediction,
    predicted: Case,
    case: Case,
    ranges: Ranges | None = None,
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
        fields: What is handed out, in the units of `case`.
    """
    seen, given = certify(prediction, predicted, ranges), certify(prediction, case, fields=fields)
    certificate = replace(given, compared=seen.compared)
    return replace(certificate, warnings=tuple(_warnings(certificate)))


def behaviour_range(model: PENN, cases: Iterable[Case]) -> dict[str, tuple[float, float]]:
    """How a network behaves on cases that it is good at, such as those of validation: a part of its `Ranges`.

    A case may look like those of training in every number and still not be like them; then the solver or the mass
    balance tells.
    """
    seen: dict[str, list[float]] = {}
    for case in cases:
        with torch.inference_mode():
            certificate = certify(model.solve(case), case)
        for name, value in certificate.behaviour.items():
            seen.setdefault(name, []).append(value if math.isfinite(value) else math.inf)
    # Not the largest: the network may have failed on one of them. And smaller is never worse.
    limits = {name: 1.25 * sorted(values)[(9 * len(values) - 1) // 10] for name, values in seen.items()}
    return {name: (0.0, limit) for name, limit in limits.items() if math.isfinite(limit)}


def _largest_deviation(values: Tensor, condition: Dirichlet) -> float:
    # In the precision of the field: a float32 cannot be a prescribed 0.1 of more digits.
    return float((values - condition.apply(values))[condition.mask].abs().amax())


def boundary_flux(velocity: Float[Tensor, "points space"], case: Case) -> Flux:
    """Flux of a velocity through the exterior facets of a case."""
    mean, _ = facet_velocity(velocity, case.mesh, case.dirichlet["u"].mask)
    through = (mean * case.mesh.facet_areas).sum(dim=1)
    return Flux(float(through[through < 0].abs().sum()), float(through[through > 0].sum()))


def _normal_derivative_error(values: Tensor, case: Case, name: str, operators: Operators) -> tuple[float, float]:
    condition = case.neumann[name]
    error = metrics.neumann_squared_error(operators.grad(values), condition)
    sizes = case.mesh.point_volumes[condition.mask] ** (1 / case.space)
    flat = values.reshape(len(values), -1)
    span = float((flat.amax(dim=0) - flat.amin(dim=0)).norm())
    of_cell = float((error * sizes.square()).mean().sqrt())
    return float(error.mean().sqrt()), of_cell / span if span > 0 else 0.0


def _divergence(velocity: Float[Tensor, "points space"], case: Case, operators: Operators) -> float:
    """Weighted by volume; a cell's throughput is its size to the power of space - 1 times the speed."""
    volumes = case.mesh.point_volumes
    largest = float(velocity.norm(dim=1).amax())
    if largest == 0:
        return 0.0
    relative = operators.div(velocity) * volumes ** (1 / case.space) / largest
    return float(((volumes * relative.square()).sum() / volumes.sum()).sqrt())


def _warnings(certificate: Certificate) -> list[str]:
    warnings = []
    if certificate.diverged:
        warnings.append("The neural solver diverged: do not use these fields.")
    for name, error in certificate.dirichlet.items():
        if error != 0:  # NaN as well
            warnings.append(f"A prescribed value of {name} is missed by {error:.1e}; this network does not keep them.")
    if certificate.flux is not None and certificate.flux.imbalance > _LARGE_IMBALANCE:
        warnings.append(f"In- and outflow differ by {100 * certificate.flux.imbalance:.0f} %.")
    own, of_truth = certificate.divergence, certificate.divergence_of_truth
    if own is not None and of_truth is not None and own > _DIVERGENCE_AGAINST_TRUTH * of_truth:
        warnings.append(f"The divergence is {own / of_truth:.1f} times the truth's own.")
    return warnings + [f"{str(each)[0].upper()}{str(each)[1:]}" for each in certificate.compared if not each.inside]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
