"""`penn predict --quantity`: numbers of a flow on the terminal, in the record and in OpenFOAM's folder."""

import json
from pathlib import Path

import pytest

from commands import penn
from steady_flows import duct, square

TEXT = """
[initial]
u = [0.0, 0.0]
p = 0.0

[dirichlet.u]
left = [1.0, 0.0]
bottom = [0.0, 0.0]
top = [0.0, 0.0]

[dirichlet.p]
right = 0.0

[patches]
left = "x == 0"
right = "x == 1"
bottom = "y == 0"
top = "y == 1"

[parameters]
viscosity = 0.05
"""


@pytest.fixture
def case(tmp_path) -> list[object]:
    mesh, text = tmp_path / "duct.vtu", tmp_path / "duct.toml"
    duct(square("triangle", 8)).mesh.save(mesh)
    text.write_text(TEXT)
    return ["predict", mesh, "--case", text, "--steady"]


def test_quantities_are_lines_on_the_terminal_and_entries_of_the_record(case, tmp_path):
    words = ["--quantity", "pressure drop left right", "--quantity", "flow rate right"]
    shown = penn(*case, *words)
    assert shown.exit_code == 0, shown.output
    assert "pressure drop left right  " in shown.output
    record = json.loads(penn(*case, *words, "--json").stdout)
    drop, rate = record["quantities"]
    assert (drop["name"], drop["unit"]) == ("pressure drop left right", "m²/s²")
    assert rate["values"] == pytest.approx([1.0], rel=1e-6)
    assert drop["error"] <= drop["bound"]
    assert not list(Path(tmp_path).glob("postProcessing"))


@pytest.mark.parametrize(
    ("text", "said"), [("drap left", "Did you mean 'drag'"), ("drag cylinder", "bottom, left, right, top")]
)
def test_a_quantity_that_cannot_be_measured_is_refused_before_the_work(case, text, said):
    result = penn(*case, "--quantity", text)
    assert result.exit_code != 0
    assert said in " ".join(result.stderr.split())
