"""OpenFOAM cases of our own, written and run.

new_cases   written from dictionaries, in a scratch folder
block_mesh  input of blockMesh
programs    finding and running OpenFOAM's programs
"""

from pennlab.running.block_mesh import Block as Block
from pennlab.running.block_mesh import Side as Side
from pennlab.running.block_mesh import block_mesh_dictionary as block_mesh_dictionary
from pennlab.running.new_cases import NewField as NewField
from pennlab.running.new_cases import Workplace as Workplace
from pennlab.running.new_cases import workplace as workplace
from pennlab.running.new_cases import write_case as write_case
from pennlab.running.new_cases import write_mesh as write_mesh
from pennlab.running.programs import DivergenceError as DivergenceError
from pennlab.running.programs import Installation as Installation
from pennlab.running.programs import InstallationError as InstallationError
from pennlab.running.programs import OpenFOAMError as OpenFOAMError
from pennlab.running.programs import Progress as Progress
from pennlab.running.programs import find_installation as find_installation
from pennlab.running.programs import run as run
