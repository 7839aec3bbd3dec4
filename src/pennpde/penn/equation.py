"""`Equation`: the part that a user writes, the unknowns and their rate of change in the encoded space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case, Condition
from pennpde.operators import Operators
from pennpde.operators.damping import Damping
from pennpde.penn.dirichlet import apply_dirichlet
from pennpde.penn.encoder import Encoder
from pennpde.penn.physics import Physics
from pennpde.penn.solver import State


@dataclass(frozen=True, eq=False)
class EncodedCase:
    """A case as an equation sees it during a solve: the case itself, plus its boundary values in the encoded space."""

    case: Case
    boundary: State
    """Encoded Dirichlet values; an unknown without Dirichlet layer is absent."""
    physical: Mapping[str, Encoder] = field(default_factory=dict)
    """Unknowns whose Dirichlet values are set in physical space, with the encoder to get there (ablation A)."""
    neumann: State = field(default_factory=dict)
    """Encoded normal derivatives, for linear encoders; an unknown whose normal derivatives are all zero is absent."""
    held: Mapping[str, tuple[Condition, ...]] = field(default_factory=dict)
    """Encoded conditions that act on the state before the Dirichlet layer does, in order."""
    constants: Any = None
    """What `Equation.prepare` made of the case once, before the first iteration."""

    @property
    def operators(self) -> Mapping[str, Operators]:
        return self.case.operators

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        return self.case.parameters

    @property
    def features(self) -> Mapping[str, Tensor]:
        return self.case.features

    def parameter(self, name: str, like: Tensor) -> Tensor:
        return self.case.parameter(name, like)

    def normal_derivative(self, name: str) -> Float[Tensor, "points *axes width"] | None:
        """The encoded Neumann (and Robin) values, for `Operators.grad`; None where they are all zero."""
        return self.neumann.get(name)

    def project(self, state: State) -> dict[str, Tensor]:
        """The conditions on every unknown of the state; last the Dirichlet layer: put the boundary values back."""
        return {name: self._project(name, values) for name, values in state.items()}

    def _project(self, name: str, values: Tensor) -> Tensor:
        for condition in self.held.get(name, ()):
            values = condition.apply(values)
        if name in self.physical:
            encoder = self.physical[name]
            return encoder(self.case.dirichlet[name].apply(encoder.decode(values)))
        if name in self.boundary:
            return apply_dirichlet(values, self.boundary[name], self.case.dirichlet[name].mask)
        return values


class Equation(nn.Module, Physics):
    """du/dt = rate(u): the equation in the encoded space, written with differential operators.

    A subclass names its unknowns with their ranks and gives the rate. Equations that are not a plain evolution, as
    incompressible flow with its pressure, give `step` instead.

    What is known about it besides (`Physics`: `complete`, `units`, `describe`, `checks`, `foam_fields`,
    `foam_parameters`, `foam_solvers`, `looks`, `headline`) has defaults that fit any equation.
    """

    laplacian_damping: float | Damping = 0.0
    """How much `Operators.composed` is to add against modes that alternate from point to point."""

    def prepare(self, case: EncodedCase) -> Any:  # noqa: ARG002
        """Quantities that are constant during a solve, such as encoded geometry; available as `case.constants`."""
        return None

    def rate(self, state: State, case: EncodedCase) -> State:
        """The rate of change of each unknown in the encoded space, `[points, ..., width]`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `rate` nor `step`: give it one of them.")

    def step(self, state: State, start: State, case: EncodedCase, time_step: float) -> State:
        """Where a time step leads from `start` with the rate taken at `state`: implicit Euler where they agree."""
        return {name: start[name] + time_step * rate for name, rate in self.rate(state, case).items()}
