"""What reproduces the paper: tables, baselines, the comparison with OpenFOAM.

tables           tables from records, next to the published values (numbers.json)
figures          counterparts of the paper's figures
lookup           floors without a network: the start, the nearest case, a quadratic fit
plane_flow_floors  the same for plane flows
plane_flow_errors  errors of all rivals on plane flows, taken the same way
plane_flow_table   their table, and where the network loses
flow_as_written  the flow network as the paper writes it
gradient         the networks of Table 1
samples          the authors' published samples
budgets          how long a network was trained, in words
machine          what was measured on
baselines/       MP-PDE and MeshGraphNet
openfoam_sweep/  OpenFOAM in many settings
tradeoff/        error against time for all of them
"""
