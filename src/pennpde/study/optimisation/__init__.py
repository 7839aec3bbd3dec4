"""Designs of steady flows: gradients of their quantities, and searches for the best.

flows      steady flows of one family, in the same units
measures   quantities as functions of the state that autograd can take apart
adjoint    their gradients: one linear equation per quantity, however many parameters
transient  flows that change with time, and gradients through all of their steps
goals      what is wanted, in words
trials     designs that are tried out
search     with gradients: quadratic models in a trust region
evolution  without them
optimise   all of it, and what comes out
"""

from pennpde.study.optimisation.optimise import Optimum as Optimum
from pennpde.study.optimisation.optimise import optimise as optimise
from pennpde.study.optimisation.optimise import pareto as pareto
