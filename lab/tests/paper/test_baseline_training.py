"""The networks that we compare with go through the same commands as ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from paths import ROOT
from pennlab.datasets.flow.cases import TIMES
from pennlab.targets import read_at_end
from pennpde import checkpoints
from pennpde import train as experiments
from pennpde.case import Case
from pennpde.cli import application
from pennpde.data import storage
from pennpde.models.designs import flow_case
from problems import rectangle

pytestmark = pytest.mark.slow  # baselines are trained by CI

FILE = ROOT / "lab" / "experiments" / "flow_baselines.toml"
ROWS = experiments.read(FILE)
NAMES = ["a_0.10", "a_0.20", "a_0.30", "a_0.40", "a_0.50"]
SPLITS = {"train": NAMES[:3], "validation": NAMES[3:4], "test": NAMES[4:]}


def duct(name: str, cells: tuple[int, int] = (4, 3)) -> Case:
    """A short duct of cells as in the flow dataset, with 41 frames of a flow that speeds up."""
    mesh = rectangle(cells, (cells[0] / 22.5, cells[1] / 22.5))
    case = flow_case(mesh.with_patches({"wall": mesh.patch("side").points}), name)
    speed = 1 + float(name[2:]) * torch.as_tensor(TIMES)
    start, x = case.initial["u"], mesh.points[:, :1]
    return replace(case, targets={"u": start[..., None] * speed, "p": (x.max() - x) * speed})


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    storage.write(folder, map(duct, NAMES), SPLITS, "flow", TIMES, {"frames": True})
    return folder


@pytest.fixture(scope="module")
def ends(frames, tmp_path_factory) -> Path:
    """The same without frames."""
    folder = tmp_path_factory.mktemp("ends")
    storage.write(folder, read_at_end(frames), SPLITS, "flow", TIMES[-1:])
    return folder


def penn(*arguments) -> dict:
    finished = CliRunner().invoke(application, [str(argument) for argument in (*arguments, "--json")])
    assert finished.exit_code == 0, finished.stderr
    return json.loads(finished.stdout)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoints.load(folder).state_dict()


def test_frames_are_kept_or_the_last_of_them_alone(frames, ends):
    whole, last, plain = storage.read(frames, "test"), read_at_end(frames, "test"), storage.read(ends)
    assert whole[0].targets["u"].shape == (20, 2, 41)
    for name in ("u", "p"):
        assert torch.equal(last[0].targets[name], whole[0].targets[name][..., -1])
        assert torch.equal(last[0].targets[name], plain[-1].targets[name])
    assert torch.equal(read_at_end(ends, "test")[0].targets["u"], plain[-1].targets["u"])


def test_output_times_of_other_datasets_are_no_frames(tmp_path):
    storage.write(tmp_path, [duct("a_0.10")], None, "own", TIMES)
    assert read_at_end(tmp_path)[0].targets["u"].shape == (20, 2, 41)


def test_the_file_has_every_window_and_width():
    sizes = {(row.arguments["time_window"], row.arguments["width"]) for row in ROWS.values() if row.needs_frames}
    assert sizes == {(window, width) for window in (2, 4, 10, 20) for width in (32, 64, 128)}
    assert len(ROWS) == 13
    for name, row in ROWS.items():
        if row.needs_frames:
            assert name == f"mp_pde_{row.arguments['time_window']}_{row.arguments['width']}"


# The default run has every window at the smallest width; `penn train` below takes steps of a small MeshGraphNet.
@pytest.mark.parametrize(
    "row", [row if row.endswith("_32") else pytest.param(row, marks=pytest.mark.slow) for row in ROWS]
)
def test_a_training_step_of_every_row_changes_every_weight(row, frames, tmp_path):
    before = ROWS[row].build().state_dict()
    changes = {"steps": 1, "minutes": None, "warm_up": 0}
    trained = experiments.run(ROWS[row], frames, tmp_path, device="cpu", changes=changes)
    assert trained.record["loss"] == ROWS[row].loss
    assert set(trained.record["validation"]) == {"u", "p"}
    for name, tensor in weights(tmp_path).items():
        assert torch.isfinite(tensor).all()
        assert name == "scale" or not torch.equal(tensor, before[name]), name


def test_mp_pde_is_judged_by_its_last_frame_in_physical_units(frames, tmp_path):
    changes = {"steps": 3, "minutes": None}
    trained = experiments.run(ROWS["mp_pde_10_32"], frames, tmp_path, device="cpu", changes=changes)
    case = storage.read(frames, "validation")[0]
    with torch.no_grad():
        fields = trained.result.model(case)
    error = (fields["u"] - case.targets["u"][..., -1]).square().sum() / 3 / case.number_of_points
    assert trained.result.best_errors["u"] == pytest.approx(float(error), rel=1e-4)
    error = (fields["p"] - case.targets["p"][..., -1]).square().mean()
    assert trained.result.best_errors["p"] == pytest.approx(float(error), rel=1e-4)


def test_a_continued_training_draws_the_windows_of_one_without_a_break_and_learns(frames, tmp_path):
    def run(folder, steps, **more):
        changes = {"steps": steps, "minutes": None, "schedule": "constant", "learning_rate": 5e-3, "test_every": 3}
        changes |= {"check_every": 4, "batch_size": 2}
        return experiments.run(ROWS["mp_pde_20_32"], frames, folder, device="cpu", changes=changes, **more).result

    whole = run(tmp_path / "whole", 18)
    for budget in (5, 18):  # a break within an epoch and within a stretch of steps
        parts = run(tmp_path / "parts", budget, resume=True)
    state = whole.model.state_dict()
    for name, tensor in parts.model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    later = {row["step"]: row["loss"] for row in parts.history}
    assert later.items() <= {row["step"]: row["loss"] for row in whole.history}.items()
    assert whole.best < 0.75 * whole.history[0]["validation"]


def test_a_row_that_wants_frames_refuses_a_dataset_without(ends, tmp_path):
    with pytest.raises(ValueError, match=r"'mp_pde_2_32' learns from all frames .* has only the last; `penn gen"):
        experiments.run(ROWS["mp_pde_2_32"], ends, tmp_path, device="cpu")


@pytest.fixture
def small_rows(tmp_path) -> Path:
    """The file of the baselines with a MeshGraphNet of 3 blocks instead of 15."""
    text = FILE.read_text()
    small = text.replace("arguments = { blocks = 15, width = 128 }", "arguments = { blocks = 3, width = 16 }")
    assert small != text
    (tmp_path / "rows.toml").write_text(small)
    return tmp_path / "rows.toml"


@pytest.mark.parametrize(("row", "dataset"), [("mp_pde_20_32", "frames"), ("mesh_graph_net", "ends")])
def test_train_and_evaluate_show_what_a_baseline_does_not_respect(row, dataset, small_rows, tmp_path, request):
    data, test = request.getfixturevalue(dataset), request.getfixturevalue("ends")
    trained = penn(
        "train", small_rows, "--row", row, "--data", data, "--out", tmp_path / "run", "--steps", "4", "--device", "cpu"
    )
    assert trained["steps"] == 4
    records = {
        (of, moved): penn("evaluate", tmp_path / "run", of, *(["--transformed"] if moved else []))
        for of, moved in ((test, False), (test, True), (data, False))
    }
    still, moved = records[test, False], records[test, True]
    assert still["pooled"]["domain"] == records[data, False]["pooled"]["domain"]
    assert still["paper"] == ROWS[row].paper
    for name in ("u", "p"):
        error, other = (record["pooled"]["domain"][name]["mse"] for record in (still, moved))
        assert abs(other - error) > 1e-3 * error  # round-off alone would be 1e-6
        condition = still["pooled"]["dirichlet"][name]["mse"]
        assert condition > 1e-6 if ROWS[row].needs_frames else condition == 0.0
    assert still["seconds"]["mean"] > 0
