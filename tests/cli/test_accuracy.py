"""`penn predict --accuracy`, `--fast`, `--fine`: on which level a network predicts."""

import json

import pytest

from commands import penn, store
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh
from problems import DUCT


@pytest.fixture(scope="module")
def duct(tmp_path_factory):
    folder = tmp_path_factory.mktemp("duct")
    mesh = coarse_mesh("a_0.37", cells_per_length=6)
    Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4)).save(folder / "duct.vtu")
    (folder / "duct.toml").write_text(DUCT)
    return "predict", folder / "duct.vtu", "--case", folder / "duct.toml", "--time", "0.5"


@pytest.mark.parametrize(
    ("options", "level"), [(("--fast",), "fast"), (("--fine",), "fine"), (("--accuracy", "99"), "fast")]
)
def test_the_level_is_the_one_asked_for_and_is_told(duct, options, level):
    finished = penn(*duct, *options, "--force", "--json")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["level"] == level
    assert record["expected"]["errors"]["u"]["expected"] > 0


def test_what_cannot_be_asked_for_is_said_before_any_work(duct, tmp_path):
    both = penn(*duct, "--fast", "--fine")
    assert both.exit_code == 2
    assert "--accuracy, --fast and --fine exclude each other" in both.stderr
    assert "in per cent, above 0 and below 100" in penn(*duct, "--accuracy", "0").stderr
    store(tmp_path / "ducts")
    assert "has no levels of accuracy" in penn(*duct[:4], "--model", tmp_path / "ducts", "--fast").stderr
