"""Requests to views, without a browser."""

import base64
import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pennlab.datasets import advection_diffusion as transport
from pennpde import checkpoints, registry
from pennpde.data import storage
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_through
from pennpde.prediction import predict
from pennpde.trust.expected_error import Expected, ExpectedError
from pennpde.viewer import workbench
from pennpde.viewer.subjects import FlowSubject
from pennpde.viewer.views import Moments, Request, Role
from pennpde.viewer.workbench import Workbench
from problems import rectangle

COARSE = 6.0


def template(kind="a", moments=None, **values) -> Request:
    return Request("template", kind, tuple(sorted(({"resolution": COARSE} | values).items())), moments=moments)


@pytest.fixture(scope="module")
def bench(network_folder, dataset_folder, tmp_path_factory) -> Workbench:
    return Workbench.of(str(network_folder), dataset_folder, tmp_path_factory.mktemp("uploads"))


def add(bench: Workbench, mesh: Mesh, key: str = "0" * 32) -> workbench.Upload:
    """Upload a mesh."""
    assert bench.uploads is not None
    folder = bench.uploads / key
    folder.mkdir(exist_ok=True)
    mesh.save(folder / "mine.vtu")
    bench._outcomes.clear()
    bench.read(folder / "mine.vtu", "mine.vtu")
    return bench.upload(key)


def on_mesh(roles, key: str = "0" * 32, **values) -> Request:
    return Request("upload", key, tuple(sorted(values.items())), roles)


def record_of_view(view):
    return json.loads(gzip.decompress(view.record))


def roles_of(upload, inlet: str, outlet: str) -> tuple[Role, ...]:
    return tuple(
        "inlet" if inlet in each.place else "outlet" if outlet in each.place else "wall" for each in upload.pieces
    )


@pytest.mark.parametrize("kind", [each.kind for each in FlowSubject(every_shape=False).templates])
def test_every_template_is_predicted_between_the_values_of_the_dataset(bench, kind):
    view = bench.view(template(kind, first=0.37, second=0.61))
    record = record_of_view(view)
    assert list(record["fields"]) == ["|u|", "u_x", "u_y", "p"]
    labels = [row["label"] for row in view.words["certificate"]]
    assert "Prescribed u" in labels
    assert "Training range" in labels
    assert [row["value"] for row in view.words["certificate"] if row["label"].startswith("Prescribed")] == [
        "exact",
        "exact",
    ]
    assert {"Preparation", "Operators", "Network", "Altogether"} <= {row["label"] for row in view.words["seconds"]}
    assert view.words["times"] == [4.0]


def test_designs_are_coarser_for_a_network_that_steps_through_time(bench):
    """Its time grows with the third power of the cells across the inlet, and the page has to follow its sliders."""
    cells = [
        next(slider.start for slider in each.subject.template("a").sliders if slider.name == "resolution")
        for each in (bench, Workbench.of("flow"))
    ]
    assert cells == [22.5, 14.0]


def test_the_flow_enters_at_the_speed_that_was_asked_for(bench):
    view = bench.view(template(first=0.37, speed=2.5))
    entering = view.outcome.case.dirichlet["u"]
    inlet = view.outcome.case.mesh.patch("inlet").points[1:-1]
    assert torch.allclose(view.outcome.fields["u"][inlet], torch.tensor([2.5, 0.0], dtype=torch.float64), atol=1e-12)
    assert bool(entering.mask[inlet].all())
    assert "Reynolds number 2500" in view.words["facts"]


def test_outside_of_the_training_range_there_is_a_warning(bench):
    inside = bench.view(template(first=0.5, resolution=22.5))
    outside = bench.view(template(first=0.5, speed=3.0, resolution=22.5))
    assert not any("Reynolds" in warning for warning in inside.words["warnings"])
    assert any("Reynolds" in warning for warning in outside.words["warnings"])


def test_the_same_request_is_computed_once(bench, monkeypatch):
    first = bench.view(template(first=0.11))
    monkeypatch.setattr(workbench, "predict", None)
    assert bench.view(template(first=0.11)) is first


