"""What tells the error of a predicted flow without the truth: how well the fields fulfil the equations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.models.mass import boundary_flux
from pennpde.operators import Operators
from pennpde.penn.hooks import Clue

BACKFLOW = "fluid that flows back through outlets"
_HARDLY = 0.01
"""Less of what enters than this is as good as nothing."""


def flow_clues(case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Clue]:
    """Residuals of mass, momentum and pressure, resolution of the layers, Reynolds number and inlet.

    The momentum's residual contains the acceleration of the flow: in an unsteady state it is not an error. The
    pressure's equation, div(u . grad u + grad p) = 0, holds at any time.

    Args:
        case: In units of the inlet's width and speed, so that its viscosity is one over the Reynolds number.
        fields: Velocity and pressure, likewise.
        operators: Of the mesh.
    """
    velocity, pressure = fields["u"], fields["p"]
    viscosity = float(case.parameters["viscosity"])
    volumes = case.mesh.point_volumes.to(velocity)
    sizes = volumes ** (1 / case.space)
    speed = velocity.norm(dim=1)
    typical = _mean_square(speed, volumes) or 1.0
    jacobian = operators.grad(velocity)
    advection = torch.einsum("pj,pji->pi", velocity, jacobian)
    inviscid = advection + operators.grad(pressure)
    inside = torch.from_numpy(np.setdiff1d(np.arange(case.number_of_points), case.mesh.boundary_points))
    inside = inside if len(inside) else torch.arange(case.number_of_points)

    def within(values: Tensor) -> float:
        return math.sqrt(_mean_square(values[inside], volumes[inside]))

    divergence = within(jacobian.diagonal(dim1=1, dim2=2).sum(dim=1) * sizes) / math.sqrt(typical)
    momentum = inviscid - viscosity * operators.laplacian(velocity)
    return [
        Clue.of_size("divergence of u", divergence),
        Clue.of_size("residual of momentum", within(momentum.norm(dim=1) * sizes) / typical),
        Clue.of_size("residual of the pressure's equation", within(operators.div(inviscid) * sizes**2) / typical),
        Clue.of_size("Reynolds number of a cell", within(speed * sizes) / viscosity, remedy="a finer mesh"),
        # A layer that grew along one reference length is 5 L / sqrt(Re) thick.
        Clue.of_size(
            "cell size over the thickness of a layer", within(sizes) / math.sqrt(viscosity), remedy="a finer mesh"
        ),
        # Errors are relative to the norm of p. Where losses and recovery nearly cancel, it is small against what the
        # flow balances, which is of the size of speed squared; errors of that do not cancel.
        Clue.of_size("speed squared over pressure", typical / (math.sqrt(_mean_square(pressure, volumes)) or 1.0)),
        # Nothing prescribes what comes back: no second solution, on whatever cells, sees what that changes.
        Clue.of_size(
            BACKFLOW,
            _HARDLY + boundary_flux(velocity, case).backflow,
            remedy="an outlet further downstream",
        ),
        Clue.of_size("largest speed", float(speed.amax()), worse=False),
        Clue.of_size("Reynolds number", 1.0 / viscosity, worse=False),
    ]


def flow_error_shape(case: Case, fields: Mapping[str, Tensor], operators: Operators) -> dict[str, Tensor]:
    """Where velocity and pressure are likely to be wrong: what linear interpolation misses of the pressure.

    On trials with truth it agrees better with the error of both (rank correlation 0.6 with that of the velocity) than
    the same of the velocity (0.3): velocity is rough in layers that the scheme resolves, pressure at edges and corners
    from which errors spread.
    """
    sizes = case.mesh.point_volumes.to(fields["p"]) ** (1 / case.space)
    shape = sizes.square() * operators.grad(operators.grad(fields["p"])).reshape(len(sizes), -1).norm(dim=1)
    return {"u": shape, "p": shape}


def _mean_square(values: Float[Tensor, " points"], volumes: Float[Tensor, " points"]) -> float:
    return float((volumes * values.square()).sum() / volumes.sum())
