"""The flow dataset: ducts, their meshes, reference solutions by OpenFOAM, and the cases made of them.

ducts      their list, the blocks of OpenFOAM's meshes, places carried from one to another
cases      coarse meshes and cases
triangles  meshes of triangles without structure
varied     meshes of other kinds and spacings
truth      OpenFOAM on a fine mesh
"""
