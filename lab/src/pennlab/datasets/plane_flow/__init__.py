"""Plane laminar flows of many shapes, Reynolds numbers, conditions and times.

flows         names, splits, and how a flow is drawn from its name
shapes/       outlines, one function per family
domain        an outline with its patches
conditions    inlets, outlets, walls and lids
flow          a flow: domain, conditions, Reynolds number, moments
sizes         how fine the mesh of the truth is, and where
triangles     smooth triangles of a domain
dual          polygons around the points of triangles: the cells of the truth
start         potential flow on the mesh of the truth
foam          files for OpenFOAM
truth         runs of OpenFOAM, and the fields that come out
point_values  fields of cells at the points of the triangulation
meshes        the meshes that networks see
cases         the problem with its solution on these meshes
recipe        what `penn generate plane-flow` makes
cost          how long a flow takes to compute, about
trials        one change at a time on the step of `penn demo`, with the truth
finished      flows computed before, in archives
sensitivity   which moments of a flow are determined: twice the spacing hardly changes them
quality       how accurate the truth is: half the spacing, half the step
twins         how far flows are from each other
"""