def test_a_case_of_the_dataset_comes_with_its_truth(bench):
    assert [case["name"] for case in bench.cases()] == ["b_0.10_0.70", "a_0.30"]  # the test set first
    view = bench.view(Request("dataset", "a_0.30"))
    assert {"truth |u|", "error p"} <= record_of_view(view)["fields"].keys()
    assert view.words["fields"] == ["|u|", "u_x", "u_y", "p"]
    assert [row["label"] for row in view.words["errors"]] == ["Error of u", "Error of p"]
    with pytest.raises(ValueError, match=r"a_0\.99"):
        bench.view(Request("dataset", "a_0.99"))


def test_a_stored_case_with_another_viscosity_has_another_reynolds_number_and_no_truth(bench):
    own = bench.view(Request("dataset", "a_0.30")).words
    other = bench.view(Request("dataset", "a_0.30", (("viscosity", 4 * own["viscosity"]),))).words
    assert other["reynolds"] == pytest.approx(own["reynolds"] / 4)
    assert own["has_truth"]
    assert not other["has_truth"]


def test_a_mesh_with_roles_is_predicted_and_without_them_shown(bench):
    upload = add(bench, replace(rectangle((12, 6), (2.0, 1.0)), patches={}))
    alone = bench.view(on_mesh(None))
    assert alone.outcome is None
    assert alone.words["certificate"] == []
    assert record_of_view(alone)["fields"] == {}
    assert len(record_of_view(alone)["segments"]) == 4
    view = bench.view(on_mesh(roles_of(upload, "x = 0,", "x = 2,"), speed=0.5, viscosity=1e-2))
    assert view.outcome is not None
    assert "Reynolds number 50" in view.words["facts"]
    assert len(record_of_view(view)["segments"]) == 4


def test_another_process_opens_what_one_has_read(bench, network_folder):
    upload = add(bench, replace(rectangle((12, 6), (2.0, 1.0)), patches={}), "1" * 32)
    other = Workbench.of(str(network_folder), uploads=bench.uploads).upload("1" * 32)
    assert other.name == upload.name
    assert (other.mesh.points == upload.mesh.points).all()
    assert [each.place for each in other.pieces] == [each.place for each in upload.pieces]


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
    upload = add(bench, replace(coarse_mesh("a_0.37", cells_per_length=COARSE), patches={}))
    by_hand = bench.view(on_mesh(roles_of(upload, "x = 0,", "x = 3,")))
    for name, values in bench.view(template(first=0.37)).outcome.fields.items():
        assert torch.allclose(by_hand.outcome.fields[name], values, atol=1e-12)


@pytest.mark.parametrize("missing", ["inlet", "outlet", "wall"])
def test_a_role_that_nobody_has_is_named(bench, missing):
    add(bench, replace(rectangle((4, 3), (2.0, 1.0)), patches={}))
    others = [role for role in ("inlet", "outlet", "wall") if role != missing]
    with pytest.raises(ValueError, match=f"no {missing}"):
        bench.view(on_mesh((others[0], others[1], others[1], others[1])))
    with pytest.raises(ValueError, match="1 roles were given for 4 segments"):
        bench.view(on_mesh(("wall",)))


@pytest.mark.parametrize(("speed", "viscosity"), [(1.0, 0.0), (1.0, -1.0)])
def test_numbers_that_make_no_flow_are_refused(bench, speed, viscosity):
    with pytest.raises(ValueError, match="larger than zero"):
        bench.view(template(first=0.2, speed=speed, viscosity=viscosity))
    with pytest.raises(ValueError, match="larger than zero"):
        bench.view(Request("dataset", "a_0.30", (("viscosity", viscosity),)))


def test_a_mesh_that_was_never_uploaded_is_named(bench):
    with pytest.raises(ValueError, match="upload it again"):
        bench.view(on_mesh(None, "f" * 32))


