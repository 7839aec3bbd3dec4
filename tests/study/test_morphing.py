"""Shapes by control points: smooth, within their patches, and never with inverted cells."""

import numpy as np
import pytest
import torch

from pennpde.models.designs import coarse_mesh
from pennpde.study.morphing import Handle, MorphError, displacement, morphed

TOP = {"top": Handle(((2.0, 2.0),), (0.0, 1.0), radius=1.2, fixed=("inlet", "outlet"))}


@pytest.fixture(scope="module")
def mesh():
    return coarse_mesh("a_0.30", cells_per_length=9)


def test_control_points_move_by_the_number_and_fixed_patches_stay(mesh):
    moved = displacement(mesh, TOP, {"top": 0.3})
    np.testing.assert_allclose(moved(np.array([[2.0, 2.0]])), [[0.0, 0.3]], atol=1e-12)
    for patch in ("inlet", "outlet"):
        assert np.abs(moved(mesh.points.numpy()[mesh.patch(patch).points])).max() < 1e-10


def test_a_morphed_mesh_has_the_same_cells_and_patches_and_none_is_inverted(mesh):
    after = morphed(mesh, TOP, {"top": -0.3})
    assert after.connectivity is mesh.connectivity
    assert after.patches.keys() == mesh.patches.keys()
    assert float(after.cell_volumes.min()) > 0
    apart = (after.points - mesh.points).norm(dim=1)
    assert float(apart.max()) == pytest.approx(0.3, rel=0.05)
    assert (
        float(apart[(mesh.points - torch.tensor([2.0, 2.0])).norm(dim=1) > 1.2].max()) < 1e-4
    )  # what holds the outlet reaches a little further


def test_nothing_moves_by_zero(mesh):
    assert morphed(mesh, TOP, {"top": 0.0, "viscosity": 3.0}) is mesh


def test_the_displacement_is_linear_in_the_numbers(mesh):
    one, two = (displacement(mesh, TOP, {"top": value})(mesh.points.numpy()) for value in (0.1, 0.2))
    np.testing.assert_allclose(2 * one, two, atol=1e-12)


def test_handles_that_do_not_move_hold_their_points(mesh):
    handles = {**TOP, "middle": Handle(((2.0, 1.2),), (1.0, 0.0))}
    moved = displacement(mesh, handles, {"top": 0.3})
    np.testing.assert_allclose(moved(np.array([[2.0, 1.2]])), 0.0, atol=1e-12)


def test_an_inverted_cell_is_refused_with_its_place(mesh):
    with pytest.raises(MorphError, match=r"inverted.*\("):
        morphed(mesh, TOP, {"top": -2.5})


@pytest.mark.parametrize(
    "given",
    [{}, {"at": [0, 0]}, {"at": [0, 0], "direction": [0, 0]}, {"at": [0, 0], "direction": [1]},
     {"at": [0, 0], "direction": [1, 0], "radius": -1}, {"at": [0, 0], "direction": [1, 0], "fixed": "wall"},
     {"at": [0, 0], "direction": [1, 0], "size": 1}, 3],
)  # fmt: skip
def test_a_handle_that_says_too_little_or_too_much_is_refused(given):
    with pytest.raises(ValueError, match=r"\[morph.bump\]"):
        Handle.of("bump", given)
