"""Datasets: how cases are stored and read, and how finished simulations become training cases.

storage      datasets in folders, written and read
manifest     the file that lists the cases of a dataset
vtkhdf       one case in one file
content      what a dataset holds: equation, unknowns, kind of targets
times        targets at one time, at several, in the steady state
shards       many cases in one file
packing      from files of single cases to shards
case_reader  cases one by one, checked against their hashes
recipe       what a generation asks of a recipe
generate     makes a dataset, in one process or on a cluster
summary      what a dataset holds, in numbers
relatives    test cases that a training case is a mirror image or a multiple of
runs/        finished simulations of users: `penn collect`
"""