def test_times_are_asked_for_where_the_network_takes_them(bench, monkeypatch):
    asked = []

    def predict_at(model, case, ranges, times):
        asked.append(times)
        outcome = predict(model, case, ranges)
        fields = {
            name: torch.stack([k * values for k in range(len(times))], -1) for name, values in outcome.fields.items()
        }
        return replace(outcome, fields=fields, times=tuple(times))

    moments = Moments(duration=6.0, frames=3)
    assert len(bench.view(template(moments=moments)).words["times"]) == 1  # it does not: its own time
    bench._outcomes.clear()
    monkeypatch.setattr(workbench, "predict", predict_at)
    monkeypatch.setattr(type(bench.model), "takes_times", True)
    assert bench.start()["takes_times"]
    view = bench.view(template(moments=moments, speed=2.0))
    assert asked == [[1.0, 2.0, 3.0]]  # the inlet's width over twice the speed
    assert view.words["times"] == [1.0, 2.0, 3.0]
    record = record_of_view(view)
    assert record["times"] == [1.0, 2.0, 3.0]
    speeds = np.frombuffer(base64.b64decode(record["fields"]["|u|"]["values"]), "<f4").reshape(3, -1)
    assert not speeds[0].any()
    np.testing.assert_allclose(speeds[2], 2 * speeds[1], rtol=1e-6)
    steady = bench.view(template(moments=Moments(steady=True)))
    assert asked[-1] == [math.inf]
    assert steady.words["times"] == [None]  # JSON knows no infinity
    assert "steady state" in steady.words["facts"]


def test_a_temperature_comes_with_all_its_times(tmp_path):
    case = transport.advection_diffusion_case(transport.coarse_mesh("x"), 0.5, 0.1, 0.8, name="hot")
    truth = torch.linspace(0, 0.8, 4).expand(case.number_of_points, 4).double()
    storage.write(tmp_path / "data", [replace(case, targets={"T": truth})], dataset="advection-diffusion")
    bench = Workbench.of("advection-diffusion", tmp_path / "data")
    view = bench.view(Request("template", "plate", (("velocity", 0.5), ("diffusivity", 0.1))))
    assert view.words["times"] == [0.25, 0.5, 0.75, 1.0]
    assert view.words["fields"] == ["T"]
    assert view.words["reynolds"] is None
    compared = bench.view(Request("dataset", "hot"))
    assert compared.words["has_truth"]
    assert [row["label"] for row in compared.words["errors"]] == ["Error of T"]
    entry = record_of_view(compared)["fields"]["truth T"]
    assert len(base64.b64decode(entry["values"])) == 4 * 4 * case.number_of_points


def test_files_hold_the_fields_and_the_certificate(bench, tmp_path):
    bench.file(Request("dataset", "a_0.30"), tmp_path / "flow.vtu")
    assert {"u", "p", "u_truth", "p_truth"} <= Mesh.read(tmp_path / "flow.vtu").fields.keys()
    bench.file(template(), tmp_path / "flow.html")
    assert "Certificate" in (tmp_path / "flow.html").read_text()
    add(bench, replace(rectangle((4, 3), (2.0, 1.0)), patches={}))
    with pytest.raises(ValueError, match="no prediction"):
        bench.file(on_mesh(None), tmp_path / "mesh.vtu")


def test_a_solver_that_diverges_gives_a_warning_and_a_picture(tmp_path):
    network = registry.build("ducts", {"width": 4, "iterations": 3, "pressure_iterations": 2})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1e8)
    checkpoints.save(
        network, tmp_path, checkpoints.Config("ducts", {"width": 4, "iterations": 3, "pressure_iterations": 2})
    )
    view = Workbench.of(str(tmp_path)).view(template(first=0.37))
    assert any("diverged" in warning for warning in view.words["warnings"])
    assert list(record_of_view(view)["fields"]) == ["|u|", "u_x", "u_y", "p"]


def test_a_dataset_of_another_equation_is_refused(dataset_folder):
    with pytest.raises(ValueError, match="advection-diffusion"):
        Workbench.of("advection-diffusion", dataset_folder)


