"""Plane laminar flows of many shapes, Reynolds numbers, conditions and times.

From a name to a case:

* `flows`: names, splits, and how a flow is drawn from its name; `shapes` draws its outline (one function per family).
* `domain`, `conditions`, `flow`: what a flow is.
* `sizes`, `triangles`, `dual`: the mesh of the truth. `start`: its potential flow.
* `foam`, `truth`, `point_values`: files for OpenFOAM, runs, and the fields at the points of the triangulation.
* `meshes`, `cases`: the meshes that networks see, and the problem with its solution on them.
* `recipe`: what `penn generate plane-flow` makes.
* `quality`, `twins`: how accurate the truth is, and how far flows are from each other.
"""
