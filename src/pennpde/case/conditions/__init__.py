"""Boundary conditions of one unknown, one file for each kind.

protocol   what every kind has to know
dirichlet  prescribed values
on_facets  what each facet of the boundary prescribes, where points cannot hold it
neumann    prescribed normal derivatives
robin      a prescribed mean of both
slip       no normal component
periodic   pairs of patches that are one
course     values that change with time
given      what users give, as tensors
"""

from pennpde.case.conditions.course import Course, Table
from pennpde.case.conditions.dirichlet import Dirichlet
from pennpde.case.conditions.given import Value, Varying
from pennpde.case.conditions.neumann import Neumann
from pennpde.case.conditions.periodic import Across, Periodic
from pennpde.case.conditions.protocol import Condition, Conditions, Reference, Slope
from pennpde.case.conditions.robin import Robin
from pennpde.case.conditions.slip import Slip

KINDS: tuple[type[Condition], ...] = (Slip, Periodic, Neumann, Robin, Dirichlet)
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
    "Value",
    "Varying",
]
