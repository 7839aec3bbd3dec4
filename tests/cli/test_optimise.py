"""`penn optimise`: a study file says what varies, the options say what is wanted."""

import json

import pytest

import pennpde as penn
from pennpde import cli
from steady_flows import square

PROBLEM = """
[dirichlet.u]
left = [1.0, 0.0]
bottom = 0.0
top = 0.0
[dirichlet.p]
right = 0.0
[neumann.u]
right = 0.0
[initial]
u = [0.0, 0.0]
p = 0.0
[parameters]
viscosity = 0.05
"""
STUDY = """
input = "duct.vtu"
problem = "duct.toml"
level = "fast"
[vary]
bump = "-0.3:0.3"
[morph.bump]
at = [0.5, 1.0]
direction = [0, 1]
radius = 0.45
fixed = ["left", "right", "bottom"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    square("quad", 6, jitter=0.0).save(tmp_path / "duct.vtu")
    (tmp_path / "duct.toml").write_text(PROBLEM)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    with pytest.raises(SystemExit) as ended:
        cli.main(["optimise", *words])
    return ended.value.code


def test_a_study_file_is_optimised(folder, capsys):
    code = run(
        "study.toml", "--minimise", "total pressure drop left right", "--start", "bump=-0.2", "--json", "--out", "best"
    )
    assert code == 0
    record = json.loads(capsys.readouterr().out)
    assert record["values"]["bump"] > 0
    assert record["gain"] > record["expected_error_of_gain"]
    assert json.loads((folder / "best" / "optimum.json").read_text())["values"] == record["values"]
    assert penn.read(folder / "best" / "best.vtu").fields["p"].isfinite().all()


def test_options_say_what_varies(folder, capsys):
    code = run(
        "duct.vtu", "--case", "duct.toml", "--vary", "left.u=0.5:3", "--maximise", "flow rate right",
        "--subject-to", "pressure drop left right < 2", "--fast",
    )  # fmt: skip
    assert code == 0
    told = capsys.readouterr()
    assert "flow rate right: " in told.out
    assert "left.u = " in told.out


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["study.toml"], "one quantity"),
        (["study.toml", "--minimise", "flow rate right", "--vary", "left.u=1:2"], "says what varies"),
        (["study.toml", "--minimise", "flow rate nowhere"], "nowhere"),
        (["duct.vtu", "--case", "duct.toml", "--minimise", "flow rate right"], "Nothing varies"),
        (["study.toml", "--minimise", "flow rate right", "--start", "bump"], "NAME=NUMBER"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_is_wrong_is_said(words, match, capsys):
    assert run(*words) in (1, 2)
    assert match in capsys.readouterr().err.replace("\n", " ")
