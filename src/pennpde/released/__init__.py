"""The networks that the authors of the paper released, to read their weights and reproduce their outputs.

weights              from the authors' files to networks
samples              the authors' published samples
cases                from a case to the meshes and operators of these networks
layers               what the networks share
solver               their nonlinear solver
gradient             the gradient of a field
advection_diffusion  heat that a stream carries
flow                 incompressible flow
"""
