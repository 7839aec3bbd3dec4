"""Differential operators on the points of a mesh, with Neumann conditions built in (NIsoGCN).

operators   gradient, divergence, Laplacian, Hessian, from a moment matrix at each point
graph       neighbours of each point, also across pairs of periodic patches
damping     the Laplacian as one matrix, with damping of modes that alternate from point to point
sparse      sparse products as differentiable, compilable operations
elements    linear finite elements: areas, stiffness and gradient that conserve mass
multigrid   symmetric equations solved in linear time
"""

from pennpde.operators.operators import NEUMANN_WEIGHT, Operators

__all__ = ["NEUMANN_WEIGHT", "Operators"]
