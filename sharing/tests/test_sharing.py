"""`penn pack`: what others get, and that they can use it."""

import json
import zipfile
from pathlib import Path

import pytest

from commands import penn, store
from pennpde import checkpoints, registry
from pennpde.checkpoints import Config
from pennsharing import packed
from pennsharing.packing import pack
from problems import rectangle

CASE = """
[patches]
hot = "x == 0"
[dirichlet.T]
hot = 1.0
[neumann]
T = 0.0
[parameters]
velocity = [0.6, 0.0]
diffusivity = 0.3
"""
SETTINGS = {"width": 4, "iterations": 2, "hidden": 8}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(packed.CACHE, str(tmp_path / "cache"))


@pytest.fixture
def trained(tmp_path) -> Path:
    """A folder as a training leaves it."""
    folder = tmp_path / "nets" / "mine"
    config = Config(
        "advection-diffusion",
        SETTINGS,
        title="Heat | of <plates>",
        dataset={"kind": "advection-diffusion", "hash": "abc", "train": 12, "validation": 3},
        metrics={"validation": {"T": 1.5e-4}},
        training_range={"parameter diffusivity": (0.1, 0.9)},
        training={"steps": 100, "minutes": 2.5, "device": "cpu"},
    )
    checkpoints.save(registry.build("advection-diffusion", SETTINGS), folder, config)
    (folder / "expected_error.json").write_text('{"T": 0.1}')
    errors = {"test": {"network": {"T": {"mean": 0.0123, "worst": 0.0456}}}}
    (folder / "report.json").write_text(json.dumps({"kind": "report", "relative_l2": errors}))
    (folder / "state.pt").write_bytes(b"a pickle, which is not for others")
    return folder


def content_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_pack_has_what_others_need_and_nothing_else(trained, tmp_path):
    made = pack(trained, tmp_path / "mine.zip", licence="CC-BY-4.0", about="Made for plates.")
    content = content_of(made.path)
    assert content.keys() == made.files.keys()
    assert set(content) == {
        "model.safetensors",
        "config.json",
        "expected_error.json",
        "report.json",
        "README.md",
        "LICENSE",
        "pack.json",
    }
    for name in ("model.safetensors", "config.json", "expected_error.json"):
        assert content[name] == (trained / name).read_bytes()
    card = content["README.md"].decode()
    for words in (
        "# Heat   of  plates",
        "Made for plates.",
        "trained on 12 cases of the dataset `advection-diffusion`",
        "| validation | T | 0.00015 |",
        "| test: network | T | 1.23% | 4.56% |",
        "| parameter diffusivity | 0.1 | 0.9 |",
    ):
        assert words in card, words
    assert b"CC-BY-4.0" in content["LICENSE"]


def test_the_same_network_gives_the_same_file(trained, tmp_path):
    one, other = (pack(trained, tmp_path / name / "mine.zip") for name in ("one", "other"))
    assert one.sha256 == other.sha256
    assert one.path.read_bytes() == other.path.read_bytes()


def test_from_command_to_command(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (trained / "expected_error.json").unlink()  # it is not a calibration, and predictions say so
    rectangle((6, 6)).save(tmp_path / "plate.vtu")
    (tmp_path / "plate.toml").write_text(CASE)
    packing = penn("pack", trained, "--licence", "CC-BY-4.0", "--json")
    assert packing.exit_code == 0, packing.stderr
    record = json.loads(packing.stdout)
    assert record["written"] == "mine.zip"
    assert record["licensed"]
    predicting = ["predict", "plate.vtu", "--case", "plate.toml", "--json", "--model"]
    records = []
    for model in (trained, "mine.zip"):
        finished = penn(*predicting, model)
        assert finished.exit_code == 0, finished.stderr
        records.append(json.loads(finished.stdout)["certificate"])
    assert records[0] == records[1]
    Path("mine.zip").write_bytes(Path("mine.zip").read_bytes()[:-40])
    refused = penn(*predicting, "mine.zip")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "mine.zip is damaged, or not a packed network" in refused.stderr


def test_a_network_without_licence_is_packed_with_a_warning(trained, tmp_path):
    finished = penn("pack", trained, "--out", tmp_path / "mine.zip")
    assert finished.exit_code == 0
    assert "no licence is given" in finished.stderr
    assert "#sha256=" in finished.stdout
    content = content_of(tmp_path / "mine.zip")
    assert "LICENSE" not in content
    assert "None is given: ask whoever gave you this network." in content["README.md"].decode()
    (trained / "LICENSE").write_text("Do as you like.")
    assert pack(trained, tmp_path / "free.zip").licensed
    assert content_of(tmp_path / "free.zip")["LICENSE"] == b"Do as you like."


def test_pictures_of_the_folder_and_of_the_user_go_along(trained, tmp_path):
    from matplotlib.figure import Figure

    for path in (trained / "worst_1.png", tmp_path / "my flow.png"):
        Figure().savefig(path)
    made = pack(trained, tmp_path / "mine.zip", pictures=[tmp_path / "my flow.png"])
    names = {name for name in made.files if name.startswith("pictures/")}
    assert names == {"pictures/worst_1.png", "pictures/my_flow.png"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], "There is no network 'absent'"),
        (["{folder}", "--licence", "do what you like"], "neither a file nor a name of SPDX"),
        (["{folder}", "--picture", "absent.png"], "There is no picture absent.png"),
        (["{folder}", "--picture", "{folder}/config.json"], "is not a PNG file"),
        (["{folder}", "--out", "{folder}"], "does not end in .zip"),
    ],
)
def test_what_cannot_be_packed_is_told_and_leaves_nothing(arguments, words, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    finished = penn("pack", *(each.format(folder=trained) for each in arguments))
    assert (finished.exit_code, finished.stdout) == (1, "")
    assert words in finished.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_network_is_not_packed(tmp_path):
    folder = store(tmp_path / "net", "gradient")
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(checkpoints.CheckpointError):
        pack(folder, tmp_path / "mine.zip")
    assert not (tmp_path / "mine.zip").exists()
