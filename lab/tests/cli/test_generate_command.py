"""`penn generate` and `penn info` as users meet them."""

import hashlib
import json
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from fake_recipe import FakeRecipe
from pennlab.datasets import recipes
from pennpde.cli import application
from pennpde.cli.conventions import Output
from pennpde.data import storage
from pennpde.data.workers import Status

pytestmark = pytest.mark.slow  # with others like it more than some seconds


def penn(*arguments):
    finished = CliRunner().invoke(application, [str(argument) for argument in arguments])
    return SimpleNamespace(code=finished.exit_code, out=finished.stdout, err=finished.stderr)


@pytest.fixture(scope="module")
def gradient(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "gradient"
    finished = penn("generate", "gradient", "--out", folder, "--limit", 3, "--json")
    assert finished.code == 0, finished.err
    return folder, json.loads(finished.out)


def test_a_gradient_set_comes_from_one_command(gradient):
    folder, record = gradient
    assert (record["made"], record["kept"], record["cases"]) == (3, 0, 3)
    assert record["bytes"] == sum(path.stat().st_size for path in folder.glob("*.vtkhdf"))
    assert {split: len(storage.read(folder, split)) for split in ("train", "validation", "test")} == {
        "train": 1,
        "validation": 1,
        "test": 1,
    }


def test_a_second_start_says_that_all_was_there(gradient):
    finished = penn("generate", "gradient", "--out", gradient[0], "--limit", 3)
    assert "0 cases generated" in finished.out
    assert "3 existed" in finished.out


def test_cases_can_be_chosen_by_name(tmp_path):
    arguments = ("--only", "test_001", "--only", "train_002", "--cross-terms", "--seed", 5)
    assert penn("generate", "gradient", "--out", tmp_path / "set", *arguments).code == 0
    assert sorted(storage.read_manifest(tmp_path / "set").cases) == ["test_001", "train_002"]
    assert storage.read_manifest(tmp_path / "set").settings["cross_terms"] is True


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flow", "--points", "21"), "No such option: --points"),
        (("gradient", "--frames"), "No such option: --frames"),
        (("gradient", "--profile", "small"), "No such option: --profile"),
        (("flow", "--cross-terms"), "No such option: --cross-terms"),
        (("wave",), "wave"),
        (("flow", "--profile", "huge"), "huge"),
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(arguments, words, tmp_path):
    finished = penn("generate", *arguments, "--out", tmp_path / "set")
    assert finished.code == 2
    assert words in finished.err
    assert not (tmp_path / "set").exists()


def test_a_parameter_out_of_range_is_one_line_on_stderr(tmp_path):
    finished = penn("generate", "flow", "--out", tmp_path / "set", "--only", "a_1.30")
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith("penn generate flow: 'a_1.30': the design parameter 1.3 is outside")
    assert not (tmp_path / "set").exists()


def test_openfoam_missing_is_one_line_that_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    finished = penn("generate", "flow", "--out", tmp_path / "set", "--only", "a_0.30")
    assert (finished.code, finished.out) == (1, "")
    assert "apt install openfoam" in finished.err


def test_a_flow_that_no_family_has_is_one_line_that_names_the_families(tmp_path):
    finished = penn("generate", "plane-flow", "--out", tmp_path / "set", "--only", "wave_0001.a")
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith("penn generate plane-flow: 'wave_0001' names no flow")
    assert "Families: step, expansion" in finished.err
    assert not (tmp_path / "set").exists()


@pytest.mark.openfoam
def test_a_plane_flow_comes_from_one_command_on_the_mesh_that_was_asked_for(tmp_path):
    arguments = ("--only", "cavity_0003.b", "--spacing", 6, "--workers", 0, "--json")
    finished = penn("generate", "plane-flow", "--out", tmp_path / "set", *arguments)
    assert finished.code == 0, finished.err
    assert list(storage.read_manifest(tmp_path / "set").cases) == ["cavity_0003.b"]
    told = penn("info", tmp_path / "set")
    assert "cavity (1)" in told.out


def test_cases_that_fail_give_exit_code_1_and_are_named(tmp_path, monkeypatch):
    (tmp_path / "marks").mkdir()
    fake = FakeRecipe(str(tmp_path / "marks"), train=("good_0", "fails_1"))
    monkeypatch.setattr(recipes, "GradientRecipe", lambda *_, **__: fake)
    finished = penn("generate", "gradient", "--out", tmp_path / "set")
    assert finished.code == 1
    assert "2 cases generated" in finished.out
    assert "1 cases failed, the first is fails_1: OpenFOAMError: fakeFoam failed." in finished.err
    assert "manifest.json has the end of each log" in finished.err


def test_the_progress_bar_shows_cases_and_time_left_on_a_terminal_alone(monkeypatch):
    with Output().progress_bar("flow") as show:
        assert show is None  # pytest's stderr is no terminal
    console = Console(force_terminal=True, width=120, record=True)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    with Output().progress_bar("flow") as show:
        show(Status(10, 2))
        show(Status(10, 4, 1, 0.5))
    drawn = console.export_text()
    assert "5/10" in drawn
    assert "1 failed" in drawn
    assert "left" in drawn


# penn info


def test_info_describes_a_dataset(gradient):
    record = json.loads(penn("info", gradient[0], "--json").out)
    assert record["dataset"] == "gradient"
    assert record["splits"] == {"train": 1, "validation": 1, "test": 1}
    assert record["hashes"] == "all agree"
    assert 1331 <= record["points"][0] <= record["points"][1] <= 9261
    assert -1 <= record["fields"]["initial phi"][0] <= record["fields"]["initial phi"][1] <= 1
    assert record["settings"]["seed"] == 0
    said = penn("info", gradient[0]).out
    assert "train (1), validation (1), test (1)" in said


def test_info_describes_a_case_and_draws_it(gradient, tmp_path):
    name, path = sorted(storage.read_manifest(gradient[0]).cases)[0], tmp_path / "folder" / "case.vtkhdf"
    of_dataset = json.loads(penn("info", gradient[0], "--case", name, "--out", path, "--json").out)
    record = json.loads(penn("info", path, "--json", "--png", tmp_path / "case.png").out)
    assert record["case"] == of_dataset["case"] == name
    assert record["fields"] == of_dataset["fields"]
    assert record["conditions"]["phi"] == {"neumann": record["patches"]["boundary"]}
    assert (tmp_path / "case.png").read_bytes().startswith(b"\x89PNG")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == of_dataset["sha256"]


def test_info_lists_the_cases_of_a_packed_file(gradient):
    manifest = storage.read_manifest(gradient[0])
    for file in manifest.files:
        record = json.loads(penn("info", gradient[0] / file, "--json").out)
        assert record["cases"] == [name for name, entry in manifest.cases.items() if entry.file == file]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--case", "test_000"), "give the dataset's folder as well"),
        (("SET", "--out", "case.vtkhdf"), "name it with --case"),
        (("SET", "--case", "test_000", "--out", "case.vtu"), "the file of a case ends in .vtkhdf"),
        (("SET", "--case", "test_999"), "has no case 'test_999'; it has"),
    ],
)
def test_info_says_what_is_wrong_with_the_case_that_it_is_given(gradient, arguments, words):
    finished = penn("info", *(gradient[0] if argument == "SET" else argument for argument in arguments))
    assert finished.code != 0
    assert words in " ".join(finished.err.replace("│", " ").split())


