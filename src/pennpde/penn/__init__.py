"""Physics-embedded neural networks, one file per noun of the paper.

model       PENN: encode, solve, decode
encoder     unknowns and their prescribed values, encoded with the same weights
dirichlet   the Dirichlet layer
nisogcn     differential operators in the encoded space that know Neumann conditions; invariants
solver      the neural nonlinear solver: Barzilai-Borwein, explicit steps
decoder     the pseudoinverse, what corrects it, and what ablations put in its place
equation    what a user writes: unknowns and their rate of change; what else is known: units, checks, names
start       a cheap solution that a network starts from

predictor   what any network must offer for predictions with a certificate; a case as it sees it
mlp         linear layers with activations
"""

from pennpde.penn.equation import SCALAR, TENSOR, VECTOR, EncodedCase, Equation, Physics
from pennpde.penn.model import PENN
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
