"""Meshes of the ducts as users bring them: quads, triangles and both, finer and coarser than those of the dataset.

A network trained on only one kind of mesh overfits to the errors of that kind and fails on others. One of these meshes
per case, in addition to the dataset's own, prevents it.
"""

from __future__ import annotations

import zlib

import numpy as np

from pennlab.datasets.flow.triangles import triangle_mesh
from pennlab.datasets.split_quads import triangulated
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh

_SPLIT = {"half split": 0.5, "split": 1.0}
KINDS = ("quads", *_SPLIT, "unstructured")
CELLS_PER_LENGTH = (16.5, 29.0)
"""Coarsest and finest."""
LARGEST_JITTER = 0.2
MOST_POINTS = 3725
"""Those of the dataset's largest mesh: then a batch in one shape costs nothing more."""


def varied_mesh(name: str, seed: int = 0) -> Mesh:
    """A mesh of the case's duct whose kind, fineness and jitter are drawn at random.

    Args:
        name: of the case.
        seed: of all that is drawn; each case has its own random numbers.
    """
    random = np.random.default_rng([seed, zlib.crc32(name.encode()), zlib.crc32(b"varied")])
    while True:
        kind = KINDS[random.integers(len(KINDS))]
        cells = float(np.exp(random.uniform(*np.log(CELLS_PER_LENGTH))))
        own = int(random.integers(2**31))
        if kind == "unstructured":
            mesh = triangle_mesh(name, cells, own)
        else:
            mesh = coarse_mesh(name, own, cells, float(random.uniform(0.0, LARGEST_JITTER)))
        if mesh.number_of_points <= MOST_POINTS:
            return triangulated(mesh, _SPLIT[kind], own) if kind in _SPLIT else mesh
