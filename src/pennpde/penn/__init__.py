"""Physics-embedded neural networks, one file per noun of the paper.

model       PENN: encode, solve, decode
encoder     unknowns and their prescribed values, encoded with the same weights
dirichlet   the Dirichlet layer
nisogcn     differential operators in the encoded space that know Neumann conditions; invariants
solver      the neural nonlinear solver: Barzilai-Borwein, explicit steps
decoder     the pseudoinverse, what corrects it, and what ablations put in its place
equation    what a user writes: unknowns and their rate of change
start       a cheap solution that a network starts from

physics     what is known about an equation besides: units, derived inputs, checks, names
predictor   what any network must offer for predictions with a certificate; a case as it sees it
mlp         linear layers with activations
limits      how long whoever iterates may go on
"""

from pennpde.penn.equation import EncodedCase, Equation
from pennpde.penn.model import PENN
from pennpde.penn.physics import SCALAR, TENSOR, VECTOR, Physics
from pennpde.penn.predictor import STEADY, Prediction, Predictor

__all__ = [
    "PENN",
    "SCALAR",
    "STEADY",
    "TENSOR",
    "VECTOR",
    "EncodedCase",
    "Equation",
    "Physics",
    "Prediction",
    "Predictor",
]
