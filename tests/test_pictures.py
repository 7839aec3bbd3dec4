"""Pictures of fields: they are drawn, whatever the cells, and the colours mean what they should."""

import numpy as np
import pytest
import torch

from meshes import PLANE_TYPES, box
from pennpde.mesh import Mesh
from pennpde.models.ducts import Flow
from pennpde.pictures import (
    DIVERGING,
    Panel,
    animate,
    draw,
    field_panels,
    limits_of,
    openings,
    picture,
    series_panels,
    stacked,
    triangles,
)
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
    draw(path, [field_panels(mesh, flow_on(mesh), Flow.looks)], title="a duct")
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


def test_data_of_one_sign_have_one_side_of_the_colours_and_white_stays_zero():
    from pennpde.pictures import _section

    values = np.linspace(-2.0, 0.1, 500)
    assert limits_of(values, DIVERGING) == (-2.0, 0.1)
    colours = _section(DIVERGING, (-2.0, 0.1))
    assert np.min(colours(2.0 / 2.1)[:3]) > 0.93  # zero is white
    assert colours(0.0)[2] > 2 * colours(0.0)[0]  # the lowest is blue
    assert np.min(colours(1.0)[:3]) > 0.85  # the highest hardly has a colour
    low, high = limits_of(np.linspace(-2.0, 1.0, 500), DIVERGING)
    assert low == -high


def test_arrows_point_into_the_domain_at_inlets_and_out_of_it_at_outlets():
    mesh = rectangle((12, 8), (3.0, 1.0))
    x, y = mesh.points.numpy().T
    velocity = np.stack([y * (1 - y), 0 * x], axis=1)
    found = openings(mesh, velocity)
    assert [each.enters for each in found] == [True, False]
    for each, place in zip(found, (0.0, 3.0), strict=True):
        assert (each.arrows[:, 0] > 0).all()
        outside = each.tails + (each.arrows if place == 0 else 0.0)
        assert ((outside[:, 0] < 0) if place == 0 else (outside[:, 0] > 3)).all()
    assert openings(mesh, 0 * velocity) == []
    assert openings(mesh, np.stack([0 * y, 0 * y], axis=1) + (y == 1)[:, None] * [1.0, 0.0]) == []  # a moving wall


def test_the_bar_has_an_arrow_where_values_are_beyond_it():
    mesh = rectangle((8, 8))
    x = mesh.points[:, 0]
    for limits, extend in (((0.0, 1.0), "neither"), ((0.0, 0.5), "max"), ((0.5, 1.0), "min"), ((0.2, 0.8), "both")):
        figure = picture([[Panel("x", mesh, x, limits=limits)]]).figure
        assert figure.axes[1]._colorbar.extend == extend


def test_ticks_of_the_bar_are_round():
    mesh = rectangle((8, 8))
    bar = picture([[Panel("x", mesh, 0.1337 * mesh.points[:, 0])]]).figure.axes[1]._colorbar
    assert np.allclose(bar.get_ticks() * 100, np.round(bar.get_ticks() * 100, 6))
    assert 3 <= len(bar.get_ticks()) <= 8


def test_flat_panels_are_stacked_and_others_are_not():
    flat, square = (Panel("", rectangle((4, 4), size), torch.zeros(25)) for size in ((10.0, 1.0), (1.0, 1.0)))
    assert [len(row) for row in stacked([[flat, flat]])] == [1, 1]
    assert [len(row) for row in stacked([[flat, square]])] == [2]


def moving(mesh: Mesh) -> list[list[Panel]]:
    x, y = mesh.points.T
    return series_panels(mesh, [{"u": torch.stack([y + time * x, 0 * x], dim=1), "p": x - time} for time in (0, 1, 2)])


@pytest.mark.slow
def test_an_animation_has_a_frame_for_each_time_and_no_bands(tmp_path):
    from PIL import Image

    animate(tmp_path / "flow.gif", moving(rectangle((20, 10), (2.0, 1.0))), ["a", "b", "c"])
    with Image.open(tmp_path / "flow.gif") as film:
        assert film.n_frames == 3
        row = np.asarray(film.convert("RGB"))[film.height // 2].astype(int)
    steps = np.abs(np.diff(row[60 : len(row) // 3], axis=0)).max(axis=1)
    assert np.median(steps) <= 8, "a band is followed by a jump"


@pytest.mark.slow
def test_an_animation_can_be_a_film(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="needs imageio-ffmpeg")
    for suffix, place, kind in ((".mp4", 4, b"ftyp"), (".webm", 0, b"\x1aE\xdf\xa3")):
        animate(tmp_path / f"flow{suffix}", moving(rectangle((20, 10), (2.0, 1.0))), ["a", "b", "c"])
        assert (tmp_path / f"flow{suffix}").read_bytes()[place : place + 4] == kind


def test_an_animation_of_another_format_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"ends in \.mp4, \.webm or \.gif"):
        animate(tmp_path / "flow.avi", moving(rectangle((4, 4))), ["a", "b", "c"])
