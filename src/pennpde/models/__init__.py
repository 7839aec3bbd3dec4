"""Networks for the paper's problems, and what is known about flows.

gradient             the gradient of a field
advection_diffusion  heat that a stream carries
ducts                flow through ducts
flow_physics         what every network for flows knows: unknowns, names, checks, units, clues to the error
potential_flow       the flow that a prediction starts from
inlet                width and speed of an inlet, as units; what the facets of a boundary prescribe
designs              ready problems with a few parameters: ducts, and a plate that is heated
"""
