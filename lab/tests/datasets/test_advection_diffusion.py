"""Advection and diffusion: names, meshes, the exact solution, and OpenFOAM against it and against the authors."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from paths import ROOT
from pennlab.datasets import advection_diffusion, packing
from pennlab.datasets.advection_diffusion import PROFILES, TIMES, exact_temperature
from pennpde.data import storage

pytestmark = pytest.mark.slow  # with others like it more than some seconds

SAMPLES = [(0.5, 0.5, 0.5), (0.5, 0.6, 0.6), (0.6, 0.5, 0.6), (0.6, 0.6, 0.5)]
COMMITTED = ROOT / "data" / "advection_diffusion"


def exact_run(velocity, diffusivity, cells=400):
    x = (np.arange(cells) + 0.5) / cells
    return advection_diffusion.Run(exact_temperature(x, TIMES, velocity, diffusivity), {})


# The set


def test_there_are_1200_cases_from_120_runs():
    names = advection_diffusion.all_names()
    assert len(set(names)) == 1200
    assert len({name.rpartition("_")[0] for name in names}) == 120
    assert "u0.50_d0.50_t0.50" in names
    assert not any(name.startswith("u0.00_d0.00") for name in names)


def test_splits_have_the_sizes_of_the_paper_and_share_no_case():
    splits = advection_diffusion.splits()
    assert {split: len(names) for split, names in splits.items()} == {"train": 960, "validation": 120, "test": 120}
    assert {name for names in splits.values() for name in names} == set(advection_diffusion.all_names())
    assert splits == advection_diffusion.splits()
    assert splits != advection_diffusion.splits(seed=1)


def test_names_say_the_parameters():
    for name in advection_diffusion.all_names()[::97]:
        assert advection_diffusion.case_name(*advection_diffusion.parse_name(name)) == name


# The exact solution


@pytest.mark.parametrize(("velocity", "diffusivity"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.1), (0.3, 0.7)])
def test_the_exact_solution_solves_the_equation_and_meets_the_conditions(velocity, diffusivity):
    step, pace = 1e-4, 1e-5
    x, t = np.array([0.15, 0.5, 0.85]), np.array([0.3, 0.6, 0.9])

    def at(dx=0.0, dt=0.0):
        return exact_temperature(x + dx, tuple(t + dt), velocity, diffusivity)

    rate = (at(dt=pace) - at(dt=-pace)) / (2 * pace)
    slope = (at(step) - at(-step)) / (2 * step)
    curvature = (at(step) - 2 * at() + at(-step)) / step**2
    assert_close(rate, diffusivity * curvature - velocity * slope, rtol=0, atol=1e-5)
    ends = exact_temperature(np.array([0.0, 1.0 - step, 1.0 + step]), TIMES, velocity, diffusivity)
    assert_close(ends[0], np.ones(4), rtol=0, atol=1e-12)
    assert_close(ends[1], ends[2], rtol=0, atol=1e-7)


def test_the_exact_solution_starts_cold_and_ends_hot():
    x = np.linspace(0.1, 1.0, 10)
    assert np.abs(exact_temperature(x, (1e-4,), 0.5, 0.5)).max() < 1e-9
    assert np.abs(exact_temperature(x, (1e3,), 0.5, 0.5) - 1).max() < 1e-9


def test_without_diffusion_a_step_moves_along():
    assert exact_temperature(np.array([0.1, 0.24, 0.26, 0.9]), (0.5,), 0.5, 0.0).ravel().tolist() == [1, 1, 0, 0]


# Cases


@pytest.mark.parametrize(("points", "jitter"), [(11, 0.0), (21, 0.15)])
def test_a_case_has_the_conditions_of_the_problem_and_targets_that_meet_them(points, jitter):
    case = advection_diffusion.case_from_run(exact_run(0.5, 0.2), "u0.50_d0.20_t0.30", points, jitter)
    x, y = case.mesh.points.T
    assert case.number_of_points == points**2
    assert torch.equal(case.dirichlet["T"].mask, x == 0)
    assert_close(case.dirichlet["T"].values[x == 0], torch.full((points,), 0.3, dtype=torch.float64))
    assert torch.equal(case.targets["T"][x == 0], torch.full((points, 4), 0.3, dtype=torch.float64))
    assert torch.equal(case.neumann["T"].mask, (x == 1) | (y == 0) | (y == 1))
    assert not case.neumann["T"].normal_derivative.any()
    assert not case.initial["T"].any()
    assert_close(case.features["inlet_distance"], x)
    assert case.parameters["velocity"].tolist() == [0.5, 0.0]
    exact = 0.3 * exact_temperature(x.numpy(), TIMES, 0.5, 0.2)
    assert_close(case.targets["T"].numpy(), exact, rtol=0, atol=1e-4)  # linear interpolation between 400 cells


def test_cases_are_linear_in_the_inlet_temperature():
    run = exact_run(0.5, 0.2)
    small, large = (advection_diffusion.case_from_run(run, f"u0.50_d0.20_t{hot}") for hot in ("0.20", "1.00"))
    assert_close(5 * small.targets["T"], large.targets["T"])


def test_jitter_moves_interior_points_only_and_differently_in_each_case():
    plain = advection_diffusion.coarse_mesh("u0.50_d0.20_t0.30", 21)
    one, again, other = (
        advection_diffusion.coarse_mesh(name, 21, 0.15)
        for name in ("u0.50_d0.20_t0.30", "u0.50_d0.20_t0.30", "u0.50_d0.20_t0.40")
    )
    shift = (one.points - plain.points).norm(dim=1)
    boundary = torch.from_numpy(plain.boundary_points)
    assert not shift[boundary].any()
    assert 0.1 / 20 < shift.max() <= 0.15 / 20 + 1e-4
    assert torch.equal(one.points, again.points)
    assert not torch.equal(one.points, other.points)


# OpenFOAM


def mean_squared_difference(sample, reference, profile, scratch):
    """To the authors' sample, at their points."""
    velocity, diffusivity, hot = sample
    arrays = np.load(reference / "samples" / f"advection_diffusion_u{velocity}_d{diffusivity}_t{hot}.npz")
    advection_diffusion.solve(velocity, diffusivity, profile, scratch / "run.h5")
    ours = hot * advection_diffusion.read_run(scratch / "run.h5").at(arrays["points"][:, 0])
    assert arrays["times"][1:].tolist() == list(TIMES)
    return float(np.mean((ours - arrays["T"][1:].T) ** 2))


