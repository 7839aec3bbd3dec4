"""The studies in examples/ run, in small, and find what they are about."""

from dataclasses import replace

import pytest

from paths import ROOT
from pennpde.study import Study

pytestmark = [pytest.mark.openfoam, pytest.mark.slow]
EXAMPLES = ROOT / "examples" / "studies"


def test_every_example_is_run_here():
    assert {path.parent.name for path in EXAMPLES.glob("*/study.toml")} == {"drag", "manifold"}


def test_the_drag_coefficient_falls_with_the_reynolds_number_as_published():
    """Dennis and Chang (1970): 4.12 at Re 5, 2.85 at Re 10."""
    study = replace(Study.read(EXAMPLES / "drag" / "study.toml"), vary={"viscosity": [0.2, 0.1]}, token="small")
    assert study.run()["drag coefficient cylinder"] == pytest.approx([4.12, 2.85], rel=0.06)


def test_the_shares_of_the_outlets_are_all_of_the_flow_and_a_wider_branch_gets_more():
    vary = {"edge_1": [1.4, 1.6], "edge_2": [3.5], "edge_3": [5.5], "viscosity": [0.01]}
    given = {"design": "grid", "number": None, "vary": vary, "token": "small"}
    table = replace(Study.read(EXAMPLES / "manifold" / "study.toml"), **given).run()
    shares = [table[name] for name in table.names if name.startswith("flow split")]
    assert [sum(row) for row in zip(*shares, strict=True)] == pytest.approx([1.0, 1.0], abs=1e-9)
    assert shares[0][1] > shares[0][0] + 0.05
