"""Physics-embedded neural networks, one file per noun of the paper.

model       PENN: encode, solve, decode
encoder     unknowns and their prescribed values, encoded with the same weights
dirichlet   the Dirichlet layer
nisogcn     differential operators in the encoded space that know Neumann conditions
solver      the neural nonlinear solver: Barzilai-Borwein, explicit steps
decoder     the pseudoinverse, what corrects it, and what ablations put in its place
equation    what a user writes: unknowns and their rate of change
start       a cheap solution from which the network starts

physics     what is known about an equation besides: units, derived inputs, checks, names
hooks       what an equation can declare: names, dimensions, checks
predictor   what any network must offer for predictions with a certificate
inputs      a case as a network sees it: complete, in its units
invariants  what may be done with vectors and tensors without losing equivariance
mlp         linear layers with activations
mixing      channel mixing with a fast backward pass
graph_convolution  the normalised adjacency of graph convolutions
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
