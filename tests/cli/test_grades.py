"""The grade of a prediction wherever it goes: terminal, JSON, files, pictures; and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from calibrated import calibrate
from commands import penn, store
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh
from problems import DUCT, rectangle

LEVELS = {"good": 0.02, "fair": 0.15, "poor": 0.4, "refused": 0.8}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("grades")
    mesh = coarse_mesh("a_0.37", cells_per_length=4)
    Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4)).save(folder / "duct.vtu")
    (folder / "duct.toml").write_text(DUCT)
    for grade, level in LEVELS.items():
        store(folder / grade)
        calibrate(folder / grade, level)
    return folder


def predicted(folder: Path, grade: str, *options: object):
    return penn("predict", folder / "duct.vtu", "--case", folder / "duct.toml", "--model", folder / grade, *options)


@pytest.mark.parametrize("grade", ["good", "fair", "poor"])
@pytest.mark.parametrize("suffix", [".vtu", ".vtkhdf"])
def test_files_and_json_carry_the_grade(workplace, tmp_path, grade, suffix):
    import pyvista

    finished = predicted(workplace, grade, "--out", tmp_path / f"flow{suffix}", "--json")
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)["expected"]
    assert record["grade"] == grade
    assert record["errors"]["u"]["expected"] == pytest.approx(LEVELS[grade], rel=0.1)
    found = pyvista.read(tmp_path / f"flow{suffix}")
    assert str(found.field_data["grade"][0]) == grade
    expected = [record["errors"]["u"]["expected"], record["errors"]["u"]["bound"]]
    assert np.allclose(found.field_data["expected error of u"], expected)
    assert "expected_error_u" in found.point_data
    warned = "warnings" in found.field_data and f"Graded {grade}" in str(found.field_data["warnings"][0])
    assert warned == (grade == "poor")


def test_the_terminal_says_expected_error_and_grade(workplace):
    finished = predicted(workplace, "good")
    assert "expected error u 2 %" in finished.output
    assert "90 % of such cases below" in finished.output
    assert "good" in finished.output


def test_a_picture_says_the_grade_in_its_corner(workplace, tmp_path):
    from PIL import Image

    for grade in ("good", "poor"):
        assert predicted(workplace, grade, "--png", tmp_path / f"{grade}.png").exit_code == 0
    with Image.open(tmp_path / "good.png") as good, Image.open(tmp_path / "poor.png") as poor:
        assert str(good.info["Description"]).startswith("good: expected error u 2")
        assert str(poor.info["Description"]).startswith("poor: expected error u 4")
        first, second = (np.asarray(each.convert("L")) for each in (good, poor))
    # The fields are the same; what differs is drawn in the lowest part, at the right.
    assert first.shape == second.shape
    rows, columns = np.nonzero(first != second)
    assert rows.min() > 0.85 * len(first)
    assert columns.min() > 0.5 * first.shape[1]


def test_warnings_are_in_the_picture_and_in_the_field_data(workplace, tmp_path):
    import pyvista
    from PIL import Image

    finished = predicted(workplace, "good", "--png", tmp_path / "flow.png", "--out", tmp_path / "flow.vtu", "--json")
    warnings = json.loads(finished.stdout)["certificate"]["warnings"]
    assert any("Inflow and outflow differ" in each for each in warnings)
    with Image.open(tmp_path / "flow.png") as picture:
        described = str(picture.info["Description"]).splitlines()
    assert described[1:] == [f"warning: {each}" for each in warnings]
    assert str(pyvista.read(tmp_path / "flow.vtu").field_data["warnings"][0]).splitlines() == warnings


def test_where_the_error_is_expected_can_be_drawn(workplace, tmp_path):
    from PIL import Image

    predicted(workplace, "good", "--png", tmp_path / "plain.png")
    predicted(workplace, "good", "--png", tmp_path / "error.png", "--draw-error")
    heights = []
    for name in ("plain.png", "error.png"):
        with Image.open(tmp_path / name) as picture:
            heights.append(picture.size[1])
    assert heights[1] > 1.4 * heights[0]


def test_a_prediction_that_is_probably_useless_is_refused(workplace, tmp_path):
    targets = ["--out", tmp_path / "flow.vtu", "--png", tmp_path / "flow.png"]
    finished = predicted(workplace, "refused", *targets)
    assert finished.exit_code == 3
    assert list(tmp_path.iterdir()) == []
    for words in ("nothing was written", "xpected error of u 8", "What would help", "--force"):
        assert words in " ".join(finished.stderr.split())
    assert "Traceback" not in finished.output


def test_a_refusal_is_json_for_programs(workplace):
    finished = predicted(workplace, "refused", "--json")
    assert finished.exit_code == 3
    record = json.loads(finished.stdout)
    assert record["expected"]["grade"] == "refused"
    assert record["written"] == []


def test_force_writes_what_is_refused_with_its_grade(workplace, tmp_path):
    finished = predicted(workplace, "refused", "--force", "--out", tmp_path / "flow.vtu", "--json")
    assert finished.exit_code == 0
    import pyvista

    assert str(pyvista.read(tmp_path / "flow.vtu").field_data["grade"][0]) == "refused"


@pytest.mark.parametrize(("grade", "named"), [("good", False), ("fair", False), ("poor", True), ("refused", True)])
def test_strict_does_not_accept_what_is_graded_poor(workplace, tmp_path, grade, named):
    finished = predicted(workplace, grade, "--strict", "--force", "--out", tmp_path / "flow.vtu")
    # The untrained network loses mass, which is a warning whatever its grade.
    assert finished.exit_code == 1
    assert (f"Graded {grade}" in finished.stderr) == named
    assert list(tmp_path.iterdir()) == []


def test_what_penn_wrote_can_be_its_input(workplace, tmp_path):
    predicted(workplace, "good", "--out", tmp_path / "flow.vtu")
    mesh = Mesh.read(tmp_path / "flow.vtu")
    assert {"u", "p", "expected_error_u", "expected_error_p"} <= mesh.fields.keys()


def test_facts_of_a_mesh_are_field_data(tmp_path):
    import pyvista

    rectangle((3, 3)).with_facts({"grade": "good", "numbers": (1.0, 2.0)}).save(tmp_path / "mesh.vtu")
    found = pyvista.read(tmp_path / "mesh.vtu").field_data
    assert str(found["grade"][0]) == "good"
    assert list(found["numbers"]) == [1.0, 2.0]


def test_three_lines_are_the_result_and_v_adds_the_certificate(workplace):
    short = predicted(workplace, "good").stdout.splitlines()
    assert len(short) == 3
    assert short[0].startswith("good: ")
    long = predicted(workplace, "good", "-v").stdout
    assert short[0] in long
    assert "flux imbalance" in long
