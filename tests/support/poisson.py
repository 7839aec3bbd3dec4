"""Direct solves with the operators of a case, for conditions to be held against analytic solutions."""

import torch
from scipy.sparse.linalg import spsolve

from pennpde.case import Case


def solve_poisson(case: Case, source: torch.Tensor, name: str = "T", damping: float = 0.25) -> torch.Tensor:
    """-lap f = source with the conditions of the case: the operators' own, prescribed values, copies of points."""
    operators = case.operators[name].composed(damping)
    assert operators.composed_laplacian is not None
    matrix = operators.composed_laplacian.to_scipy().tolil()
    nothing, derivative = torch.zeros_like(source), case.slope(name).normal_derivative
    right = -(source + operators.laplacian(nothing, derivative)).numpy()
    if name in case.periodic:
        for point in case.periodic[name].copies.nonzero()[:, 0].tolist():
            matrix[point] = 0
            matrix[point, point], matrix[point, int(case.periodic[name].points[point])] = 1, -1
            right[point] = case.periodic[name].shift[point]
    for point in case.dirichlet[name].mask.nonzero()[:, 0].tolist():
        matrix[point] = 0
        matrix[point, point], right[point] = 1, case.dirichlet[name].values[point]
    return torch.from_numpy(spsolve(matrix.tocsc(), right))
