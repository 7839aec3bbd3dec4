"""`Physics`: what is known about an equation, whatever network solves it.

Its declarations serve prediction, training range, certificate, pictures and OpenFOAM, which need no field names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.operators import Operators
from pennpde.penn.hooks import Check, Clue, FoamName, Look

SCALAR, VECTOR, TENSOR = 0, 1, 2
"""Ranks of an unknown."""


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
            fields: The prediction, of a time series the last.
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
            fields: The prediction at one time, likewise.
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
