"""A boundary value problem: mesh, start, conditions, parameters.

case           the problem itself, for one mesh or several as one batch
conditions/    Dirichlet, Neumann, Robin, slip, periodic; values that change with time
units          reference scales: a case in units in which a network sees it, and back
companion      a case on triangles of another size that fill the same domain
moments        reference solutions at several times and in the steady state
problem_files  a case from a TOML file
"""

from pennpde.case.case import Case, Remark, batch, unbatch
from pennpde.case.conditions import (
    Across,
    Components,
    Condition,
    Dirichlet,
    Neumann,
    Periodic,
    Robin,
    Slip,
    StressFree,
    Table,
    TotalPressure,
)

__all__ = [
    "Across",
    "Case",
    "Components",
    "Condition",
    "Dirichlet",
    "Neumann",
    "Periodic",
    "Remark",
    "Robin",
    "Slip",
    "StressFree",
    "Table",
    "TotalPressure",
    "batch",
    "unbatch",
]
