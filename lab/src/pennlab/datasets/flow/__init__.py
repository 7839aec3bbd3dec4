"""The flow dataset: ducts, their meshes, reference solutions by OpenFOAM, and the cases made of them.

cases      coarse meshes and cases
triangles  meshes of triangles without structure
varied     meshes of other kinds and spacings
truth      OpenFOAM on a fine mesh
"""
