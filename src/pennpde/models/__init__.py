"""Networks for the paper's problems, and what is known about flows.

gradient             the gradient of a field
advection_diffusion  heat that a stream carries
ducts                flow through ducts
flow_physics         what every network for flows knows: unknowns, names, checks, clues to the error
potential_flow       the flow that a prediction starts from
inlet                what the boundary of a flow prescribes, and width and speed of its inlet as units
designs              ready problems with a few parameters: ducts, and a plate that is heated
"""
