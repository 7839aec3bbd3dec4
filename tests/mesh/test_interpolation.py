"""Fields go to a companion mesh and back."""

import pytest
import torch
from torch.testing import assert_close

from companions import DOMAINS, SPACING
from pennpde.case.companion import back
from pennpde.mesh.interpolation import interpolation


@pytest.mark.parametrize("name", DOMAINS)
def test_linear_fields_go_there_and_back_exactly(pairs, name):
    mesh, companion = pairs[name]
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    there = torch.from_numpy(interpolation(mesh, companion.points.numpy()) @ mesh.points.numpy())
    found = back({"linear": there @ slope}, companion, mesh)["linear"]
    error = (found - mesh.points @ slope).abs().amax(dim=1)
    if name == "hole":
        # Points beyond the chords of the circle, at most h² / 8R away, have the values of the chords.
        near = mesh.points.norm(dim=1) < 0.26
        assert float(error[near].amax()) < 4 * SPACING**2 / (8 * 0.25) * 1.5
        error = error[~near]
    assert float(error.amax()) < 1e-12


def test_values_never_leave_the_span_of_the_field(pairs):
    mesh, companion = pairs["hole"]
    wave = torch.sin(20 * companion.points)
    found = back({"wave": wave}, companion, mesh)["wave"]
    assert float(found.amax()) <= float(wave.amax())
    assert float(found.amin()) >= float(wave.amin())


def test_axes_of_times_go_back_with_their_fields(pairs):
    mesh, companion = pairs["L"]
    series = companion.points[:, :1] * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_close(back({"T": series}, companion, mesh)["T"], mesh.points[:, :1] * series.new_tensor([1.0, 2.0, 3.0]))
