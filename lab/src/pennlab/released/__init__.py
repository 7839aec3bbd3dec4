"""The networks that the authors of the paper released, to read their weights and reproduce their outputs.

weights              from the authors' files to networks
layers               what the networks share: switches, inputs, layers, solver
gradient             the gradient of a field
advection_diffusion  heat that a stream carries
flow                 incompressible flow
"""
