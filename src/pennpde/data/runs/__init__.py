"""Finished simulations of users as an ordinary dataset: `penn collect`.

collect    all of it: from paths to a dataset with its report
source     what is asked of every run, and what every run can give
foam       runs of OpenFOAM
files      runs in VTK files and series, with a problem file
targets    the case of a run with its solution, on its own mesh or on a coarser one
survey     which paths are runs, what is known of each before it is read in full; splits without near twins
"""
