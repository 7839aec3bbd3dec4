"""The incompressible flow solver: plane laminar flow on the user's own mesh, at any time.

scheme            the plain scheme: a case in, fields at any times out; prepared problems are kept
march             steps in a row
steady            the steady state: its equations and their derivatives, solved by Newton's method
step              one step: momentum, Rhie-Chow-type damping, projection
compiled          the same on a CPU, in compiled loops
kernels           these loops
captured_steps    the same on a GPU, replayed
marched_together  whole marches of many flows at a time on a GPU
corrector         a PENN that corrects a coarse solution; its coupling of far points
coarse_march      where the flow network starts, on three levels
balance           forces of the boundary, what leaves through each facet, what is dissipated
pressure          the pressure's equation, solved; pressures in corners where the velocity jumps
krylov            the momentum's equations, which are not symmetric
problem           a flow on dual cells, as tensors
dual_cells        finite volumes around the points, edge by edge
curvature_flux    what flows through their faces because velocities are curved between the points
grid              cells, conditions and start of a case, split where they are coarse
"""
