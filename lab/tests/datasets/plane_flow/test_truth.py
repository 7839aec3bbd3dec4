"""The truth of plane flows by OpenFOAM, and the dataset that is made of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pennlab.datasets.generate import generate
from pennlab.datasets.plane_flow import cases, flows, meshes, quality, truth
from pennlab.datasets.plane_flow.conditions import Inlet, Outlet, Wall
from pennlab.datasets.plane_flow.domain import Domain, Piece
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution, boundary_velocity
from pennlab.datasets.plane_flow.meshes import MeshPlan
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennlab.datasets.plane_flow.shapes import FAMILIES
from pennlab.datasets.plane_flow.shapes.drawing import chain
from pennlab.datasets.plane_flow.truth import Truth, may_be_steady, truth_triangles
from pennpde.case.moments import steady_state
from pennpde.data import storage

REYNOLDS = 20.0


@pytest.fixture(scope="module")
def poiseuille():
    """A straight channel with a parabolic inlet."""
    outer = [
        *chain([(0, 0), (2, 0)], "wall"),
        Piece.of([(2, 0), (2, 1)], "outlet"),
        *chain([(2, 1), (0, 1)], "wall"),
        Piece.of([(0, 1), (0, 0)], "inlet"),
    ]
    conditions = {"wall": Wall(), "outlet": Outlet(), "inlet": Inlet((0.0, 1.0), (0.0, 0.0), 1.0, "parabolic")}
    return Flow("channel_0000", "step", Domain.of(outer), conditions, REYNOLDS, (3.0, 4.0))


def exact(points):
    """Of plane Poiseuille flow: velocity and pressure."""
    y = points[:, 1]
    return np.stack([6 * y * (1 - y), np.zeros_like(y)], axis=1), 12 / REYNOLDS * (2 - points[:, 0])


@pytest.mark.slow
@pytest.mark.openfoam
def test_both_solvers_keep_poiseuille_flow(poiseuille, tmp_path):
    found = truth.solve(poiseuille, tmp_path / "case", Resolution(2.5))
    velocity, pressure = exact(found.mesh.points)
    weights = quality.point_areas(found.mesh)
    assert found.facts["steady"]

    def error(values, expected):
        squares = weights @ ((values - expected) ** 2).reshape(len(weights), -1)
        return np.sqrt(squares.sum() / (weights @ (expected**2).reshape(len(weights), -1)).sum())

    # About 14 cells across: second order leaves some tenths of a per cent.
    assert error(found.velocity[..., -1], velocity) < 0.01
    assert error(found.steady_velocity, velocity) < 0.01
    assert error(found.steady_pressure, pressure) < 0.03
    outlet = np.unique(found.mesh.edges[found.mesh.patches["outlet"]])
    assert np.abs(found.pressure[outlet]).max() == 0


def known_truth(flow):
    """Fields of Poiseuille flow as a truth, computed by nobody."""
    mesh = truth_triangles(flow, Resolution(2.0))
    velocity, pressure = exact(mesh.points)
    times = len(flow.moments)
    return Truth(
        mesh,
        np.repeat(velocity[..., None], times, axis=-1),
        np.repeat(pressure[:, None], times, axis=-1),
        velocity,
        pressure,
    )


def test_a_case_has_the_truth_at_its_points_and_obeys_its_conditions(poiseuille):
    mesh = meshes.network_mesh(poiseuille, MeshPlan("triangles", 12.0, 0.5, 1))
    case = cases.case_with_truth(poiseuille, mesh, known_truth(poiseuille), "channel_0000.a")
    velocity, pressure = (torch.from_numpy(values) for values in exact(mesh.points.numpy()))
    # Linear between points of the truth, 0.06 apart: the curvature of the parabola leaves 12 · 0.06² / 8.
    assert (case.targets["u"][..., 0] - velocity).abs().max() < 0.006
    assert (case.targets[cases.STEADY_VELOCITY] - velocity).abs().max() < 0.006
    assert (case.targets["p"][..., 1] - pressure).abs().max() < 0.001  # linear, and rounded
    u = case.dirichlet["u"]
    assert torch.equal(case.targets["u"][u.mask][..., 0], u.values[u.mask])


def test_a_case_at_a_moment_and_in_its_steady_state(poiseuille):
    mesh = meshes.network_mesh(poiseuille, MeshPlan("triangles", 12.0, 0.5, 1))
    case = cases.case_with_truth(poiseuille, mesh, known_truth(poiseuille), "channel_0000.a")
    file = storage.vtkhdf.CaseFile(case, (3.0, 4.0), {})
    later = file.at_moment(1)
    assert float(later.parameters["time"]) == 4.0
    assert later.targets["u"].shape == mesh.points.shape
    steady = steady_state(file.case)
    assert steady is not None
    assert torch.equal(steady.targets["p"], case.targets[cases.STEADY_PRESSURE])


def test_the_flux_through_an_inlet_is_exact_on_any_faces():
    flow = next(
        f for f in map(flows.draw_flow, (f"step_{n:04d}" for n in range(40))) if f.conditions["inlet"].profile == "jet"
    )
    dual = truth.dual_of(truth_triangles(flow, Resolution(3.0)))
    values = boundary_velocity(flow, dual, "inlet")
    assert (values[:, 0] * dual.face_lengths["inlet"]).sum() == pytest.approx(1.0, abs=1e-12)


def test_steady_states_are_looked_for_only_where_eddies_are_not_shed():
    bend, body = flows.draw_flow("bend_0000"), flows.draw_flow("round-bodies_0033")
    numbers = {"bend": (399.0, 401.0), "body": (20.0, 399.0)}
    assert [may_be_steady(replace(bend, reynolds=number)) for number in numbers["bend"]] == [True, False]
    assert [may_be_steady(replace(body, reynolds=number)) for number in numbers["body"]] == [True, False]


@pytest.mark.slow
def test_the_compared_flows_are_of_all_families_and_span_the_reynolds_numbers():
    names = quality.compared_flows()
    assert sorted(flows.parse_name(name)[0] for name in names) == sorted(FAMILIES)
    numbers = [flows.draw_flow(name).reynolds for name in names]
    assert min(numbers) < 60
    assert max(numbers) > 1000


# A tiny dataset

TINY = ("cavity_0005.a", "cavity_0005.b")


@pytest.mark.openfoam
@pytest.mark.slow
def test_a_generated_dataset_is_alike_whenever_it_is_made(tmp_path):
    recipe = PlaneFlowRecipe(spacing=4.0)
    entries = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        summary = generate(recipe, folder, only=TINY, workers=0)
        assert summary.failed == {}
        manifest = storage.read_manifest(folder)
        assert manifest.settings == json.loads(json.dumps(recipe.settings()))
        assert set(manifest.cases) == set(TINY)
        entries.append({name: manifest.cases[name] for name in TINY})
    for name in TINY:
        one, other = (entry[name] for entry in entries)
        assert one.sha256 == other.sha256
        assert one.facts["fingerprints"] == other.facts["fingerprints"]
        assert one.facts["fingerprints"]["flow"] == flows.draw_flow("cavity_0005").fingerprint()
        assert {"family", "reynolds", "times", "start", "mesh", "truth", "points", "cells"} <= one.facts.keys()
    file = storage.read_file(tmp_path / "one", "cavity_0005.a")
    assert file.times == pytest.approx(flows.draw_flow("cavity_0005").moments)
    assert cases.mesh_fingerprint(file.case.mesh) == entries[0]["cavity_0005.a"].facts["fingerprints"]["mesh"]
    again = generate(recipe, tmp_path / "one", only=TINY, workers=0)
    assert set(again.kept) == set(TINY)


@pytest.mark.slow
@pytest.mark.openfoam
def test_a_flow_that_cannot_be_computed_is_recorded_with_its_reason(tmp_path):
    summary = generate(PlaneFlowRecipe(spacing=4.0, timeout=0.01), tmp_path, only=TINY[:1], workers=0)
    assert list(summary.failed) == [TINY[0]]
    failed = storage.read_manifest(tmp_path).failed[TINY[0]]
    assert "time" in failed["error"].lower() or "0.01" in failed["error"]
    assert TINY[0] not in storage.read_manifest(tmp_path).cases
