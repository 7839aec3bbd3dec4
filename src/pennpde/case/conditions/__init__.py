"""Boundary conditions of one unknown.

protocol   what every kind has to know
dirichlet  prescribed values, at points, facet by facet, of single components; slip; total pressure
neumann    prescribed normal derivatives; Robin: a prescribed mean of both; ends without stress
periodic   pairs of patches that are one
given      what users give, as tensors; values that change along a patch and with time
"""

from pennpde.case.conditions.dirichlet import Components, Dirichlet, Slip, TotalPressure
from pennpde.case.conditions.given import Course, Table, Value, Varying
from pennpde.case.conditions.neumann import Neumann, Robin, StressFree
from pennpde.case.conditions.periodic import Across, Periodic
from pennpde.case.conditions.protocol import Condition, Conditions, Reference, Slope

KINDS: tuple[type[Condition], ...] = (
    Slip,
    Periodic,
    Neumann,
    Robin,
    StressFree,
    TotalPressure,
    Components,
    Dirichlet,
)
"""In the order in which they act: a prescribed value has the last word, and a later normal derivative counts."""

__all__ = [
    "KINDS",
    "Across",
    "Components",
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
    "StressFree",
    "Table",
    "TotalPressure",
    "Value",
    "Varying",
]
