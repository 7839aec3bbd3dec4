"""Designs solved by OpenFOAM: its numbers and the actual errors stand in the table, and its runs can be collected."""

import json
import shutil
from pathlib import Path

import pytest

from commands import penn
from paths import ROOT
from pennpde.study import Study
from pennpde.study.table import read_table
from pennpde.study.verification import flow_of

pytestmark = pytest.mark.openfoam
TEMPLATE = ROOT / "examples" / "studies" / "manifold" / "template"
SPLITS = [f"flow split outlet_{k} outlet_{1 + k % 3} outlet_{1 + (k + 1) % 3}" for k in (1, 2, 3)]
ICO = """
ddtSchemes { default Euler; }
gradSchemes { default Gauss linear; }
divSchemes { default none; div(phi,U) Gauss linear; }
laplacianSchemes { default Gauss linear corrected; }
interpolationSchemes { default linear; }
snGradSchemes { default corrected; }
"""
PISO = """
PISO { nCorrectors 2; nNonOrthogonalCorrectors 0; }
solvers { pFinal { solver PCG; preconditioner DIC; tolerance 1e-9; relTol 0; } }
"""


@pytest.fixture(scope="module")
def verified(tmp_path_factory) -> Path:
    """A study of four manifolds at t = 0.4, two of which icoFoam has solved."""
    folder = tmp_path_factory.mktemp("manifold")
    case = folder / "template"
    shutil.copytree(TEMPLATE, case)
    schemes = case / "system" / "fvSchemes"
    schemes.write_text(schemes.read_text().partition("ddtSchemes")[0] + ICO)
    with (case / "system" / "fvSolution").open("a") as stream:
        stream.write(PISO)
    with (case / "system" / "controlDict").open("a") as stream:
        stream.write("deltaT 0.01;\n")
    study = Study(
        case,
        {"edge_1": [1.4, 1.6], "edge_2": [3.5], "edge_3": [5.5], "inlet.u": [0.5, 1.0]},
        [*SPLITS, "pressure drop inlet outlet_1", "flow rate inlet"],
        times=[0.2, 0.4],
        level="fast",
        mesher="blockMesh",
    )
    study.run(folder / "out")
    finished = penn("study", "verify", folder / "out", "--solver", "icoFoam", "--designs", "1,4", "--json")
    assert finished.exit_code == 0, finished.output
    assert json.loads(finished.stdout)["verified"] == [1, 4]
    return folder / "out"


def test_the_solver_agrees_with_the_prediction_and_its_errors_are_actual(verified):
    table = read_table(verified)
    assert table["solver"] == ["icoFoam", None, None, "icoFoam"]
    assert table["solver reason"] == ["", "", "", ""]
    for name in SPLITS:
        for time in ("0.2", "0.4"):
            ours, theirs = table[f"{name} at {time}"], table[f"{name} at {time} solver"]
            assert theirs[1] is theirs[2] is None
            assert [ours[0], ours[3]] == pytest.approx([theirs[0], theirs[3]], abs=0.02)
            assert table[f"{name} at {time} actual error"][0] == ours[0] - theirs[0]
    ours, theirs = table["pressure drop inlet outlet_1 at 0.4"], table["pressure drop inlet outlet_1 at 0.4 solver"]
    assert [ours[0], ours[3]] == pytest.approx([theirs[0], theirs[3]], rel=0.1)


def test_the_fluxes_of_the_solver_are_in_balance_and_those_of_the_inlet_exact(verified):
    table = read_table(verified)
    assert table["flow rate inlet at 0.4 solver"][3] == pytest.approx(-1.0, abs=1e-9)
    equation = Study(TEMPLATE).network.equation
    flow = flow_of(verified / "verified" / "00004", equation, (0.4,))
    assert abs(flow.outflow.sum()) < 1e-5  # of the solver's tolerance
    assert flow.force(flow.facets("wall")).shape[0] == 1


def test_penn_collect_takes_the_runs(verified):
    runs = sorted((verified / "verified").iterdir())
    shares = ("--test-share", "0", "--validation-share", "0", "--workers", "0")
    finished = penn("collect", *runs, "--out", verified / "data", "--time", "0.2,0.4", *shares, "--json")
    assert finished.exit_code == 0, finished.output
    assert json.loads(finished.stdout)["collected"] == ["00001", "00004"]


def test_a_solver_that_fails_is_a_reason_and_the_others_are_solved(verified):
    finished = penn("study", "verify", verified, "--solver", "false", "--designs", "2,3")
    assert finished.exit_code == 0
    assert finished.stderr.count("false failed with exit status 1") == 2
    table = read_table(verified)
    assert table["solver"] == ["icoFoam", "false", "false", "icoFoam"]
    assert table[f"{SPLITS[0]} at 0.4 solver"][1] is None
