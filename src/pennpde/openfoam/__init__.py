"""An OpenFOAM case: its mesh, patches and conditions in, predicted fields out.

conditions    the conditions of a field, patch by patch
cases         mesh and conditions become a case, the case of an equation with all that it needs; the pressure's level
restarts      predicted fields become a time folder from which solvers go on; fluxes that leave nothing in any cell
dictionaries  the syntax of OpenFOAM's files
fields        files of fields; those of a finished run at the points
poly_mesh     meshes of faces, whole or decomposed, with their patches
unread        what a case says and an equation does not know
"""

from pennpde.openfoam.cases import other_physics as other_physics
from pennpde.openfoam.cases import read_case as read_case
from pennpde.openfoam.cases import read_problem as read_problem
from pennpde.openfoam.dictionaries import Dimensions as Dimensions
from pennpde.openfoam.dictionaries import FoamFormatError as FoamFormatError
from pennpde.openfoam.dictionaries import NonUniform as NonUniform
from pennpde.openfoam.dictionaries import Uniform as Uniform
from pennpde.openfoam.dictionaries import format_dictionary as format_dictionary
from pennpde.openfoam.dictionaries import parse_dictionary as parse_dictionary
from pennpde.openfoam.dictionaries import read_dictionary as read_dictionary
from pennpde.openfoam.fields import PRESSURE as PRESSURE
from pennpde.openfoam.fields import TEMPERATURE as TEMPERATURE
from pennpde.openfoam.fields import VELOCITY as VELOCITY
from pennpde.openfoam.fields import VISCOSITY as VISCOSITY
from pennpde.openfoam.fields import FoamField as FoamField
from pennpde.openfoam.fields import read_field as read_field
from pennpde.openfoam.fields import start_time as start_time
from pennpde.openfoam.fields import time_folders as time_folders
from pennpde.openfoam.fields import write_field as write_field
from pennpde.openfoam.poly_mesh import FacePatch as FacePatch
from pennpde.openfoam.poly_mesh import PolyMesh as PolyMesh
from pennpde.openfoam.poly_mesh import UnsupportedConditionError as UnsupportedConditionError
from pennpde.openfoam.restarts import TimeWriter as TimeWriter
from pennpde.openfoam.restarts import write_time as write_time
from pennpde.openfoam.unread import is_steady as is_steady
