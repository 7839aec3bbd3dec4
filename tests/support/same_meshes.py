"""A small mesh with patches, and the comparison with what was read from a file of it."""

import numpy as np

from meshes import box
from pennpde.mesh import Mesh


def named(kind: str) -> Mesh:
    """A small mesh whose boundary is three patches; two of them meet in a corner of a cell."""
    mesh = box(kind, 2, jitter=0.1)
    middle = mesh.points.numpy()[mesh.facets.connectivity]
    centres = np.add.reduceat(middle, mesh.facets.offsets[:-1]) / mesh.facets.sizes[:, None]
    inlet, outlet = centres[:, 0] < 1e-9, centres[:, 0] > 1 - 1e-9
    masks = {"inlet": inlet, "outlet": outlet, "the wall": ~inlet & ~outlet}
    return mesh.with_patch_facets({name: mesh.facets.take(np.flatnonzero(mask)) for name, mask in masks.items()})


def same(one: Mesh, other: Mesh) -> None:
    np.testing.assert_array_equal(one.points, other.points)
    np.testing.assert_array_equal(one.cell_types, other.cell_types)
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.connectivity, other.connectivity)
    assert set(one.patches) == set(other.patches)
    for name, patch in one.patches.items():
        np.testing.assert_array_equal(patch.points, other.patch(name).points)
        np.testing.assert_array_equal(patch.facets, other.patch(name).facets)
