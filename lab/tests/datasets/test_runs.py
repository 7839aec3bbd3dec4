"""Runs of the solver: used again, repeated where damaged, and the whole way through OpenFOAM."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from forks import forked, wait_until
from generating import make, names
from pennlab.datasets import advection_diffusion, generate, recipes
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.generate import GenerationError
from pennpde.data import storage

# Runs of the solver that are used again


def test_a_damaged_run_is_solved_again_and_a_whole_one_is_not(tmp_path, monkeypatch):
    solved = []

    def solve(velocity, diffusivity, profile, run_file, *_):
        solved.append(Path(run_file).stem)
        _write_exact_run(Path(run_file), velocity, diffusivity, profile)

    monkeypatch.setattr(advection_diffusion, "solve", solve)
    monkeypatch.setattr(advection_diffusion, "find_installation", lambda: None)
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "small")
    cases = ["u0.50_d0.50_t0.10", "u0.50_d0.50_t0.20", "u1.00_d0.50_t0.10"]
    generate.generate(recipe, tmp_path / "first", only=cases, workers=0)
    assert sorted(solved) == ["u0.50_d0.50", "u1.00_d0.50"]
    path = tmp_path / "runs" / "u0.50_d0.50.h5"
    path.write_bytes(path.read_bytes()[:-50])
    generate.generate(recipe, tmp_path / "second", only=cases, workers=0)
    assert sorted(solved) == ["u0.50_d0.50", "u0.50_d0.50", "u1.00_d0.50"]
    for name in cases:
        assert storage.CaseReader(tmp_path / "first").content(name) == storage.CaseReader(tmp_path / "second").content(
            name
        )


def test_packed_runs_serve_as_those_in_files_of_their_own(tmp_path, monkeypatch):
    runs, coefficients = tmp_path / "runs", ((0.5, 0.5), (1.0, 0.5))
    for velocity, diffusivity in coefficients:
        path = runs / f"{advection_diffusion.run_name(velocity, diffusivity)}.h5"
        _write_exact_run(path, velocity, diffusivity, advection_diffusion.PROFILES["small"])
    recipe = recipes.AdvectionDiffusionRecipe(str(runs), "small")
    only = ["u0.50_d0.50_t0.10", "u1.00_d0.50_t0.10"]
    generate.generate(recipe, tmp_path / "first", only=only, workers=0)
    advection_diffusion.pack_runs(runs)
    assert [path.name for path in runs.iterdir()] == [advection_diffusion.PACKED_RUNS]
    monkeypatch.setenv("PATH", "")  # no solver
    generate.generate(recipe, tmp_path / "second", only=only, workers=0)
    for name in only:
        assert storage.CaseReader(tmp_path / "first").content(name) == storage.CaseReader(tmp_path / "second").content(
            name
        )
    # A later run joins those that are packed.
    _write_exact_run(runs / "u0.10_d0.10.h5", 0.1, 0.1, advection_diffusion.PROFILES["small"])
    advection_diffusion.pack_runs(runs)
    assert all(advection_diffusion.has_run(runs / f"{name}.h5") for name in ("u0.10_d0.10", "u0.50_d0.50"))
    with pytest.raises(FileNotFoundError):
        advection_diffusion.read_run(runs / "u0.90_d0.90.h5")


def test_runs_of_another_profile_are_neither_used_nor_overwritten(tmp_path):
    path = tmp_path / "runs" / "u0.50_d0.50.h5"
    _write_exact_run(path, 0.5, 0.5, advection_diffusion.PROFILES["small"])
    before = path.read_bytes()
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "standard")
    with pytest.raises(GenerationError, match=r"u0.50_d0.50.h5 was computed with .*another folder with --runs"):
        generate.generate(recipe, tmp_path / "set", only=["u0.50_d0.50_t0.10"], workers=0)
    assert path.read_bytes() == before


def _write_exact_run(path, velocity, diffusivity, profile):
    import json

    import numpy as np

    x = (np.arange(profile.cells) + 0.5) / profile.cells
    truth = advection_diffusion.exact_temperature(x, advection_diffusion.TIMES, velocity, diffusivity)
    facts = {
        "name": path.stem,
        "solver": "formula",
        "settings": json.dumps(advection_diffusion.solver_settings(profile)),
        "seconds": 0.0,
    }
    advection_diffusion._write_run(path, advection_diffusion.Run(truth, facts))


# OpenFOAM itself


@pytest.mark.slow
@pytest.mark.openfoam
def test_a_start_that_is_killed_while_the_solver_runs_leaves_no_run_and_is_repeated(installation, tmp_path, folder):
    recipe = recipes.AdvectionDiffusionRecipe(str(tmp_path / "runs"), "standard")
    case = "u0.50_d0.50_t0.10"
    run_file = tmp_path / "runs" / "u0.50_d0.50.h5"
    scratch = recipes._scratch_folder(run_file)

    def is_solving():
        logs = list(scratch.glob("*/log.scalarTransportFoam"))
        return bool(logs) and b"Time = 0.05" in logs[0].read_bytes()

    with forked(lambda: make(recipe, folder, only=[case])) as process:
        wait_until(is_solving)
        os.kill(process, signal.SIGKILL)
    assert not run_file.exists()
    assert not list(folder.glob("*.vtkhdf"))
    assert scratch.exists()
    assert make(recipe, folder, only=[case]).made == (case,)
    assert names(folder) == [case]
    assert not scratch.exists()


@pytest.mark.openfoam
@pytest.mark.slow
def test_a_flow_case_comes_out_of_the_whole_pipeline(installation, tmp_path, folder):
    recipe = recipes.FlowRecipe(str(tmp_path / "runs"), "small")
    heard = []
    assert make(recipe, folder, only=["a_0.50"], on_progress=heard.append).made == ("a_0.50",)
    assert any(0 < status.under_way < 1 for status in heard)
    (case,) = storage.read(folder)
    assert case.targets["u"].shape == (case.number_of_points, 2)
    frames = replace(recipe, frames=True)
    generate.generate(frames, tmp_path / "frames", only=["a_0.50"], workers=0)
    (file,) = storage.read_files(tmp_path / "frames")
    assert file.times == tuple(round(float(time), 6) for time in flow.TIMES)
    assert file.case.targets["u"].shape == (case.number_of_points, 2, 41)
    # 11 significant bits against 16
    assert (file.case.targets["u"][..., -1] - case.targets["u"]).abs().max() < 2e-3
