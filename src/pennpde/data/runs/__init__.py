"""Finished simulations of users as an ordinary dataset: `penn collect`.

collect      all of it: from paths to a dataset with its report
finding      which of the given paths are runs, and what they are called
times        which times of a run become targets
quantities   which fields and parameters of a run are whose
source       what every run can give: its problem, its times, its fields
foam         runs of OpenFOAM
files        runs in VTK files and series, with a problem file
targets      the case of a run, with its solution
coarsening   the same on a coarser mesh, with the same flux through inlets and outlets
survey       what is known of a run before it is read in full; which runs belong together
likeness     how far runs are from each other
splitting    training, validation and test without near twins
recipe       how runs become files, for the workers of `datasets.generate`
report       what was read and what was skipped, in JSON, Markdown and pictures
"""
