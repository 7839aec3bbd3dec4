"""A boundary value problem: mesh, start, conditions, parameters.

case           the problem itself, for one mesh or several as one batch
conditions/    Dirichlet, Neumann, Robin, slip, periodic; values that change with time
units          reference scales: a case in units in which a network sees it, and back
companion      a case on another mesh of the same domain
moments        truth at several moments and in the steady state
problem_files  a case from a TOML file
"""

from pennpde.case.case import Case, Remark, batch, unbatch
from pennpde.case.conditions import Across, Condition, Dirichlet, Neumann, Periodic, Robin, Slip, Table, TotalPressure

__all__ = [
    "Across",
    "Case",
    "Condition",
    "Dirichlet",
    "Neumann",
    "Periodic",
    "Remark",
    "Robin",
    "Slip",
    "Table",
    "TotalPressure",
    "batch",
    "unbatch",
]
