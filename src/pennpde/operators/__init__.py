"""Differential operators on the points of a mesh, with Neumann conditions built in (NIsoGCN).

operators   gradient, divergence, Laplacian, Hessian
moment_matrices  the fit at each point
graph       neighbours of each point
periodic    neighbours across pairs of periodic patches
damping     the Laplacian as one matrix, with damping of modes that alternate from point to point
elements    linear finite elements: areas, stiffness and gradient that conserve mass
multigrid   symmetric equations solved in linear time
memory      memory used again from step to step
capture     work on a GPU, replayed
sparse      sparse products as differentiable, compilable operations
"""

from pennpde.operators.operators import NEUMANN_WEIGHT, Operators

__all__ = ["NEUMANN_WEIGHT", "Operators"]
