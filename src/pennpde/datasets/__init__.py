"""Datasets: what a case of each looks like, and how it is made, read and written.

storage              datasets in folders, written and read
manifest             the file that lists the cases of a dataset
vtkhdf               one case in one file
content              what a dataset holds: equation, unknowns, kind of targets
moments              targets at one time, at several, in the steady state
shards               many cases in one file
packing              from files of single cases to shards
case_reader          cases one by one, checked against their hashes
generate             makes a dataset, in one process or on a cluster
profile              resolution of the solver that gives the truth
summary              what a dataset holds, in numbers
relatives            test cases that a training case is a mirror image or a multiple of
recipes              what each dataset consists of
fine_mesh            from the cells of a fine mesh to other points
polynomial           gradients of polynomials
advection_diffusion  heat on a square plate
runs/                finished simulations of users: `penn collect`
flow/                flow in ducts
plane_flow/          plane laminar flow of many shapes, Reynolds numbers and times
"""
