"""Gradients of a steady flow's quantities by the discrete adjoint.

The steady state x solves R(x, a) = 0 for the design a. So a quantity J(x, a) has the gradient

    dJ/da = ∂J/∂a - λ·∂R/∂a        with        (∂R/∂x)ᵀ λ = ∂J/∂x

One linear equation per quantity, however many parameters there are. Its matrix is that of the whole residual, upwind
and damping terms included: autograd multiplies by it, and the factors of Newton's nearby matrix precondition GMRES.
∂R/∂a and ∂J/∂a are central differences of the assembled equations at the same x: nothing is solved for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse.linalg import LinearOperator, gmres
from torch import Tensor

from pennpde.case import Case
from pennpde.flow.steady import Residual, factors
from pennpde.study.optimisation.flows import Answer, Fields
from pennpde.study.optimisation.transient import transient_gradients

Measure = Callable[[Fields], Tensor]
"""A number of a flow, in the user's units."""
STEP = 1e-5
"""Of the differences, as a share of each parameter's range."""
_TOLERANCE = 1e-8
_ENOUGH = 1e-5
"""What may be left of the adjoint equation, relative to its right side."""
_LONG = 1e4
"""In pseudo-time: with the nearby matrix of a step that long."""


def value_of(answer: Answer, measure: Measure) -> float:
    with torch.no_grad():
        return float(measure(answer.fields))


def gradients(
    answer: Answer,
    measures: Sequence[Measure],
    case_at: Callable[[np.ndarray], Case],
    design: Float[np.ndarray, " parameters"],
    ranges: Float[np.ndarray, " parameters"],
) -> Float[np.ndarray, "measures parameters"]:
    """The derivatives of quantities with respect to a design's parameters.

    Args:
        answer: The flow of the design.
        measures: The quantities.
        case_at: The case of any design, on the same cells, maybe moved.
        design: The parameters.
        ranges: How far each of them may go: the scale of the differences.
    """
    if answer.flow.family.steps:
        return transient_gradients(answer, measures, case_at, design, STEP * ranges)
    adjoints = _adjoints(answer, measures)
    result = np.zeros((len(measures), len(design)))
    for place, size in enumerate(STEP * ranges):
        along = np.zeros(len(design))
        along[place] = size
        ends = [_at(answer, measures, adjoints, case_at(design + sign * along)) for sign in (1.0, -1.0)]
        result[:, place] = (ends[0] - ends[1]) / (2.0 * size)
    return result


def _at(
    answer: Answer, measures: Sequence[Measure], adjoints: Sequence[np.ndarray], case: Case
) -> Float[np.ndarray, " measures"]:
    """J - λ·R of another case at the same state."""
    with torch.no_grad():
        flow = answer.flow.family.flow(case, like=answer.flow)
        if flow.problem.cells.number_of_points != answer.flow.problem.cells.number_of_points:
            raise ArithmeticError("The cells of this shape are others than those next to it: search without gradients.")
        fields = flow.at(answer.unknowns)
        assert isinstance(fields.residual, Residual), "a steady flow has a residual"
        left = fields.residual.values.numpy()
        return np.array(
            [float(measure(fields)) - adjoint @ left for measure, adjoint in zip(measures, adjoints, strict=True)]
        )


def _adjoints(answer: Answer, measures: Sequence[Measure]) -> list[np.ndarray]:
    equations = answer.flow.equations
    unknowns = answer.unknowns.clone().requires_grad_()
    with torch.enable_grad():
        fields = answer.flow.at(unknowns)
        assert isinstance(fields.residual, Residual), "a steady flow has a residual"
        values = fields.residual.values
        sides = [torch.autograd.grad(each(fields), unknowns, retain_graph=True)[0].numpy() for each in measures]
    with torch.no_grad():
        nearly = factors(equations, equations.residual(answer.unknowns), _LONG)

    def transposed(vector: np.ndarray) -> np.ndarray:
        return torch.autograd.grad(values, unknowns, torch.from_numpy(vector.copy()), retain_graph=True)[0].numpy()

    shape = (len(unknowns), len(unknowns))
    matrix = LinearOperator(shape, transposed)
    nearby = LinearOperator(shape, lambda vector: nearly.solve(vector, trans="T"))
    found = []
    for side in sides:
        adjoint, _ = gmres(matrix, side, rtol=_TOLERANCE, restart=100, maxiter=6, M=nearby)
        left, size = np.linalg.norm(transposed(adjoint) - side), np.linalg.norm(side)
        if not left <= _ENOUGH * size:
            raise ArithmeticError(
                f"The adjoint equation is solved to {left / size:.1e} only: the steady state is close to an unsteady "
                "one. Take a larger viscosity, or search without gradients."
            )
        found.append(adjoint)
    return found
