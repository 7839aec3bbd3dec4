"""Blocks for OpenFOAM's blockMesh."""

import pytest

from pennlab import running


def test_sides_that_no_block_has_are_refused():
    block = running.Block(((0, 0), (1, 0), (1, 1), (0, 1)), (2, 2))
    with pytest.raises(ValueError, match="inlet"):
        running.block_mesh_dictionary([block], {"inlet": ("patch", [((0, 0), (0, 2))])}, 0.1)
