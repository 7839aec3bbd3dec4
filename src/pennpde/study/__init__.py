"""Studies: one flow in many variants, a row of numbers for each.

study          what is asked: where cases come from, what varies, what is measured
variables      a name and the numbers it takes
designs        grids, samples that fill the space, rows of a CSV file
sources        a case for every shape: functions, Gmsh, OpenFOAM templates
morphing       shapes by control points
changes        other parameters and boundary values
programs       meshers and solvers
execution      one process, several, or a cluster
table          rows that are kept, and tables of them
thumbnails     small pictures
report         the page of a study
verification   the same designs by the user's own solver
optimisation/  the best design, by gradients of the adjoint
"""

from pennpde.study.study import Study as Study
from pennpde.study.table import Table as Table
