"""Meshes of any cells in two or three dimensions, with named patches.

mesh           points, cells, patches, fields; normals, volumes, facets
cells          cell types, facets and edges of them
derived        what follows from cells and points, worked out once: graph, boundary, normals, volumes
checks         what a sound mesh is; the error for one that is not
contents       what a file says about a mesh, unchecked
files          reading and writing through PyVista; the choice of a reader, also among those of other packages
gmsh           .msh
meshio_files   .inp, .med and others that only meshio reads
reader_process  the same in a process of its own, which a damaged file may crash
announced      counts in files, compared with the size of the file
repair         what is mended in meshes of other programs
distance       distance to a patch
corners        which patch's value counts where two patches meet
rotation       vectors and tensors turn with the mesh
plane          plane meshes from three-dimensional files, and the way back: extrusion
outline        the boundary of a plane mesh as closed curves with corners; the same at another spacing
triangulation  Delaunay triangles, finding points in them
interpolation  from the points of one mesh to those of another
cell_values    values of cells at the points
series         fields at several times, as ParaView plays them
splitting      each cell into four
remesh         triangles of another spacing for the same domain
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennpde.mesh.mesh import Mesh as Mesh
    from pennpde.mesh.mesh import Patch as Patch

__all__ = ["Mesh", "Patch"]


def __getattr__(name: str) -> Any:
    # At first use: the process that reads files needs neither a mesh nor torch.
    if name not in __all__:
        raise AttributeError(f"module 'pennpde.mesh' has no attribute {name!r}")
    value = getattr(import_module("pennpde.mesh.mesh"), name)
    globals()[name] = value
    return value
