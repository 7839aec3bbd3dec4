"""Boundary conditions of one unknown.

protocol   what every kind has to know
dirichlet  prescribed values, at points and facet by facet; slip: no normal component
neumann    prescribed normal derivatives; Robin: a prescribed mean of value and normal derivative
periodic   pairs of patches that are one
total_pressure  that of fluid at rest outside
profile    values that change along a patch
given      what users give, as tensors; values that change with time
"""

from pennpde.case.conditions.dirichlet import Dirichlet, Slip
from pennpde.case.conditions.given import Course, Table, Value, Varying
from pennpde.case.conditions.neumann import Neumann, Robin
from pennpde.case.conditions.periodic import Across, Periodic
from pennpde.case.conditions.protocol import Condition, Conditions, Reference, Slope
from pennpde.case.conditions.total_pressure import TotalPressure

KINDS: tuple[type[Condition], ...] = (Slip, Periodic, Neumann, Robin, TotalPressure, Dirichlet)
"""In the order in which they act: a prescribed value has the last word, and a later normal derivative counts."""

__all__ = [
    "KINDS",
    "Across",
    "Condition",
    "Conditions",
    "Course",
    "Dirichlet",
    "Neumann",
    "Periodic",
    "Reference",
    "Robin",
    "Slip",
    "Slope",
    "Table",
    "TotalPressure",
    "Value",
    "Varying",
]
