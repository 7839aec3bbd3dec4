"""Designs of steady flows: gradients of their quantities, and searches for the best.

flows      steady flows of one family, in the same units
measures   quantities as functions of the state that autograd can take apart
adjoint    their gradients: one linear equation per quantity, however many parameters
"""
