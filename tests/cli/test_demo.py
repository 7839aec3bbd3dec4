"""`penn demo`: what a newcomer runs first."""

import json
from pathlib import Path

import pytest

from commands import penn, store
from pennpde import registry
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.trust.certificate import spanned
from problems import FLOW


@pytest.fixture
def shipped(tmp_path, monkeypatch) -> Path:
    """As if a flow network came with the package."""
    ranges = spanned([flow_case(coarse_mesh(name, cells_per_length=5)) for name in ("a_0.30", "a_0.40")], FLOW)
    store(tmp_path / "weights" / "flow", ranges=ranges)
    monkeypatch.setattr(registry, "WEIGHTS", tmp_path / "weights")
    return tmp_path


@pytest.mark.slow
def test_the_demo_predicts_a_flow_and_shows_it_three_ways(shipped):
    finished = penn("demo", "--out", shipped / "demo", "--json")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert sorted(path.name for path in (shipped / "demo").iterdir()) == ["flow.html", "flow.png", "flow.vtu"]
    assert Path(record["picture"]).read_bytes().startswith(b"\x89PNG")
    page = Path(record["page"]).read_text()
    assert "<html" in page
    assert "http://" not in page.replace("http://www.w3.org", "")  # self-contained: it loads nothing
    assert "https://" not in page
    mesh = Mesh.read(record["fields"])
    assert mesh.number_of_points == record["points"]
    assert mesh.fields["u"].shape == (record["points"], 2)
    assert mesh.fields["p"].isfinite().all()
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    assert record["seconds"] < 60  # two seconds, but tests run side by side


@pytest.mark.slow
def test_the_step_of_the_demo_lies_between_training_cases_on_a_finer_mesh(shipped):
    record = json.loads(penn("demo", "--out", shipped / "demo", "--json").stdout)
    compared = record["certificate"]["compared"]
    low, high = compared["domain size"]["trained_on"]
    assert low < compared["domain size"]["value"] < high
    assert compared["mean cell size"]["value"] < compared["mean cell size"]["trained_on"][0]
    assert compared["Reynolds number"]["inside"]


@pytest.mark.slow
def test_the_demo_tells_people_certificate_time_and_files(shipped):
    text = penn("demo", "-v", "--out", shipped / "demo").stdout
    for words in ("s of them for the network", "largest error on prescribed u", "flow.vtu", "flow.png", "flow.html"):
        assert words in text


def test_the_network_that_is_shipped_gives_a_flow_with_an_eddy_behind_the_step(tmp_path):
    record = json.loads(penn("demo", "--out", tmp_path, "--json").stdout)
    certificate = record["certificate"]
    assert certificate["dirichlet"] == {"u": 0, "p": 0}
    assert certificate["checks"]["flux imbalance"]["value"] < 0.05
    assert not certificate["diverged"]
    assert all(each["inside"] for each in certificate["compared"].values())
    mesh = Mesh.read(record["fields"])
    speed = mesh.fields["u"].norm(dim=1)
    assert 1.0 < speed.max() < 2.0
    x, y = mesh.points.T
    below = (y < 0.2) & (x > 1.5) & (x < 2.5)
    assert mesh.fields["u"][below, 0].min() < -0.1  # it flows back along the floor
