"""`penn study` as users type it."""

import csv
import json

import pytest

from commands import penn
from foam_cases import write_plane_channel
from pennpde.study import Study
from small_studies import write_problem

VARY = ("--vary", "viscosity=0.01:0.02:3", "--vary", "inlet.u=0.5,1")
MEASURE = ("--quantity", "pressure drop inlet outlet", "--times", "1", "--fast", "--workers", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    write_problem(folder)
    return folder


@pytest.fixture(scope="module")
def rows(folder):
    """Of the study, from its file."""
    finished = penn("study", folder / "study.toml", "--out", folder / "out", "--json")
    assert finished.exit_code == 0, finished.output
    return json.loads(finished.stdout)["rows"]


def test_a_study_file_becomes_a_table_and_a_report(folder, rows):
    assert [(row["viscosity"], row["inlet.u"]) for row in rows] == [
        (nu, speed) for nu in (0.01, 0.015, 0.02) for speed in (0.5, 1.0)
    ]
    with (folder / "out" / "table.csv").open(newline="") as stream:
        written = [float(row["pressure drop inlet outlet"]) for row in csv.DictReader(stream)]
    assert written == [row["pressure drop inlet outlet"] for row in rows]
    assert (folder / "out" / "report.html").stat().st_size > 10_000


def test_the_same_study_by_options_has_the_same_numbers(folder, rows):
    finished = penn(
        "study", folder / "step.vtu", "--case", folder / "step.toml", *VARY, *MEASURE, "--out", folder / "two", "--json"
    )
    assert finished.exit_code == 0, finished.output
    found = json.loads(finished.stdout)["rows"]
    clock = {"seconds"}
    assert [{k: v for k, v in row.items() if k not in clock} for row in found] == [
        {k: v for k, v in row.items() if k not in clock} for row in rows
    ]


def test_people_are_told_the_smallest_and_the_largest(folder, rows):
    finished = penn("study", "run", folder / "study.toml", "--out", folder / "out")
    best = min(rows, key=lambda row: row["pressure drop inlet outlet"])
    assert f"smallest pressure drop inlet outlet: {best['pressure drop inlet outlet']:.4g} at" in finished.stdout
    assert f"(design {best['design']})" in finished.stdout


def test_a_stopped_study_exits_with_130_and_says_that_it_goes_on(folder, rows, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "run", stop)
    finished = penn("study", folder / "study.toml", "--out", folder / "stopped")
    assert finished.exit_code == 130
    assert "the same command goes on" in finished.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["study.toml", "--fast"], 2, "set level there"),
        (["step.vtu", *VARY, *MEASURE], 1, "--case"),
        (["step.vtu", "--case", "step.toml", "--vary", "viscosity"], 1, "NAME=VALUES"),
        (["step.vtu", "--case", "step.toml", *VARY], 1, "measures something"),
        (["step.vtu", "--case", "step.toml", *VARY, *VARY, *MEASURE], 2, "given twice"),
        (["step.vtu", "--case", "step.toml", "--vary", "inlet.speed=1", *MEASURE], 1, "inlet.u"),
        (["step.vtu", "--case", "step.toml", *VARY, *MEASURE, "--fine"], 2, "give one of"),
        (["study.toml", "--keep-fields", ".png"], 2, "none of .vtu"),
        (["absent.vtu", "--case", "step.toml", *VARY, *MEASURE], 1, "absent.vtu"),
        (["verify", "step.vtu", "--solver", "icoFoam"], 1, "not the folder of a study"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, monkeypatch, words, code, told):
    monkeypatch.chdir(folder)
    finished = penn("study", *words)
    assert finished.exit_code == code, finished.output
    assert told in " ".join(finished.stderr.replace("│", " ").split())
    assert "Traceback" not in finished.stderr


def test_a_case_with_other_physics_is_refused_before_any_work(tmp_path, monkeypatch):
    case = write_plane_channel(tmp_path / "case")
    control = case / "system" / "controlDict"
    control.write_text(control.read_text().replace("icoFoam", "buoyantPimpleFoam"))
    monkeypatch.chdir(tmp_path)
    words = ("study", case, "--vary", "viscosity=0.1,0.2", "--quantity", "flow rate right", "--workers", "0", "--fast")
    finished = penn(*words)
    assert finished.exit_code == 1
    assert "physics that the network does not know" in finished.stderr
    assert not (tmp_path / "case_study").exists()


def test_a_solver_that_is_not_there_is_named(folder, rows):
    finished = penn("study", "verify", folder / "out", "--solver", "absentFoam")
    assert finished.exit_code == 1
    assert "there is no program absentFoam" in finished.stderr


def test_designs_that_are_no_openfoam_cases_cannot_be_verified(folder, rows):
    finished = penn("study", "verify", folder / "out", "--solver", "true", "--top", "1")
    assert "Only designs that are OpenFOAM cases" in finished.stderr