@pytest.mark.openfoam
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_coarse_run_agrees_with_the_authors_sample(sample, reference, installation, tmp_path):
    assert mean_squared_difference(sample, reference, PROFILES["small"], tmp_path) < 1e-4


@pytest.mark.openfoam
@pytest.mark.parametrize("sample", SAMPLES)
def test_a_standard_run_agrees_with_the_authors_sample(sample, reference, installation, tmp_path):
    assert mean_squared_difference(sample, reference, PROFILES["standard"], tmp_path) < 1e-6


@pytest.mark.openfoam
@pytest.mark.parametrize(("velocity", "diffusivity"), [(1.0, 0.1), (0.0, 1.0)])
def test_a_run_agrees_with_the_exact_solution(velocity, diffusivity, installation, tmp_path):
    advection_diffusion.solve(velocity, diffusivity, PROFILES["small"], tmp_path / "run.h5")
    run = advection_diffusion.read_run(tmp_path / "run.h5")
    exact = exact_temperature(run.x, TIMES, velocity, diffusivity)
    assert np.mean((run.temperature - exact) ** 2) < 1e-5
    assert run.facts["solver"].startswith("OpenFOAM")


@pytest.mark.openfoam
def test_a_run_without_diffusion_stays_between_cold_and_hot(installation, tmp_path):
    advection_diffusion.solve(1.0, 0.0, PROFILES["small"], tmp_path / "run.h5")
    temperature = advection_diffusion.read_run(tmp_path / "run.h5").temperature
    assert temperature.min() > -1e-12
    assert temperature.max() < 1 + 1e-12


# The committed set


@pytest.mark.slow  # flow/test_flow.py reads the other committed set in the default run
def test_the_committed_set_is_complete_and_intact():
    manifest = storage.read_manifest(COMMITTED)
    assert {split: list(names) for split, names in manifest.splits.items()} == advection_diffusion.splits()
    assert set(manifest.cases) == set(advection_diffusion.all_names())
    assert not manifest.failed
    assert packing.intact(COMMITTED, manifest.cases, manifest) == list(manifest.cases)
    assert len(manifest.files) == 3
    assert manifest.settings["solver"] == json.loads(
        json.dumps(advection_diffusion.solver_settings(PROFILES["standard"]))
    )
    assert storage.bytes_on_disk(COMMITTED, manifest) < 4e6


def test_the_committed_cases_agree_with_the_exact_solution():
    manifest = storage.read_manifest(COMMITTED)
    for name in itertools.islice(manifest.names("test"), 0, None, 12):
        case = storage.read_file(COMMITTED, name, manifest).case
        velocity, diffusivity, hot = advection_diffusion.parse_name(name)
        if diffusivity:
            x = case.mesh.points[:, 0].numpy()
            exact = hot * exact_temperature(x, TIMES, velocity, diffusivity)
            assert np.mean((case.targets["T"].numpy() - exact) ** 2) < 1e-6
