"""Datasets generated in this process, and what is in them."""

from pennlab.datasets import generate
from pennpde.data import storage


def make(recipe, folder, **options):
    """Without Dask, which takes seconds to start; test_cluster.py has its tests."""
    return generate.generate(recipe, folder, **{"workers": 0, **options})


def names(folder, split=None):
    return sorted(case.name for case in storage.read(folder, split))
