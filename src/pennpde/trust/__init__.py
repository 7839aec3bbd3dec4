"""How far a prediction can be trusted: what can be measured without a reference solution, and the error it tells of.

certificate     errors on the conditions, divergence, fluxes, residuals; the range of training
evidence        clues, from which the error is estimated, with a field of where it is
calibration     from clues to an expected error and its conformal bound
expected_error  expected errors and grades of a prediction, and their file
swinging        flows that shed eddies: mean, amplitude and frequency
"""
