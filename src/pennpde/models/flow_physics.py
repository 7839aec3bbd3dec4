"""What every network for incompressible flow knows: unknowns, OpenFOAM's names, what is drawn and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from pennpde.case import Case
from pennpde.models.flow_clues import flow_clues, flow_error_shape
from pennpde.models.inlet import FLOW_SOLVERS
from pennpde.models.mass import mass_checks
from pennpde.operators import Operators
from pennpde.penn.hooks import Check, Clue, FoamName, Look
from pennpde.penn.physics import SCALAR, VECTOR, Physics


class FlowPhysics(Physics):
    """Velocity and kinematic pressure. Subclasses complete a case, choose its units and describe it."""

    unknowns: ClassVar = {"u": VECTOR, "p": SCALAR}
    foam_fields: ClassVar = {
        "u": FoamName("U", (0, 1, -1, 0, 0, 0, 0), has_flux=True),
        "p": FoamName("p", (0, 2, -2, 0, 0, 0, 0), has_reference=True),
    }
    foam_parameters: ClassVar = {"viscosity": "nu"}
    foam_solvers: ClassVar = FLOW_SOLVERS
    looks: ClassVar = {"u": Look("speed |u|"), "p": Look("pressure p", signed=True)}
    headline: ClassVar = ("Reynolds number",)

    def free_levels(self, case: Case) -> tuple[str, ...]:
        return ("p",) if int(case.dirichlet["p"].mask.sum()) <= 1 else ()

    def checks(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Check]:
        return mass_checks(case, fields["u"], operators)

    def clues(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> list[Clue]:
        return flow_clues(case, fields, operators)

    def error_shape(self, case: Case, fields: Mapping[str, Tensor], operators: Operators) -> dict[str, Tensor]:
        return flow_error_shape(case, fields, operators)
