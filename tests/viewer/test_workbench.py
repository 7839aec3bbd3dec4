"""Requests to views, without a browser."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import rectangle

from pennpde import checkpoints
from pennpde.datasets import storage
from pennpde.datasets.flow.cases import coarse_mesh, flow_through
from pennpde.models import registry
from pennpde.viewer import wording, workbench
from pennpde.viewer.boundary import Role
from pennpde.viewer.workbench import (
    TEMPLATES,
    DatasetRequest,
    MeshRequest,
    TemplateRequest,
    Workbench,
)

COARSE = 6.0


@pytest.fixture(scope="module")
def bench(network_folder, dataset_folder) -> Workbench:
    return Workbench.of(str(network_folder), dataset_folder)


def record_of_view(view):
    return json.loads(gzip.decompress(view.record))


def roles_of(upload, inlet: str, outlet: str) -> tuple[Role, ...]:
    return tuple(
        "inlet" if inlet in each.place else "outlet" if outlet in each.place else "wall" for each in upload.pieces
    )


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.title)
def test_every_template_is_predicted_between_the_values_of_the_dataset(bench, template):
    view = bench.view(TemplateRequest(template.kind, (0.37, 0.61)[: len(template.sliders)], cells_per_length=COARSE))
    record = record_of_view(view)
    assert list(record["fields"]) == ["|u|", "u_x", "u_y", "p"]
    labels = [row["label"] for row in view.certificate]
    assert "Prescribed u" in labels
    assert "Training range" in labels
    assert [row["value"] for row in view.certificate if row["label"].startswith("Prescribed")] == ["exact", "exact"]
    assert {"prepare", "operators", "network", "altogether"} <= view.seconds.keys()


def test_the_flow_enters_at_the_speed_that_was_asked_for(bench):
    view = bench.view(TemplateRequest("a", (0.37,), speed=2.5, cells_per_length=COARSE))
    entering = view.outcome.case.dirichlet["u"]
    inlet = view.outcome.case.mesh.patch("inlet").points[1:-1]
    assert torch.allclose(view.outcome.fields["u"][inlet], torch.tensor([2.5, 0.0], dtype=torch.float64), atol=1e-12)
    assert bool(entering.mask[inlet].all())
    assert "Reynolds number 2500" in view.facts


def test_outside_of_the_training_range_there_is_a_warning(bench):
    inside = bench.view(TemplateRequest("a", (0.5,)))
    outside = bench.view(TemplateRequest("a", (0.5,), speed=3.0))
    assert not any("Reynolds" in warning for warning in inside.warnings)
    assert any("Reynolds" in warning for warning in outside.warnings)


def test_the_same_request_is_computed_once_and_found_by_its_number(bench, monkeypatch):
    request = TemplateRequest("a", (0.11,), cells_per_length=COARSE)
    first = bench.view(request)
    monkeypatch.setattr(workbench, "predict", None)
    assert bench.view(request) is first
    assert bench.find(first.number) is first
    assert bench.find(10**9) is None


def test_views_are_forgotten_before_they_fill_the_memory(network_folder, monkeypatch):
    bench = Workbench.of(str(network_folder))
    monkeypatch.setattr(workbench, "_MOST_REMEMBERED", 1)
    views = [bench.view(TemplateRequest("a", (value,), cells_per_length=COARSE)) for value in (0.1, 0.2)]
    assert [bench.find(view.number) for view in views] == [None, views[1]]


def test_a_case_of_the_dataset_comes_with_its_truth(bench):
    assert [case["name"] for case in bench.cases()] == ["b_0.10_0.70", "a_0.30"]  # the test set first
    view = bench.view(DatasetRequest("a_0.30"))
    assert {"truth |u|", "error p"} <= record_of_view(view)["fields"].keys()
    assert [row["label"] for row in view.errors] == ["Error of u", "Error of p"]
    with pytest.raises(ValueError, match=r"a_0\.99"):
        bench.view(DatasetRequest("a_0.99"))


def test_a_mesh_with_roles_is_predicted_and_without_them_shown(bench):
    upload = bench.add("mine.vtu", replace(rectangle((12, 6), (2.0, 1.0)), patches={}))
    alone = bench.view(MeshRequest(upload.number))
    assert alone.outcome is None
    assert alone.certificate is None
    assert record_of_view(alone)["fields"] == {}
    assert len(record_of_view(alone)["segments"]) == 4
    view = bench.view(MeshRequest(upload.number, roles_of(upload, "x = 0,", "x = 2,"), speed=0.5, viscosity=1e-2))
    assert view.outcome is not None
    assert "Reynolds number 50" in view.facts
    assert len(record_of_view(view)["segments"]) == 4


def test_the_flow_enters_at_right_angles_to_the_inlet_wherever_that_is():
    mesh = rectangle((8, 6), (2.0, 1.0)).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 1], 1.0),
            "outlet": lambda x: np.isclose(x[:, 0], 2.0),
            "wall": lambda x: np.isclose(x[:, 0], 0.0) | np.isclose(x[:, 1], 0.0),
        }
    )
    case = flow_through(mesh, 3.0, 1e-3)
    inside = mesh.patch("inlet").points[1:-1]
    assert torch.allclose(case.dirichlet["u"].values[inside], torch.tensor([0.0, -3.0], dtype=torch.float64))


def test_the_segments_of_a_template_s_mesh_give_the_template_s_own_problem(bench):
    mesh = coarse_mesh("a_0.37", cells_per_length=COARSE)
    upload = bench.add("template.vtu", replace(mesh, patches={}))
    by_hand = bench.view(MeshRequest(upload.number, roles_of(upload, "x = 0,", "x = 3,")))
    template = bench.view(TemplateRequest("a", (0.37,), cells_per_length=COARSE))
    for name, values in template.outcome.fields.items():
        assert torch.allclose(by_hand.outcome.fields[name], values, atol=1e-12)


@pytest.mark.parametrize("missing", ["inlet", "outlet", "wall"])
def test_a_role_that_nobody_has_is_named(bench, missing):
    upload = bench.add("mine.vtu", replace(rectangle((4, 3), (2.0, 1.0)), patches={}))
    others = [role for role in ("inlet", "outlet", "wall") if role != missing]
    with pytest.raises(ValueError, match=f"no {missing}"):
        bench.view(MeshRequest(upload.number, (others[0], others[1], others[1], others[1])))


@pytest.mark.parametrize(("speed", "viscosity"), [(0.0, 1e-3), (-1.0, 1e-3), (1.0, 0.0), (1.0, float("nan"))])
def test_numbers_that_make_no_flow_are_refused(bench, speed, viscosity):
    with pytest.raises(ValueError, match="larger than zero"):
        bench.view(TemplateRequest("a", (0.2,), speed, viscosity, COARSE))


def test_a_mesh_that_was_replaced_is_gone(bench):
    first = bench.add("first.vtu", rectangle((3, 2)))
    bench.add("second.vtu", rectangle((3, 2)))
    with pytest.raises(ValueError, match="replaced"):
        bench.view(MeshRequest(first.number))


def test_a_solver_that_diverges_gives_a_warning_and_a_picture(tmp_path):
    network = registry.build("flow", {"width": 4, "iterations": 3, "pressure_iterations": 2})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1e8)
    checkpoints.save(
        network, tmp_path, checkpoints.Config("flow", {"width": 4, "iterations": 3, "pressure_iterations": 2})
    )
    view = Workbench.of(str(tmp_path)).view(TemplateRequest("a", (0.37,), cells_per_length=COARSE))
    assert any("diverged" in warning for warning in view.warnings)
    assert list(record_of_view(view)["fields"]) == ["|u|", "u_x", "u_y", "p"]


def test_a_network_for_another_equation_is_refused(tmp_path):
    network = registry.build("advection-diffusion", {})
    checkpoints.save(network, tmp_path, checkpoints.Config("advection-diffusion", {}))
    with pytest.raises(ValueError, match="solves for T"):
        Workbench.of(str(tmp_path))


def test_a_dataset_of_another_kind_is_refused(network_folder, tmp_path):
    storage.write(tmp_path, [], dataset="gradient")
    with pytest.raises(ValueError, match="gradient"):
        Workbench.of(str(network_folder), tmp_path)


def test_the_network_says_how_it_was_trained(bench):
    words = " ".join(f"{row['label']} {row['value']}" for row in wording.about("small", bench.config))
    for part in ("3 cases of flow", "2 epochs", "small", "validation u 1.23e-02"):
        assert part in words
    untrained = wording.about("new", checkpoints.Config("flow", {}))
    assert "untrained weights" in untrained[-1]["value"]
    assert "no configuration" in wording.about("bare", None)[-1]["value"]
