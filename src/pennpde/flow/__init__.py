"""The incompressible flow solver: plane laminar flow on the user's own mesh, at any time.

scheme            the plain scheme: a case in, fields at any times out
march             steps in a row
steady            the steady state, by Newton's method
steady_equations  what is left of the steady equations, and their derivatives
step              one step: momentum, Rhie-Chow-type damping, projection
compiled          the same on a CPU, in compiled loops
kernels           these loops
captured_steps    the same on a GPU, replayed
corrector         a PENN that corrects a coarse solution
slices            its coupling of far points
coarse_march      where the flow network starts, on three levels
balance           forces of the boundary, what leaves through it, what is dissipated
outflow           what leaves the domain through each facet of its boundary
pressure          the pressure's equation, solved
krylov            the momentum's equations, which are not symmetric
problem           a flow on dual cells, as tensors
dual_cells        finite volumes around the points, edge by edge
curvature_flux    what flows through their faces because velocities are curved between the points
corner_pressure   pressures in corners where the velocity jumps
grid              cells, conditions and start of a case, split where they are coarse
kept_problems     prepared problems, as long as there is room for them
plane_physics     units, checks and names of plane flows
"""
