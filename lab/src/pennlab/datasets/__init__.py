"""How the datasets are made.

generate             makes a dataset, in one process or on a cluster
recipe               what a generation asks of a recipe
packing              from files of single cases to shards
recipes              what each dataset consists of
polynomial           gradients of polynomials
advection_diffusion  heat on a square plate
flow/                flow in ducts
plane_flow/          plane laminar flow of many shapes, Reynolds numbers and times
fine_mesh            from the cells of a fine mesh to other points
split_quads          quads as triangles
profile              resolution of the solver that gives the reference solutions
"""
