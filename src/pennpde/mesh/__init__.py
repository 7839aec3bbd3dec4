"""Meshes of any cells in two or three dimensions, with named patches.

mesh           points, cells, patches, fields; normals, volumes, facets
cells          cell types, facets and edges of them
derived        what follows from cells and points, worked out once: graph, boundary, normals, volumes
checks         what a sound mesh is; the error for one that is not
files          reading and writing through PyVista and meshio
distance       distance to a patch
corners        which patch's value counts where two patches meet
rotation       vectors and tensors turn with the mesh
plane          plane meshes from three-dimensional files, and the way back: extrusion
outline        the boundary of a plane mesh as closed curves with corners; the same at another spacing
triangulation  Delaunay triangles, finding points in them
interpolation  from the points of one mesh to those of another
cell_values    values of cells at the points
splitting      each cell into four
remesh         triangles of another spacing for the same domain
"""

from pennpde.mesh.mesh import Mesh, Patch

__all__ = ["Mesh", "Patch"]
