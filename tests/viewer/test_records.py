"""What the browser draws, unpacked again."""

import base64
import json
import re

import numpy as np
import pytest
import torch

from meshes import PLANE_TYPES, arrays
from pennpde.mesh import Mesh
from pennpde.pictures import DIVERGING, ERROR, SEQUENTIAL
from pennpde.viewer.records import WEB, record_of, with_comparison, with_segments, write_page
from problems import brick, rectangle


def unpacked(text: str, kind: type) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.dtype(kind).newbyteorder("<"))


def linear_flow(mesh: Mesh) -> dict[str, torch.Tensor]:
    x, y = mesh.points.T
    return {"u": torch.stack([1 + x, -y], dim=1), "p": 2 * x - y}


def values(record, name):
    return unpacked(record["fields"][name]["values"], np.float32)


@pytest.mark.parametrize("kind", PLANE_TYPES)
def test_triangles_cover_the_mesh_once_whatever_its_cells(kind):
    points, cells = arrays(kind, jitter=0.1)
    mesh = Mesh.from_arrays(points, cells)
    record = record_of(mesh, {})
    places = unpacked(record["points"], np.float32).reshape(-1, 2).astype(float)
    corners = places[unpacked(record["triangles"], np.uint32).reshape(-1, 3)]
    sides = corners[:, 1:] - corners[:, :1]
    assert np.linalg.det(sides).sum() / 2 == pytest.approx(float(mesh.cell_volumes.sum()), rel=1e-5)
    edges = unpacked(record["edges"], np.uint32).reshape(-1, 2)
    assert len(np.unique(np.sort(edges, axis=1), axis=0)) == len(edges)
    # Euler: points - edges + cells = 1 for a domain without holes.
    assert mesh.number_of_points - len(edges) + mesh.number_of_cells == 1


def test_vectors_come_as_magnitude_and_components():
    mesh = rectangle((4, 3))
    fields = linear_flow(mesh)
    record = record_of(mesh, fields)
    assert list(record["fields"]) == ["|u|", "u_x", "u_y", "p"]
    assert record["velocity"] == ["u_x", "u_y"]
    np.testing.assert_allclose(values(record, "|u|"), fields["u"].norm(dim=1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(values(record, "u_y"), fields["u"][:, 1].numpy(), rtol=1e-6)
    assert [record["fields"][name]["colours"] for name in ("|u|", "p")] == [SEQUENTIAL, DIVERGING]
    assert all(len(unpacked(table, np.uint8)) == 3 * 256 for table in record["colours"].values())


def test_limits_are_the_field_s_own_symmetric_for_signed_ones_or_given():
    mesh = rectangle((4, 3))
    own = record_of(mesh, linear_flow(mesh))["fields"]
    assert own["|u|"]["limits"][1] == pytest.approx(2.236, rel=1e-2)  # almost the largest: a percentile
    assert own["p"]["limits"][0] == -own["p"]["limits"][1]
    assert record_of(mesh, linear_flow(mesh), limits={"p": (0.0, 5.0)})["fields"]["p"]["limits"] == [0.0, 5.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_fields_that_diverged_are_still_json(bad):
    mesh = rectangle((4, 3))
    fields = linear_flow(mesh)
    fields["p"][3] = bad
    fields["u"][:] = float("nan")
    record = record_of(mesh, fields)
    json.dumps(record, allow_nan=False)
    assert record["fields"]["|u|"]["limits"] == [0.0, 1.0]


def test_truth_and_prediction_share_their_colours_and_errors_are_sizes():
    mesh = rectangle((4, 3))
    fields = linear_flow(mesh)
    truth = {"u": fields["u"] + torch.tensor([3.0, 4.0]), "p": fields["p"] - 1}
    record = with_comparison(record_of(mesh, fields), fields, truth)
    parts = ["|u|", "u_x", "u_y", "p"]
    assert set(record["fields"]) == {f"{kind}{name}" for kind in ("", "truth ", "error ") for name in parts}
    for name in parts:
        assert record["fields"][name]["limits"] == record["fields"][f"truth {name}"]["limits"]
        assert record["fields"][f"error {name}"]["colours"] == ERROR
    np.testing.assert_allclose(values(record, "error |u|"), 5.0, rtol=1e-6)
    np.testing.assert_allclose(values(record, "error p"), 1.0, rtol=1e-6)
    assert record["fields"]["truth p"]["velocity"] == ["truth u_x", "truth u_y"]
    assert record["fields"]["error p"]["velocity"] is None


def test_segments_travel_as_edges():
    mesh = rectangle((4, 3))
    record = with_segments(record_of(mesh, {}), [np.array([[0, 1], [1, 2]]), np.array([[5, 4]])])
    assert [unpacked(each, np.uint32).tolist() for each in record["segments"]] == [[0, 1, 1, 2], [5, 4]]


def test_a_body_is_refused():
    with pytest.raises(ValueError, match="plane"):
        record_of(brick(), {})


def test_a_page_holds_all_that_it_needs_and_no_address(tmp_path):
    mesh = rectangle((4, 3))
    title = "a </script><b> & 'quotes'"
    write_page(tmp_path / "page.html", record_of(mesh, linear_flow(mesh)), title, "twelve cells", ["  exact  <0>"])
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "exact  &lt;0&gt;" in text
    assert text.count("</script>") == 2
    assert not re.search(r"""(?:src|href)\s*=|https?://|import\s*\(|url\(""", text)
    assert (WEB / "field_view.js").read_text(encoding="utf-8") in text
