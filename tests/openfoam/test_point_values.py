"""Fields of finished runs at the points."""

import numpy as np
import pytest

from finished_runs import channel, pressure, velocity
from pennpde.openfoam.fields import PointValues, face_values
from pennpde.openfoam.poly_mesh import Body, plane_of


@pytest.mark.parametrize("plane", [True, False])
@pytest.mark.parametrize("shear", [0.0, 0.3])
def test_linear_fields_are_exact_at_all_points(tmp_path, plane, shear):
    shape = (5, 4, 1) if plane else (4, 3, 3)
    body = Body.read(channel(tmp_path / "run", shape, plane=plane, shear=shear, known=True))
    mesh = plane_of(body, tmp_path) if plane else body.mesh
    values = PointValues.of(body, mesh)
    places = mesh.points.numpy()
    found = values.read("U", 1.0)
    assert found.shape == (len(places), mesh.space)
    np.testing.assert_allclose(found[:, :2], velocity(places), atol=1e-12)
    np.testing.assert_allclose(values.read("p", 1.0), pressure(places), atol=1e-12)


def test_fluxes_are_those_of_the_faces(tmp_path):
    body = Body.read(channel(tmp_path / "run", (5, 4, 1)))
    values = PointValues.of(body, plane_of(body, tmp_path))
    fluxes = values.fluxes("U", 1.0)
    assert fluxes["left"] == pytest.approx(-0.5)
    assert fluxes["right"] == pytest.approx(0.3 + 0.2 - 0.1 * 0.5)  # the mean over the outlet, linear in y
    assert fluxes["top"] == fluxes["bottom"] == 0.0


def test_a_patch_without_written_values_has_what_its_condition_makes_of_the_cells(tmp_path):
    body = Body.read(channel(tmp_path / "run", (2, 2, 1)))
    piece = body.pieces[0]
    patch = piece.mesh.patches["top"]
    cells = np.arange(12.0).reshape(4, 3)
    inside = cells[piece.mesh.owner[patch.faces]]
    np.testing.assert_array_equal(face_values(piece, patch, {"type": "zeroGradient"}, cells), inside)
    np.testing.assert_array_equal(face_values(piece, patch, {"type": "slip"}, cells), inside * [1, 0, 1])
    np.testing.assert_array_equal(face_values(piece, patch, {"type": "noSlip"}, cells), 0.0 * inside)
