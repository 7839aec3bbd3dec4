"""Physics-embedded neural networks.

penn      encode, solve, decode
equation  what a user writes: unknowns, rate of change, and what is known about the equation
hooks     what an equation can declare: names, dimensions, checks
solver    the neural nonlinear solver: Barzilai-Borwein, explicit steps
layers    encoders with pseudoinverse, differential operators with channel mixing, Dirichlet layer
decoders  what corrects the pseudoinverse, and what ablations put in its place
mixing    channel mixing with a fast backward pass
"""

from pennpde.network.equation import SCALAR, TENSOR, VECTOR, EncodedCase, Equation
from pennpde.network.penn import PENN, Prediction

__all__ = ["PENN", "SCALAR", "TENSOR", "VECTOR", "EncodedCase", "Equation", "Prediction"]
