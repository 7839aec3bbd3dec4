"""Differential operators on the points of a mesh, with Neumann conditions built in (NIsoGCN).

operators   gradient, divergence, Laplacian, Hessian
moments     the fit at each point
graph       neighbours of each point
periodic    neighbours across pairs of periodic patches
damping     the Laplacian as one matrix, with damping of modes that alternate from point to point
elements    linear finite elements: areas, stiffness and gradient that conserve mass
dual_cells  the same as finite volumes, edge by edge
bending     what flows through their faces where a velocity is bent between the points
krylov      equations that are not symmetric
poisson     the pressure's equation, solved
levels      multigrid: symmetric equations solved in linear time
memory      memory used again from step to step
capture     work on a GPU, replayed
sparse      sparse products as differentiable, compilable operations
"""

from pennpde.operators.operators import NEUMANN_WEIGHT, Operators

__all__ = ["NEUMANN_WEIGHT", "Operators"]