def test_info_draws_a_plane_dataset_and_a_plane_mesh(tmp_path):
    from pennlab.datasets import advection_diffusion

    mesh = advection_diffusion.coarse_mesh("u0.50_d0.50_t0.50")
    x = mesh.points[:, 0]
    targets = {"T": x[:, None].expand(-1, 4)}
    case = advection_diffusion.advection_diffusion_case(mesh, 0.5, 0.5, 0.5, targets, "one")
    storage.write(tmp_path / "set", [case], times=advection_diffusion.TIMES)
    record = json.loads(penn("info", tmp_path / "set", "--png", tmp_path / "set.png", "--json").out)
    assert record["parameters"] == {"velocity": [0.0, 0.5], "diffusivity": [0.5, 0.5]}
    assert (tmp_path / "set.png").stat().st_size > 5000
    mesh.save(tmp_path / "mesh.vtu")
    assert penn("info", tmp_path / "mesh.vtu", "--png", tmp_path / "mesh.png").code == 0
    assert (tmp_path / "mesh.png").stat().st_size > 5000


def test_info_names_a_damaged_file(gradient, tmp_path):
    import shutil

    shutil.copytree(gradient[0], tmp_path / "copy")
    path = sorted((tmp_path / "copy").glob("*.vtkhdf"))[0]
    path.write_bytes(path.read_bytes()[:1000])
    finished = penn("info", tmp_path / "copy")
    assert finished.code == 1
    assert f"{path.name} is damaged" in finished.err
    finished = penn("info", path)
    assert finished.code == 1
    assert path.name in finished.err


def test_a_folder_without_dataset_says_how_to_make_one(tmp_path):
    finished = penn("info", tmp_path)
    assert finished.code == 1
    assert "penn generate" in finished.err
