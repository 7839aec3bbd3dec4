"""Networks for the paper's problems, ours and the authors'.

registry             networks by name, for configurations
gradient             the gradient of a field
advection_diffusion  heat that a stream carries
flow                 incompressible flow
stepping/            any plane laminar flow, by steps from any state
plane_flow           what is known about plane flows: units, checks, names
flow_physics         what every network for flows knows: unknowns, names, checks
flow_clues           how well fields of a flow fulfil its equations
potential_flow       the flow that a prediction starts from
inlet                width and speed of an inlet, as units
mass                 divergence and flux of a predicted velocity
"""
