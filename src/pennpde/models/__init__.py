"""Networks for the paper's problems, and what is known about flows.

gradient             the gradient of a field
advection_diffusion  heat that a stream carries
ducts                flow through ducts
ducts_as_written     the same with the paper's equations as they are written
flow_physics         what every network for flows knows: unknowns, names, checks
flow_clues           how well fields of a flow fulfil its equations
boundary_profile     what the facets of a boundary prescribe, and the flux through them
potential_flow       the flow that a prediction starts from
inlet                width and speed of an inlet, as units
mass                 divergence and flux of a predicted velocity
designs              ready problems with a few parameters: ducts, and a plate that is heated
"""