def test_a_dataset_of_another_kind_is_refused(network_folder, tmp_path):
    storage.write(tmp_path, [], dataset="gradient")
    with pytest.raises(ValueError, match="gradient"):
        Workbench.of(str(network_folder), tmp_path)


def test_the_network_says_how_it_was_trained(bench):
    words = " ".join(f"{row['label']} {row['value']}" for row in workbench.about("small", bench.config))
    for part in ("3 cases of flow", "2 epochs", "small", "validation u 1.23e-02"):
        assert part in words
    untrained = workbench.about("new", checkpoints.Config("ducts", {}))
    assert "untrained weights" in untrained[-1]["value"]
    assert "no configuration" in workbench.about("bare", None)[-1]["value"]


def test_the_grade_and_the_doubts_of_a_prediction_are_shown(bench, monkeypatch):
    """With what a calibrated network says about itself."""

    def graded(model, case, ranges):
        doubt = torch.linspace(0, 1, case.number_of_points, dtype=torch.float64)
        errors = {"u": ExpectedError(0.3, 0.7), "p": ExpectedError(0.02, 0.05)}
        expected = Expected(errors, reasons=("its Reynolds number",), local={"u": doubt})
        return replace(predict(model, case, ranges), expected=expected, expected_by_time=(expected,))

    bench._outcomes.clear()
    monkeypatch.setattr(workbench, "predict", graded)
    view = bench.view(template(first=0.77))
    bench._outcomes.clear()
    assert view.words["expected"]["grade"] == "poor"
    said = " ".join(view.words["expected"]["lines"])
    for words in ("u: 30 % (90 % of such cases below 70 %)", "p: 2 %", "Reynolds number", "What would help"):
        assert words in said
    assert view.words["fields"][-1] == "± u"
    assert record_of_view(view)["fields"]["± u"]["extent"] == [0.0, 1.0]


@pytest.mark.slow
def test_the_general_network_is_asked_for_any_times(tmp_path):
    bench = Workbench.of("flow")
    assert bench.start()["takes_times"]
    view = bench.view(template(moments=Moments(1.0, 4)))
    assert view.words["times"] == [0.25, 0.5, 0.75, 1.0]
    assert view.words["reynolds"] == pytest.approx(1000)
    bench.file(template(moments=Moments(1.0, 4)), tmp_path / "flow.vtkhdf")
    assert (tmp_path / "flow.vtkhdf").read_bytes().startswith(b"\x89HDF")
    bench.file(template(moments=Moments(1.0, 4)), tmp_path / "flow.html")
    assert 'id="time"' in (tmp_path / "flow.html").read_text()


def test_a_temperature_is_predicted_on_a_mesh_of_the_user(tmp_path):
    bench = Workbench.of("advection-diffusion", uploads=tmp_path)
    upload = add(bench, replace(rectangle((8, 8)), patches={}))
    roles = roles_of(upload, "x = 0,", "nowhere")
    view = bench.view(on_mesh(roles, velocity=0.3, across=0.2, diffusivity=0.2, temperature=0.9))
    assert view.outcome is not None
    inlet = view.outcome.case.mesh.patch("inlet").points
    assert torch.allclose(view.outcome.fields["T"][inlet], torch.tensor(0.9, dtype=torch.float64))
    with pytest.raises(ValueError, match="no inlet"):
        bench.view(on_mesh(("wall",) * 4))
    with pytest.raises(ValueError, match="not be negative"):
        bench.view(on_mesh(roles, diffusivity=-1.0))


def test_the_general_network_is_compared_with_the_truth_at_its_time(bench, monkeypatch):
    asked = []

    def predict_at(model, case, ranges, times):
        asked.append(tuple(times))
        return predict(model, case, ranges)

    bench._outcomes.clear()
    monkeypatch.setattr(workbench, "predict", predict_at)
    monkeypatch.setattr(type(bench.model), "takes_times", True)
    view = bench.view(Request("dataset", "a_0.30", moments=Moments(8.0, 16)))
    bench._outcomes.clear()
    assert asked == [(4.0,)]
    assert view.words["has_truth"]
