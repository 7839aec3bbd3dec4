"""Runs of OpenFOAM itself, made by the example's script, in every layout that it writes."""

import re
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from finished_runs import pack_files
from foam_cases import write_dictionary
from paths import ROOT, load_script
from pennlab import running
from pennpde import openfoam
from pennpde.case import Case
from pennpde.case.moments import steady_state
from pennpde.data import storage
from pennpde.data.runs.collect import collect_runs
from pennpde.data.storage import content_of
from pennpde.models.flow_physics import boundary_flux

pytestmark = pytest.mark.openfoam


def script() -> ModuleType:
    return load_script(ROOT / "examples" / "own_runs" / "make_runs.py")


@pytest.fixture(scope="module")
def bends(installation, tmp_path_factory) -> Path:
    """Six tiny bends."""
    folder = tmp_path_factory.mktemp("bends")
    script().main("bends", folder, number=6, cells=5)
    return folder


def sorted_rows(case: Case) -> np.ndarray:
    columns = [case.mesh.points, case.dirichlet["u"].mask[:, None], case.dirichlet["u"].values]
    columns += [case.targets["u"], case.targets["p"][:, None]]
    rows = torch.cat([column.double() for column in columns], dim=1).numpy()
    return rows[np.lexsort(rows[:, :2].round(9).T)]


def test_six_runs_of_ico_foam_become_a_dataset(bends, tmp_path, capsys):
    made = collect_runs(sorted(bends.iterdir()), tmp_path / "set")
    assert len(made.collected) == 6
    assert not made.failed
    assert [len(names) for names in made.report["splits"].values()] == [4, 1, 1]
    for case in storage.read(tmp_path / "set"):
        held = case.dirichlet["u"].mask
        assert torch.equal(case.targets["u"][held].float(), case.dirichlet["u"].values[held].float())
        assert boundary_flux(case.targets["u"], case).imbalance < 0.1  # five cells across
        facts = storage.read_manifest(tmp_path / "set").cases[case.name].facts
        flux = facts["flux"]
        assert flux["outlet"]["run"] == pytest.approx(-flux["inlet"]["run"], rel=1e-3)
        # The example runs for four widths over speed.
        width, speed = facts["numbers"]["inlet width"], -flux["inlet"]["run"] / facts["numbers"]["inlet width"]
        assert float(case.parameters["time"]) == pytest.approx(4 * width / speed, rel=1e-3)
    assert capsys.readouterr().out == ""


def test_a_decomposed_packed_binary_run_is_the_plain_run(bends, installation, tmp_path):
    plain = shutil.copytree(bends / "bend_00", tmp_path / "plain")
    other = shutil.copytree(plain, tmp_path / "other")
    text = re.sub(r"writeFormat\s+binary", "writeFormat ascii", (plain / "system" / "controlDict").read_text())
    (plain / "system" / "controlDict").write_text(text)
    parts = {"numberOfSubdomains": 3, "method": "simple", "simpleCoeffs": {"n": "(3 1 1)", "delta": 0.001}}
    write_dictionary(other / "system" / "decomposeParDict", parts)
    running.run(other, "decomposePar", "-time", "0:", installation=installation)
    for time in openfoam.time_folders(other):
        shutil.rmtree(time)
    pack_files(other)
    assert list(other.glob("processor2/[1-9]*/U.gz"))
    made = collect_runs([plain, other], tmp_path / "set", workers=0)
    assert set(made.collected) == {"plain", "other"}, made.failed
    one, same = (storage.read_file(tmp_path / "set", name).case for name in ("plain", "other"))
    assert storage.read_manifest(tmp_path / "set").cases["other"].facts["format"] == "OpenFOAM, decomposed"
    np.testing.assert_allclose(sorted_rows(same), sorted_rows(one), rtol=1e-6, atol=1e-9)
    # Without its undivided mesh, too.
    shutil.rmtree(other / "constant" / "polyMesh")
    collect_runs([other], tmp_path / "pieces", workers=0)
    alone = storage.read(tmp_path / "pieces")[0]
    np.testing.assert_allclose(sorted_rows(alone), sorted_rows(one), rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_text_is_the_same_run_as_binary(bends, installation, tmp_path):
    text = shutil.copytree(bends / "bend_01", tmp_path / "text")
    control = text / "system" / "controlDict"
    control.write_text(re.sub(r"writeFormat\s+binary", "writeFormat ascii; writePrecision 12", control.read_text()))
    for time in openfoam.time_folders(text)[1:]:
        shutil.rmtree(time)
    running.run(text, "icoFoam", installation=installation)
    collect_runs([bends / "bend_01", text], tmp_path / "set", workers=0)
    binary, written = (storage.read_file(tmp_path / "set", name).case for name in ("bend_01", "text"))
    torch.testing.assert_close(written.targets["u"], binary.targets["u"], rtol=1e-5, atol=1e-9)


@pytest.mark.slow
def test_a_scalar_at_four_times(installation, tmp_path):
    script().main("plumes", tmp_path / "runs", number=3, cells=8)
    collect_runs(sorted((tmp_path / "runs").iterdir()), tmp_path / "set", time="0:4:1")
    manifest = storage.read_manifest(tmp_path / "set")
    content = content_of(manifest)
    assert (content.network, content.targets) == ("advection-diffusion", "several times")
    assert content.parameters == ("diffusivity", "velocity")
    for name in manifest.cases:
        file = storage.read_file(tmp_path / "set", name)
        assert file.moments == pytest.approx((1.0, 2.0, 3.0, 4.0))
        temperature, hot = file.case.targets["T"], file.case.mesh.patch("hot").points
        assert (temperature[hot].float() == file.case.dirichlet["T"].values[hot][:, None].float()).all()
        assert (temperature.mean(dim=0).diff() > 0).all()  # it spreads


@pytest.mark.slow
def test_a_steady_family_that_converged_before_its_end(installation, tmp_path):
    script().main("diffusers", tmp_path / "runs", number=2, cells=5)
    made = collect_runs(sorted((tmp_path / "runs").iterdir()), tmp_path / "set", time="steady")
    assert len(made.collected) == 2
    case = steady_state(storage.read(tmp_path / "set")[0])
    assert set(case.targets) == {"u", "p"}
    assert boundary_flux(case.targets["u"], case).imbalance < 0.1


@pytest.mark.slow
def test_runs_are_collected_trained_on_and_predicted_without_a_file_written_by_hand(bends, tmp_path):
    """For seconds: what counts is that the three commands fit together."""
    from commands import penn

    made = penn("collect", *sorted(bends.iterdir()), "--out", tmp_path / "set", "--quiet")
    assert made.exit_code == 0, made.output
    trained = penn(
        *("train", tmp_path / "set", "--from", "flow", "--out", tmp_path / "net"),
        *("--steps", 3, "--threads", 1, "--no-report", "--quiet"),
    )
    assert trained.exit_code == 0, trained.output
    new = shutil.copytree(bends / "bend_05", tmp_path / "new")
    for time in openfoam.time_folders(new)[1:]:
        shutil.rmtree(time)
    predicted = penn("predict", new, "--model", tmp_path / "net", "--out", tmp_path / "new.vtu", "--force", "--json")
    assert predicted.exit_code == 0, predicted.output
    assert (tmp_path / "new.vtu").stat().st_size > 1000
