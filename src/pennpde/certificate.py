"""What a prediction guarantees, measured on the prediction itself.

Nobody should have to believe a network. Every prediction comes with the errors that can be had without the truth: on
the conditions (zero by construction, and checked), in mass, in the solver, and how far the case lies from the training
data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde import metrics
from pennpde.conditions import Case
from pennpde.mesh import Mesh
from pennpde.network import Prediction
from pennpde.ranges import Ranges, outside

_LARGE_IMBALANCE = 0.05
_DIVERGENCE_AGAINST_TRUTH = 3.0


@dataclass(frozen=True)
class Flux:
    """Volume that crosses the boundary a second, from the values at the points."""

    inward: float
    outward: float

    @property
    def imbalance(self) -> float:
        """What is lost or gained, as a share of what flows in."""
        return abs(self.outward - self.inward) / max(self.inward, np.finfo(float).tiny)


@dataclass(frozen=True)
class Certificate:
    """Measured guarantees of one prediction.

    Attributes:
        dirichlet: By unknown, the largest deviation from a prescribed value. Zero.
        round_off: The same before the last correction: what the pseudoinverse decoder left.
        neumann: By unknown, the root mean square of the normal derivative's deviation.
        divergence: Root mean square of div u times cell size over the largest speed: the share of a cell's throughput
            that does not add up. None without a velocity.
        divergence_of_truth: The same of the target, where there is one: the interpolated truth has one, too.
        flux: In and out. None without a velocity.
        residuals: Of the nonlinear solver before each iteration, time step by time step.
        converged: Whether the solver's residual fell below its tolerance, or to a thousandth where it has none.
        diverged: Whether it grew beyond bounds.
        warnings: Sentences about what a user should know before trusting the fields.
    """

    dirichlet: dict[str, float]
    round_off: dict[str, float]
    neumann: dict[str, float]
    divergence: float | None
    divergence_of_truth: float | None
    flux: Flux | None
    residuals: list[list[float]]
    converged: bool
    diverged: bool
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        record = asdict(self)
        if self.flux is not None:
            record["flux"]["imbalance"] = self.flux.imbalance
        record["warnings"] = list(self.warnings)
        return record

    def lines(self) -> list[str]:
        """The certificate for people."""
        lines = [f"  largest error on prescribed {name:<22} {error:.1e}" for name, error in self.dirichlet.items()]
        lines += [
            f"  normal derivative of {name}, root mean square    {error:.1e}" for name, error in self.neumann.items()
        ]
        if self.divergence is not None:
            beside = "" if self.divergence_of_truth is None else f"   (truth: {self.divergence_of_truth:.1e})"
            lines.append(f"  divergence, share of a cell's throughput   {self.divergence:.1e}{beside}")
        if self.flux is not None:
            lines.append(
                f"  flux in {self.flux.inward:.4g}, out {self.flux.outward:.4g}, imbalance    {self.flux.imbalance:.1e}"
            )
        last = ", ".join(f"{history[0]:.1e} -> {history[-1]:.1e}" for history in self.residuals if history)
        lines.append(f"  residual of the neural solver              {last}{' DIVERGED' if self.diverged else ''}")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return lines


def certify(prediction: Prediction, case: Case, ranges: Ranges | None = None) -> Certificate:
    """Measure what a prediction keeps of its case.

    Args:
        prediction: From `PENN.solve`.
        case: The case that was solved, in the units of the network.
        ranges: What the network was trained on (`ranges.spanned`), to warn outside of it.
    """
    fields = {name: values.detach().to("cpu", case.mesh.points.dtype) for name, values in prediction.fields.items()}
    dirichlet = {
        name: float(metrics.largest_dirichlet_error(values, case.dirichlet[name]))
        for name, values in fields.items()
        if name in case.dirichlet and bool(case.dirichlet[name].mask.any())
    }
    neumann = {
        name: _normal_derivative_error(values, case, name)
        for name, values in fields.items()
        if name in case.neumann and bool(case.neumann[name].mask.any())
    }
    velocity = fields.get("u") if "u" in case.initial and case.initial["u"].ndim == 2 else None
    divergence = flux = of_truth = None
    if velocity is not None:
        divergence = _divergence(velocity, case)
        flux = boundary_flux(velocity, case.mesh)
        truth = case.targets.get("u")
        if truth is not None and truth.shape == velocity.shape:
            of_truth = _divergence(truth.to(velocity), case)
    residuals = [[float(value) for value in solution.residuals.amax(dim=1)] for solution in prediction.solutions]
    diverged = any(bool(solution.diverged.any()) for solution in prediction.solutions)
    finite = all(bool(torch.isfinite(values).all()) for values in fields.values())
    certificate = Certificate(
        dirichlet=dirichlet,
        round_off={name: float(error) for name, error in prediction.round_off.items()},
        neumann=neumann,
        divergence=divergence,
        divergence_of_truth=of_truth,
        flux=flux,
        residuals=residuals,
        converged=all(bool(solution.converged.all()) for solution in prediction.solutions),
        diverged=diverged or not finite,
        warnings=(),
    )
    warnings = _warnings(certificate) + (outside(case, ranges) if ranges else [])
    return Certificate(**{**certificate.__dict__, "warnings": tuple(warnings)})


def boundary_flux(velocity: Float[Tensor, "points space"], mesh: Mesh) -> Flux:
    """Flux through the exterior facets, the velocity of a facet being the mean of its points'."""
    facets = mesh.facets
    sizes = np.diff(facets.offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    mean = np.stack(
        [
            np.bincount(owner, component[facets.connectivity], minlength=len(sizes)) / sizes
            for component in velocity.numpy().T
        ],
        axis=1,
    )
    through = (mean * mesh.facet_areas.numpy()).sum(axis=1)
    return Flux(float(-through[through < 0].sum()), float(through[through > 0].sum()))


def _normal_derivative_error(values: Tensor, case: Case, name: str) -> float:
    condition = case.neumann[name]
    if values.ndim > case.initial[name].ndim:  # several output times: judge the last
        values = values[..., -1]
    gradient = case.operators[name].grad(values, condition.normal_derivative)
    normals = condition.normals.reshape(*condition.normals.shape, *[1] * (values.ndim - 1))
    error = (normals * gradient).sum(dim=1) - condition.normal_derivative
    return float(error[condition.mask].square().mean().sqrt())


def _divergence(velocity: Float[Tensor, "points space"], case: Case) -> float:
    """Weighted by volume; a cell's throughput is its size to the power of space - 1 times the speed."""
    volumes = case.mesh.point_volumes
    jacobian = case.operators["u"].grad(velocity, case.neumann["u"].normal_derivative)
    divergence = jacobian.diagonal(dim1=1, dim2=2).sum(dim=1)
    relative = divergence * volumes ** (1 / case.space) / velocity.norm(dim=1).amax().clamp_min(1e-12)
    return float(((volumes * relative.square()).sum() / volumes.sum()).sqrt())


def _warnings(certificate: Certificate) -> list[str]:
    warnings = []
    if certificate.diverged:
        warnings.append("The neural solver diverged: do not use these fields.")
    for name, error in certificate.dirichlet.items():
        if error > 0:
            warnings.append(
                f"A prescribed value of {name} is missed by {error:.1e}; this network does not guarantee it."
            )
    if certificate.flux is not None and certificate.flux.imbalance > _LARGE_IMBALANCE:
        warnings.append(f"In- and outflow differ by {100 * certificate.flux.imbalance:.0f} %.")
    own, of_truth = certificate.divergence, certificate.divergence_of_truth
    if own is not None and of_truth is not None and own > _DIVERGENCE_AGAINST_TRUTH * of_truth:
        warnings.append("The divergence is more than three times the truth's own.")
    return warnings
