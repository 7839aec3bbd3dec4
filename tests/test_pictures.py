"""Pictures of fields: they are drawn, whatever the cells, and the colours mean what they should."""

import numpy as np
import pytest
import torch

from meshes import PLANE_TYPES, box
from pennpde.mesh import Mesh
from pennpde.models.ducts import Flow
from pennpde.pictures import DIVERGING, Panel, draw, field_panels, limits_of, triangles
from problems import rectangle

L_SHAPE = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2], [2, 2]], float)


def flow_on(mesh: Mesh) -> dict[str, torch.Tensor]:
    x, y = mesh.points.T
    return {"u": torch.stack([1 + y, 0.3 * torch.sin(3 * x)], dim=1), "p": x - y}


@pytest.mark.parametrize("kind", PLANE_TYPES)
def test_triangles_fill_the_mesh(kind):
    mesh = box(kind, 4)
    corners = mesh.points.numpy()[triangles(mesh)]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    areas = 0.5 * (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    assert areas.sum() == pytest.approx(1.0)
    assert (areas > -1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_flow_is_drawn_in_every_format(tmp_path, suffix):
    mesh = box("mixed_plane", 4)
    path = tmp_path / "new" / f"flow{suffix}"
    draw(path, [field_panels(mesh, flow_on(mesh), Flow.looks, "prediction")], title="a duct")
    start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def test_rows_of_different_length_cells_and_limits_are_drawn(tmp_path):
    mesh = rectangle((8, 2), (40.0, 0.5))
    fields = flow_on(mesh)
    panel = Panel("p", mesh, fields["p"], DIVERGING, limits=(-1.0, 1.0), outline=True)
    draw(tmp_path / "rows.png", [[panel, panel], [panel]])
    assert (tmp_path / "rows.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "kind", [kind if kind == "mixed_plane" else pytest.param(kind, marks=pytest.mark.slow) for kind in PLANE_TYPES]
)
def test_the_mesh_itself_is_drawn_with_its_patches_beside_a_field_with_its_unit(tmp_path, kind):
    mesh = box(kind, 4).with_patches({"left": lambda x: x[:, 0] < 1e-9})
    drawn = []
    for name, each in (("mesh", mesh), ("without", box(kind, 4)), ("finer", box(kind, 8))):
        draw(
            tmp_path / f"{name}.png",
            [[Panel("mesh", each, None), Panel("p", mesh, mesh.points[:, 0], scale="p in Pa")]],
        )
        drawn.append((tmp_path / f"{name}.png").read_bytes())
    assert len(set(drawn)) == 3


def test_a_field_that_is_the_same_everywhere_and_still_water_are_drawn(tmp_path):
    mesh = rectangle((4, 4))
    still = {"u": torch.zeros(25, 2, dtype=torch.float64), "p": torch.zeros(25, dtype=torch.float64)}
    draw(tmp_path / "still.png", [field_panels(mesh, still)])
    assert (tmp_path / "still.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_polygon_that_is_not_convex_is_drawn(tmp_path):
    """Streamlines are left out where Matplotlib cannot interpolate; the field is not."""
    corner = Mesh.from_arrays(L_SHAPE, {"polygon": [[0, 1, 2, 3, 4, 5]], "triangle": [[2, 6, 3], [3, 6, 4]]})
    draw(tmp_path / "corner.png", [field_panels(corner, flow_on(corner))])
    assert (tmp_path / "corner.png").stat().st_size > 1000


def test_a_body_cannot_be_drawn_flat(tmp_path):
    mesh = box("hexahedron", 2)
    with pytest.raises(ValueError, match="Only a plane mesh"):
        draw(tmp_path / "body.png", [[Panel("x", mesh, mesh.points[:, 0])]])
    assert not (tmp_path / "body.png").exists()


def test_one_wild_value_does_not_bleach_the_rest():
    values = np.concatenate([np.linspace(-1, 1, 2000), [500.0]])
    low, high = limits_of(values, DIVERGING)
    assert low == -high
    assert high < 1.1
    assert limits_of(np.abs(values), "viridis")[1] < 1.1


def test_a_spike_of_several_points_does_not_set_the_range_and_a_field_without_one_keeps_all_of_it():
    smooth = np.sin(np.linspace(0, 3, 2000))
    assert limits_of(smooth, "viridis") == (smooth.min(), smooth.max())
    spiky = smooth.copy()
    spiky[700:720] = 40.0  # one point in a hundred
    assert limits_of(spiky, "viridis")[1] < 1.1
    assert limits_of(spiky, DIVERGING)[1] < 1.1
    front = np.zeros(2000)
    front[:10] = 1.0  # all that there is to see
    assert limits_of(front, "viridis") == (0.0, 1.0)


def test_a_pressure_far_from_zero_is_shown_around_its_own_middle():
    low, high = limits_of(101325 + np.linspace(-1, 1, 1001), DIVERGING)
    assert (low, high) == pytest.approx((101324, 101326), abs=0.01)


def test_limits_of_a_constant_are_finite():
    assert limits_of(np.zeros(5), DIVERGING) == (-1.0, 1.0)
    assert limits_of(np.full(5, 3.0), "viridis") == (3.0, 4.0)
    assert limits_of(np.full(5, 3.0), DIVERGING) == (2.0, 4.0)


def test_values_that_are_not_finite_and_single_peaks_do_not_set_the_range():
    values = np.concatenate([np.linspace(0.0, 1.0, 9_998), [np.nan, 1e9]])
    assert limits_of(values, "viridis") == pytest.approx((0.0, 1.0), abs=0.01)
    assert limits_of(values - 0.5, DIVERGING) == pytest.approx((-0.5, 0.5), abs=0.01)
    assert limits_of(np.full(3, np.nan), "viridis") == (0.0, 1.0)


def test_notes_are_lines_below_the_corner_that_fit_into_the_picture(tmp_path):
    from PIL import Image

    mesh = rectangle((4, 3))
    panels = [[Panel("mesh", mesh, None)]]
    notes = ["word " * 100, *("short",) * 5]
    draw(tmp_path / "plain.png", panels, corner="good")
    draw(tmp_path / "notes.png", panels, corner="good", notes=notes)
    with Image.open(tmp_path / "plain.png") as plain, Image.open(tmp_path / "notes.png") as more:
        assert more.width == plain.width
        assert more.height == plain.height + 5 * 40  # four notes, and that there are two more
        assert str(more.info["Description"]).splitlines() == ["good", *notes]
        small_print = np.asarray(more.convert("L"))[plain.height :]
    assert small_print.min() < 150
    assert (small_print[:, :10] > 250).all(), "cut off at the left"
