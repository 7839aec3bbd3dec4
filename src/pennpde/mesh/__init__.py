"""Meshes of any cells in two or three dimensions, with named patches.

mesh            points, cells, patches, fields; graph, boundary, normals, volumes, worked out once; the plane
                mesh under one that is one cell thick
cells           cell types, facets and edges of them
checks          what a sound mesh is; the error for one that is not
contents        what a file says about a mesh, unchecked; what is mended in it
formulas        of the position: numbers, and points chosen by comparisons, a box, a half-space
files           reading through PyVista, writing at one time or several; counts in files, compared with their size
gmsh            .msh
reader_process  the same in a process of its own, which a damaged file may crash
distance        distance to a patch
boundary        of plane meshes: edges that follow each other, corners; what a facet takes from its points
triangulation   Delaunay triangles, also in polygons whose sides are patches; finding points in them
interpolation   from points to other places, from cells to points
space_cells     cells in space split into smaller ones; polyhedra into tetrahedra and pyramids
splitting       each cell into four; obtuse triangles replaced by better ones
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennpde.mesh.mesh import Mesh as Mesh
    from pennpde.mesh.mesh import Patch as Patch
    from pennpde.mesh.mesh import read as read

__all__ = ["Mesh", "Patch", "read"]


def __getattr__(name: str) -> Any:
    # At first use: the process that reads files needs neither a mesh nor torch.
    if name not in __all__:
        raise AttributeError(f"module 'pennpde.mesh' has no attribute {name!r}")
    value = getattr(import_module("pennpde.mesh.mesh"), name)
    globals()[name] = value
    return value
