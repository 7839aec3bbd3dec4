"""Physics-embedded neural networks.

penn       encode, solve, decode
predictor  what any network must offer for predictions with a certificate
equation   what a user writes: unknowns and their rate of change
physics    what is known about an equation besides: units, derived inputs, checks, names
inputs     a case as a network sees it: complete, in its units
hooks      what an equation can declare: names, dimensions, checks
solver     the neural nonlinear solver: Barzilai-Borwein, explicit steps
layers     encoders with pseudoinverse, differential operators with channel mixing, Dirichlet layer
decoders   what corrects the pseudoinverse, and what ablations put in its place
mixing     channel mixing with a fast backward pass
"""

from pennpde.network.equation import EncodedCase, Equation
from pennpde.network.penn import PENN
from pennpde.network.physics import SCALAR, TENSOR, VECTOR, Physics
from pennpde.network.predictor import STEADY, Prediction, Predictor

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
