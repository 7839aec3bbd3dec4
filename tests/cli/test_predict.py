"""`penn predict`: from a mesh file or an OpenFOAM case to fields with a certificate."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import penn, store
from foam_cases import read_flow, write_brick, write_conditions, write_dictionary
from pennlab.datasets.flow.cases import extruded
from pennlab.datasets.split_quads import triangulated
from pennpde import checkpoints, openfoam
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.prediction import predict
from pennpde.trust.certificate import spanned
from problems import DUCT, FLOW, PLATE, rectangle


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """A duct and a plate with their case files, and networks for both."""
    folder = tmp_path_factory.mktemp("predict")
    mesh = coarse_mesh("a_0.37", cells_per_length=4)
    Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4)).save(folder / "duct.vtu")
    (folder / "duct.toml").write_text(DUCT)
    rectangle((6, 6)).save(folder / "plate.vtu")
    (folder / "plate.toml").write_text(PLATE)
    store(folder / "flow", ranges=spanned([flow_case(mesh)], FLOW))
    store(folder / "heat", "advection-diffusion")
    return folder


def predict_duct(folder: Path, *options: object):
    return penn("predict", folder / "duct.vtu", "--case", folder / "duct.toml", "--model", folder / "flow", *options)


def test_a_mesh_and_a_case_file_give_the_fields_of_the_python_interface(workplace, tmp_path):
    finished = predict_duct(workplace, "--out", tmp_path / "flow.vtu", "--json")
    assert finished.exit_code == 0, finished.stderr
    mesh = coarse_mesh("a_0.37", cells_per_length=4)
    expected = predict(checkpoints.load(workplace / "flow"), flow_case(mesh)).fields
    found = Mesh.read(tmp_path / "flow.vtu").fields
    torch.testing.assert_close(found["u"], expected["u"], rtol=0, atol=1e-5)  # single precision
    torch.testing.assert_close(found["p"], expected["p"], rtol=0, atol=1e-5)
    record = json.loads(finished.stdout)
    assert record["written"] == [str(tmp_path / "flow.vtu")]
    assert record["times"] == [4.0]
    certificate = record["certificate"]
    assert certificate["dirichlet"] == {"u": 0, "p": 0}
    assert certificate["checks"].keys() == {"divergence", "flux imbalance", "backflow"}
    assert all(each["inside"] for each in certificate["compared"].values())


@pytest.mark.parametrize("suffix", [".vtu", ".vtk", ".vtkhdf"])
def test_fields_are_written_in_every_format_and_nothing_else(workplace, tmp_path, suffix):
    finished = predict_duct(workplace, "--out", tmp_path / "new" / f"flow{suffix}", "--quiet")
    assert (finished.exit_code, finished.stdout) == (0, "")
    assert [path.name for path in (tmp_path / "new").iterdir()] == [f"flow{suffix}"]
    assert set(Mesh.read(tmp_path / "new" / f"flow{suffix}").fields) == {"u", "p"}


@pytest.mark.slow
def test_a_picture_and_a_page_are_drawn(workplace, tmp_path):
    finished = predict_duct(workplace, "--png", tmp_path / "flow.png", "--html", tmp_path / "flow.html")
    assert finished.exit_code == 0, finished.stderr
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "flow.html").read_text()
    assert "largest error on prescribed u" in page
    assert "duct" in page


def test_people_read_the_certificate_and_where_the_files_are(workplace, tmp_path):
    text = predict_duct(workplace, "-v", "-o", tmp_path / "flow.vtu").stdout
    assert "largest error on prescribed u   0.0e+00" in text
    assert f"Written: {tmp_path / 'flow.vtu'}" in text


def test_a_warning_of_the_certificate_is_an_error_where_asked_for(workplace, tmp_path):
    ranges = {"Reynolds number": [10.0, 500.0]}
    strange = store(tmp_path / "strange", ranges=ranges)
    arguments = ["predict", workplace / "duct.vtu", "--case", workplace / "duct.toml", "--model", strange]
    lenient = penn(*arguments, "--json", "--out", tmp_path / "flow.vtu")
    assert lenient.exit_code == 0
    warnings = json.loads(lenient.stdout)["certificate"]["warnings"]
    assert "Reynolds number is 1000; the network was trained on 10 to 500." in warnings
    strict = penn(*arguments, "--strict", "--out", tmp_path / "strict.vtu")
    assert (strict.exit_code, strict.stdout) == (1, "")
    assert "Reynolds number is 1000" in strict.stderr
    assert not (tmp_path / "strict.vtu").exists()


def test_warnings_go_to_stderr_and_quiet_keeps_them(workplace, tmp_path):
    strange = store(tmp_path / "strange", ranges={"Reynolds number": [10.0, 500.0]})
    arguments = ["predict", workplace / "duct.vtu", "--case", workplace / "duct.toml", "--model", strange]
    warning = "warning: Reynolds number is 1000; the network was trained on 10 to 500.\n"
    for option in ([], ["--json"], ["--quiet"]):
        finished = penn(*arguments, *option)
        assert finished.exit_code == 0
        assert warning in finished.stderr
        assert "warning:" not in finished.stdout
    assert finished.stdout == ""
    assert all(line.startswith("warning: ") for line in finished.stderr.splitlines())


def test_what_a_case_file_says_and_the_network_does_not_know_is_named(workplace, tmp_path):
    more = DUCT.replace("viscosity = 1e-3", "viscosity = 1e-3\ndensity = 5\n[initial]\nu = [0.5, 0.0]")
    (tmp_path / "duct.toml").write_text(more.replace("wall = 0.0\n[parameters]", "[parameters]"))
    finished = penn(
        *("predict", workplace / "duct.vtu", "--case", tmp_path / "duct.toml", "--model", workplace / "flow", "-v")
    )
    assert finished.exit_code == 0, finished.stderr
    assert "warning: The parameter density is ignored; those of the network are viscosity." in finished.stderr
    assert "note: The initial velocity (0.5, 0) was replaced by potential flow." in finished.stderr
    assert "warning: p has no condition at " in finished.stderr
    assert "warning: u has no condition" not in finished.stderr


def test_what_an_openfoam_case_says_and_the_network_does_not_know_is_named_everywhere(workplace, tmp_path):
    case = foam_channel(tmp_path / "channel")
    write_dictionary(case / "constant/turbulenceProperties", {"simulationType": "RAS", "RAS": {"RASModel": "kEpsilon"}})
    words = "the flow is turbulent, simulationType RAS with the model kEpsilon"
    finished = penn("predict", case, "--model", workplace / "flow", "--json", "--force")
    assert any(words in each for each in json.loads(finished.stdout)["certificate"]["warnings"])
    assert words in finished.stderr
    assert words in penn("predict", case, "--model", workplace / "flow", "--quiet").stderr
    assert penn("predict", case, "--model", workplace / "flow", "--strict", "--force").exit_code == 1
    # Also where there is no prediction: it may be the reason.
    text = (case / "0/U").read_text().replace("uniform (2 0 0)", "uniform (0 0 0)")
    (case / "0/U").write_text(text)
    refused = penn("predict", case, "--model", workplace / "flow", "--force")
    assert refused.exit_code == 1
    assert "has no inlet" in refused.stderr
    assert words in refused.stderr


OTHER_PHYSICS = {
    "turbulence": ("constant/turbulenceProperties", {"simulationType": "LES"}),
    "a porous zone": ("constant/fvOptions", {"zone": {"type": "explicitPorositySource"}}),
    "buoyancy": ("system/controlDict", {"application": "buoyantPimpleFoam"}),
    "a free surface": ("system/controlDict", {"application": "interFoam"}),
    "a fluid that thins": ("system/controlDict", {"application": "nonNewtonianIcoFoam"}),
}


@pytest.mark.parametrize("what", OTHER_PHYSICS)
def test_physics_that_the_network_does_not_know_is_refused_before_anything_is_read_or_computed(
    workplace, tmp_path, what, monkeypatch
):
    case = foam_channel(tmp_path / "channel")
    path, entries = OTHER_PHYSICS[what]
    write_dictionary(case / path, entries)
    # Conditions that are not known, such as `calculated`, must not hide the reason.
    (case / "0/p").write_text((case / "0/p").read_text().replace("type zeroGradient;", "type calculated;", 1))
    monkeypatch.setattr("pennpde.prediction.predict", lambda *_, **__: pytest.fail("was computed"))
    finished = penn("predict", case, "--model", workplace / "flow", "--json")
    assert finished.exit_code == 3
    assert path in finished.stderr
    assert json.loads(finished.stdout)["expected"]["grade"] == "refused"


def test_a_program_of_the_users_own_is_warned_of_and_predicted(workplace, tmp_path):
    case = foam_channel(tmp_path / "channel")
    write_dictionary(case / "system/controlDict", {"application": "myIcoFoam"})
    finished = penn("predict", case, "--model", workplace / "flow")
    assert finished.exit_code == 0
    assert "the application is myIcoFoam" in finished.stderr


def test_a_time_folder_of_another_time_than_the_predicted_one_is_warned_of(workplace, tmp_path):
    case = foam_channel(tmp_path / "channel")
    words = "is not the predicted time: the fields are the state at t = 2, 2 after the start at 0."
    right = penn("predict", case, "--model", workplace / "flow", "--write-time", "2.05")
    assert words not in right.stderr
    wrong = penn("predict", case, "--model", workplace / "flow", "--write-time", "99", "--json")
    assert wrong.exit_code == 0
    assert f"warning: --write-time 99 {words}\n" in wrong.stderr
    assert f"--write-time 99 {words}" in json.loads(wrong.stdout)["certificate"]["warnings"]
    strict = penn("predict", case, "--model", workplace / "flow", "--write-time", "7", "--strict")
    assert strict.exit_code == 1
    assert not (case / "7").exists()
    write_dictionary(case / "system/controlDict", {"application": "simpleFoam"})  # its times count iterations
    steady = penn("predict", case, "--model", workplace / "flow", "--write-time", "7")
    assert words not in steady.stderr


def test_a_prediction_that_is_not_finite_writes_nothing(workplace, tmp_path):
    from safetensors.torch import load_file, save_file

    broken = shutil.copytree(workplace / "flow", tmp_path / "broken")
    weights = load_file(broken / "model.safetensors")
    weights["equation.advection"] = torch.full_like(weights["equation.advection"], float("nan"))
    save_file(weights, broken / "model.safetensors")
    config = json.loads((broken / "config.json").read_text()) | {"weights_sha256": ""}
    (broken / "config.json").write_text(json.dumps(config))
    finished = penn(
        *("predict", workplace / "duct.vtu", "--case", workplace / "duct.toml", "--model", broken),
        *("--out", tmp_path / "flow.vtu", "--json"),
    )
    assert (finished.exit_code, finished.stdout) == (1, "")
    assert "not finite" in finished.stderr
    assert "do not use these fields" in finished.stderr
    assert not (tmp_path / "flow.vtu").exists()


def test_a_reference_length_changes_what_the_network_sees(workplace):
    records = [json.loads(predict_duct(workplace, "--json", *more).stdout) for more in ([], ["--length", "2"])]
    numbers = [record["certificate"]["compared"]["domain size"]["value"] for record in records]
    assert numbers[1] == pytest.approx(numbers[0] / 2)
    assert records[1]["times"] == [8.0]


def test_a_temperature_is_predicted_time_by_time(workplace, tmp_path):
    finished = penn(
        *("predict", workplace / "plate.vtu", "--case", workplace / "plate.toml", "--model", workplace / "heat"),
        *("--out", tmp_path / "plate.vtu", "--png", tmp_path / "plate.png", "--json"),
    )
    assert finished.exit_code == 0, finished.stderr
    fields = Mesh.read(tmp_path / "plate.vtu").fields
    assert sorted(fields) == ["T", "T_1", "T_2", "T_3", "T_4"]
    assert (fields["T"][:7] == 353.15).all()  # x = 0


# OpenFOAM's cases, written without OpenFOAM


def foam_channel(folder: Path, plane: bool = True, **options: object) -> Path:
    types = {"front": "empty", "back": "empty"} if plane else {}
    case = write_brick(folder, (4, 3, 1) if plane else (3, 2, 2), types=types, **options)
    inlet = {"left": "type fixedValue; value uniform (2 0 0);"}
    write_conditions(case, "U", "uniform (0 0 0)", {'".*"': "type noSlip;", "right": "type zeroGradient;"} | inlet)
    outlet = {"right": "type fixedValue; value uniform 0;"}
    write_conditions(case, "p", "uniform 0", {'".*"': "type zeroGradient;"} | outlet)
    return case


@pytest.mark.parametrize("plane", [True, False])
def test_an_openfoam_case_goes_in_and_comes_out_as_file_and_time_folder(workplace, tmp_path, plane):
    case = foam_channel(tmp_path / "channel", plane, binary=not plane)
    finished = penn(
        *("predict", case, "--model", workplace / "flow", "--out", tmp_path / "flow.vtu", "--write-time", "0.5"),
        "--json",
    )
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["written"] == [str(tmp_path / "flow.vtu"), str(case / "0.5")]
    mesh = Mesh.read(tmp_path / "flow.vtu")
    velocity = openfoam.read_field(case / "0.5" / "U", case).values(mesh.number_of_cells)
    fields = {name: mesh.fields[name] for name in ("u", "p")}
    again = openfoam.write_time(case, "0.6", read_flow(case).mesh, fields, FLOW.foam_fields)
    np.testing.assert_allclose(openfoam.read_field(again / "U", case).values(len(velocity)), velocity, atol=1e-12)
    assert sorted(path.name for path in (case / "0.5").iterdir()) == ["U", "p", "phi"]
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    # Width 1 (of the side of a unit cube 1, too) and speed 2.
    assert record["times"] == [2.0]
    again = penn("predict", case, "--model", workplace / "flow", "--write-time", "0.5")
    assert again.exit_code == 1
    assert "0.5 exists already" in again.stderr


def test_a_case_of_temperature_takes_its_velocity_from_the_field_u(workplace, tmp_path):
    case = write_brick(tmp_path / "plate", (4, 3, 1), types={"front": "empty", "back": "empty"})
    write_conditions(
        case, "T", "uniform 20", {'".*"': "type zeroGradient;", "left": "type fixedValue; value uniform 80;"}
    )
    write_conditions(case, "U", "uniform (0.5 0 0)", {'".*"': "type zeroGradient;"})
    write_dictionary(case / "constant" / "transportProperties", {"DT": "[0 2 -1 0 0 0 0] 0.3"})
    finished = penn("predict", case, "--model", workplace / "heat", "--write-time", "1", "--json")
    assert finished.exit_code == 0, finished.stderr
    assert openfoam.read_field(case / "1" / "T", case).values(12).max() > 20
    write_conditions(case, "U", "nonuniform List<vector> 1((1 0 0))", {'".*"': "type zeroGradient;"})
    refused = penn("predict", case, "--model", workplace / "heat")
    assert refused.exit_code == 1
    assert "not the same everywhere" in refused.stderr


def cavity(folder: Path, reference: str) -> Path:
    case = write_brick(folder, (4, 4, 1), types={"front": "empty", "back": "empty"})
    write_conditions(
        case, "U", "uniform (0 0 0)", {'".*"': "type noSlip;", "top": "type fixedValue; value uniform (1 0 0);"}
    )
    write_conditions(case, "p", "uniform 0", {'".*"': "type zeroGradient;"})
    write_dictionary(case / "system" / "fvSolution", {"PISO": {"nCorrectors": 2} | json.loads(reference or "{}")})
    return case


@pytest.mark.parametrize("reference", ['{"pRefCell": 0, "pRefValue": 3}', '{"pRefPoint": "(0 0 0)", "pRefValue": 3}'])
def test_a_closed_case_takes_its_pressure_from_the_reference_and_is_told_to_be_unlike_training(
    workplace, tmp_path, reference
):
    case = cavity(tmp_path / "cavity", reference)
    finished = penn("predict", case, "--model", workplace / "flow", "--out", tmp_path / "cavity.vtu", "--json")
    assert finished.exit_code == 0, finished.stderr
    mesh = Mesh.read(tmp_path / "cavity.vtu")
    # Next to the corner cell's centre, all of its corners are equally near.
    near = mesh.points.norm(dim=1) < 0.4
    assert (mesh.fields["p"][near] == 3).sum() == 1
    warnings = json.loads(finished.stdout)["certificate"]["warnings"]
    assert any(warning.startswith("Inflow over that of an even inlet is 0;") for warning in warnings), warnings
    strict = penn("predict", case, "--model", workplace / "flow", "--strict")
    assert strict.exit_code == 1


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("", "names no reference"),
        ('{"pRefCell": 99}', "one of the cells 0 to 15, found 99"),
        ('{"pRefCell": 0, "pRefValue": "high"}', "pRefValue must be a number"),
        ('{"pRefPoint": "(0 0)"}', "pRefPoint must be a vector"),
    ],
)
def test_a_closed_case_without_a_sound_reference_is_refused(workplace, tmp_path, reference, words):
    finished = penn("predict", cavity(tmp_path / "cavity", reference), "--model", workplace / "flow")
    assert finished.exit_code == 1
    assert words in finished.stderr


def test_a_page_of_a_case_in_space_is_refused_before_predicting(workplace, tmp_path):
    thick = extruded(coarse_mesh("a_0.50", cells_per_length=3))
    thick.save(tmp_path / "thick.vtu")
    text = DUCT.replace("[1.0, 0.0]", "[1.0, 0.0, 0.0]").replace('wall = "rest"\n', "")
    (tmp_path / "thick.toml").write_text(text)
    finished = penn(
        *("predict", tmp_path / "thick.vtu", "--case", tmp_path / "thick.toml", "--model", workplace / "flow"),
        *("--html", tmp_path / "flow.html"),
    )
    assert finished.exit_code == 1
    assert "draws only two-dimensional cases" in finished.stderr
    assert not (tmp_path / "flow.html").exists()


def test_a_mesh_finer_than_those_of_training_is_predicted_on_a_companion_and_so_it_is_told(workplace, tmp_path):
    quads = coarse_mesh("a_0.37", cells_per_length=4)
    store(tmp_path / "net", ranges=spanned([flow_case(quads), flow_case(triangulated(quads))], FLOW))
    fine = coarse_mesh("a_0.37", cells_per_length=8)
    Mesh.from_arrays(fine.points, fine.connectivity.reshape(-1, 4)).save(tmp_path / "fine.vtu")
    given = ("predict", tmp_path / "fine.vtu", "--case", workplace / "duct.toml", "--model", tmp_path / "net", "--json")
    record = json.loads(penn(*given, "--out", tmp_path / "flow.vtu").stdout)
    assert record["companion"]["points"] == pytest.approx(quads.number_of_points, rel=0.15)
    assert f"of {record['companion']['triangles']} triangles" in record["certificate"]["notes"][0]
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    assert Mesh.read(tmp_path / "flow.vtu").number_of_points == fine.number_of_points == record["points"]
    own = json.loads(penn(*given, "--resolution", "own").stdout)
    assert own["companion"] is None
    assert own["certificate"]["notes"] == []


def test_a_thin_openfoam_case_is_predicted_on_a_companion_of_its_plane(workplace, tmp_path):
    case = foam_channel(tmp_path / "channel")
    given = ("predict", case, "--model", workplace / "flow", "--resolution", "network", "--write-time", "0.5", "--json")
    finished = penn(*given)
    assert finished.exit_code == 0, finished.stderr
    record = json.loads(finished.stdout)
    assert record["companion"]["points"] > record["points"] == 20
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    assert np.isfinite(openfoam.read_field(case / "0.5" / "U", case).values(12)).all()


# Meshes of other programs, and of our own


def test_a_prediction_is_the_input_of_the_next_one(workplace, tmp_path):
    """Its mesh has the patches of the case file already; the case file defines them again."""
    first = predict_duct(workplace, "--out", tmp_path / "flow.vtu", "--quiet")
    assert first.exit_code == 0, first.stderr
    second = penn(
        *("predict", tmp_path / "flow.vtu", "--case", workplace / "duct.toml", "--model", workplace / "flow"),
        *("--out", tmp_path / "again.vtu", "--quiet"),
    )
    assert second.exit_code == 0, second.stderr
    one, other = Mesh.read(tmp_path / "flow.vtu"), Mesh.read(tmp_path / "again.vtu")
    assert {name: patch.facets.tolist() for name, patch in one.patches.items()} == {
        name: patch.facets.tolist() for name, patch in other.patches.items()
    }
    torch.testing.assert_close(one.fields["u"], other.fields["u"])


def test_a_case_file_may_begin_with_a_byte_order_mark(workplace, tmp_path):
    (tmp_path / "duct.toml").write_text(DUCT, encoding="utf-8-sig")
    finished = penn(
        "predict", workplace / "duct.vtu", "--case", tmp_path / "duct.toml", "--model", workplace / "flow", "--json"
    )
    assert finished.exit_code == 0, finished.stderr


def test_what_was_repaired_is_told_on_stderr_and_in_json(workplace, tmp_path):
    import pyvista

    dataset = pyvista.read(workplace / "duct.vtu")
    loose = pyvista.UnstructuredGrid(
        np.insert(dataset.cells_dict[9], 0, 4, axis=1).ravel(),
        dataset.celltypes,
        np.concatenate([dataset.points, [[9.0, 9.0, 0.0]]]),
    )
    loose.save(tmp_path / "loose.vtu")
    predicting = ["predict", tmp_path / "loose.vtu", "--case", workplace / "duct.toml", "--model", workplace / "flow"]
    for arguments in (predicting, ["info", tmp_path / "loose.vtu"]):
        note = "left out: 1 point of no cell"
        shown = penn(*arguments)
        assert shown.exit_code == 0, shown.stderr
        assert f"note: {tmp_path / 'loose.vtu'}: {note}" in shown.stderr
        assert json.loads(penn(*arguments, "--json").stdout)["notes"] == [note]
        refused = penn(*arguments, "--no-repair")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "is in no cell" in refused.stderr
    assert penn(*predicting, "--strict").exit_code == 1
