"""`Equation`: the part that a user writes, the unknowns and their rate of change in the encoded space."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from pennpde.case import Case, Condition
from pennpde.case.units import Units
from pennpde.operators import Operators
from pennpde.operators.damping import Damping
from pennpde.penn.dirichlet import apply_dirichlet
from pennpde.penn.encoder import Encoder
from pennpde.penn.solver import State

# `Physics`: what is known about an equation, whatever network solves it.
#
# Its declarations serve prediction, training range, certificate, pictures and OpenFOAM, which need no field names.


OUTFLOW, VISCOUS, PRESSED, DISSIPATION = "outflow", "viscous force", "pressure force", "dissipation"
BALANCE = (OUTFLOW, VISCOUS, PRESSED, DISSIPATION)
"""Next to fields, what the balance of a scheme gives: by facet of the boundary what leaves through it and the forces on
it, and what is dissipated in the whole domain."""
SCALAR, VECTOR, TENSOR = 0, 1, 2
"""Ranks of an unknown."""
_SMALLEST = 1e-6


@dataclass(frozen=True)
class FoamName:
    """An unknown as OpenFOAM calls it.

    Attributes:
        name: Of the field's file, such as "U".
        dimensions: Powers of kilogram, metre, second, kelvin, mole, ampere and candela.
        has_reference: Whether `system/fvSolution` fixes its level (pRefCell, pRefValue) where no patch prescribes it.
        has_flux: Whether it is the velocity of an incompressible fluid, whose flux solvers store as `phi`.
    """

    name: str
    dimensions: tuple[int, ...]
    has_reference: bool = False
    has_flux: bool = False


@dataclass(frozen=True)
class Look:
    """How an unknown is drawn; a vector by its length.

    Attributes:
        title: Above the picture.
        signed: Whether its sign matters, so that the colours diverge from zero.
        unit: In SI units.
    """

    title: str
    signed: bool = False
    unit: str = ""


@dataclass(frozen=True)
class Check:
    """A quantity measured on predicted fields without the true solution. Smaller is better.

    Attributes:
        name: What is measured.
        value: The number.
        text: The number in words, for people.
        limit: Above it the fields are wrong; None where only a person can judge.
        warning: The sentence to print above the limit.
        training_name: How its range in training is recorded; empty: it is not compared with training.
    """

    name: str
    value: float
    text: str
    limit: float | None = None
    warning: str = ""
    training_name: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether the value is within its limit; None where it has none."""
        return None if self.limit is None else self.value <= self.limit  # NaN does not pass


@dataclass(frozen=True)
class Clue:
    """A number that says something about the error of a prediction and is measured without the true solution.

    Attributes:
        name: What is measured.
        value: On a scale on which differences count: of sizes the logarithm, see `logarithm`.
        worse: Whether a larger value can only mean a larger error; otherwise it just tells cases apart.
        remedy: What a user can do about a large value; empty: nothing.
    """

    name: str
    value: float
    worse: bool = True
    remedy: str = ""

    @classmethod
    def of_size(cls, name: str, size: float, *, worse: bool = True, remedy: str = "") -> Clue:
        """A clue from a size that is zero or positive, by its decimal logarithm."""
        return cls(name, logarithm(size), worse, remedy)


def logarithm(size: float) -> float:
    """The decimal logarithm of a size, between those of 1e-6 and 1e6; of what is not finite the largest."""
    largest = 1.0 / _SMALLEST
    return math.log10(largest if math.isnan(size) else min(max(size, _SMALLEST), largest))


class Physics:
    """Unknowns, units, derived inputs, characteristic numbers, checks and OpenFOAM's names of an equation.

    All has defaults that fit any equation.
    """

    unknowns: ClassVar[Mapping[str, int]]
    foam_fields: ClassVar[Mapping[str, FoamName]] = {}
    """By unknown, its field in OpenFOAM. Without them no OpenFOAM case can be read or written."""
    foam_parameters: ClassVar[Mapping[str, str]] = {}
    """By parameter, the entry of `constant/transportProperties`, or else the field that is the same everywhere."""
    foam_solvers: ClassVar[tuple[str, ...]] = ()
    """OpenFOAM's programs that solve this equation; a case for another one gets a warning. None: not known."""
    own_start: ClassVar[str] = ""
    """What networks of this equation are trained to start from, in words, where it is not any field."""
    looks: ClassVar[Mapping[str, Look]] = {}
    """By unknown, how it is drawn, where that is not by its plain name."""
    headline: ClassVar[tuple[str, ...]] = ()
    """Which of the numbers of `describe` are worth a place in a summary, such as the Reynolds number."""

    def complete(self, case: Case) -> Case:
        """The case with derived inputs of the network added, such as distances or a start field."""
        return case

    def units(self, case: Case, length: float | None = None, speed: float | None = None) -> Units | None:  # noqa: ARG002
        """The units in which the network sees a case; None: as it is.

        Args:
            case: In the user's units.
            length: The reference length, where the user gives it.
            speed: The reference speed, likewise.
        """
        return None

    def training_units(self, case: Case) -> Units | None:
        """The units in which training and evaluation see a case: by default those of prediction."""
        return self.units(case)

    def describe(self, case: Case) -> dict[str, float]:  # noqa: ARG002
        """Characteristic numbers of a case in the network's units; their range in training is recorded."""
        return {}

    def uncalibrated(self, case: Case) -> str:  # noqa: ARG002
        """Why errors of predictions of such a case are not known, whatever the network's calibration; else nothing."""
        return ""

    def kind(self, case: Case, time: float) -> str:  # noqa: ARG002
        """Which kind of case it is at a time: the bound of an expected error is learned for each kind."""
        return ""

    def free_levels(self, case: Case) -> Collection[str]:  # noqa: ARG002
        """Unknowns of which only differences between points mean something, such as the pressure in a closed vessel.

        A value may be prescribed at a single point to choose one of the solutions; errors leave that choice out.
        """
        return ()

    def checks(
        self,
        case: Case,  # noqa: ARG002
        fields: Mapping[str, Tensor],  # noqa: ARG002
        operators: Operators,  # noqa: ARG002
    ) -> Sequence[Check]:
        """Quantities measured on predicted fields without the true solution, such as the mass balance.

        Args:
            case: What was predicted, in the user's units.
            fields: The prediction, of a time series the last; with `OUTFLOW` where the network has its own balance.
            operators: Of the mesh, without knowledge of any condition: they do not judge in the network's favour.
        """
        return ()

    def clues(
        self,
        case: Case,  # noqa: ARG002
        fields: Mapping[str, Tensor],  # noqa: ARG002
        operators: Operators,  # noqa: ARG002
    ) -> Sequence[Clue]:
        """Numbers from which the error of predicted fields is estimated, such as residuals of the equation.

        What holds for any equation (smoothness of the fields, the mesh, the training range) is measured anyway.

        Args:
            case: What was predicted, in the network's units.
            fields: The prediction at one time, likewise; with `OUTFLOW` as for `checks`.
            operators: Of the mesh, without knowledge of any condition.
        """
        return ()

    def error_shape(
        self,
        case: Case,  # noqa: ARG002
        fields: Mapping[str, Tensor],  # noqa: ARG002
        operators: Operators,  # noqa: ARG002
    ) -> Mapping[str, Tensor]:
        """By unknown, where the error of predicted fields is likely to be: a positive number at each point.

        Only its shape counts, not its size. Unknowns that are left out get what linear interpolation between the points
        misses of their own field. For the arguments see `clues`.
        """
        return {}


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
