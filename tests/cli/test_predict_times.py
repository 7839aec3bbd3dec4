"""Times on the command line: which are predicted, how they are written, and what is refused before any work."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import pyvista
from PIL import Image

from any_time import AnyTime
from commands import penn, store
from foam_cases import write_plane_channel
from pennpde import openfoam
from pennpde.cli import predict as command
from pennpde.cli.predict import asked_times, folder_names
from pennpde.trust.expected_error import Expected, ExpectedError
from problems import PLATE, rectangle
from temporal import frames_of, steps_of

INF = math.inf


@pytest.fixture
def network(monkeypatch) -> AnyTime:
    network = AnyTime()
    monkeypatch.setattr(command, "predictor", lambda *_: network)
    return network


@pytest.fixture
def channel(tmp_path) -> Path:
    """Speed 1, width 1: the network's units are those of the case."""
    return write_plane_channel(tmp_path / "channel")


@pytest.fixture(scope="module")
def plate(tmp_path_factory) -> list[object]:
    """A network with four times of its own."""
    folder = tmp_path_factory.mktemp("plate")
    rectangle((6, 6)).save(folder / "plate.vtu")
    (folder / "plate.toml").write_text(PLATE)
    store(folder / "heat", "advection-diffusion")
    return ["predict", folder / "plate.vtu", "--case", folder / "plate.toml", "--model", folder / "heat"]


def succeeded(*arguments: object) -> dict:
    finished = penn(*arguments, "--json")
    assert finished.exit_code == 0, finished.stderr
    return json.loads(finished.stdout)


def share(time: float) -> float:
    return 1 - math.exp(-time)


# What is asked for


@pytest.mark.parametrize(
    ("time", "times", "steady", "expected"),
    [
        (None, None, False, None),
        (2.5, None, False, (2.5,)),
        (None, "0.5:4:0.5", False, (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)),
        (None, "0.1:0.35:0.1", False, (0.1, 0.2, 0.3)),
        (None, "1:1:1", False, (1.0,)),
        (None, "0.5,1, 2", False, (0.5, 1.0, 2.0)),
        (None, None, True, (INF,)),
        (3.0, None, True, (3.0, INF)),
        (None, "1,2", True, (1.0, 2.0, INF)),
    ],
)
def test_options_name_times(time, times, steady, expected):
    assert asked_times(time, times, steady) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--time", "0"], "positive"),
        (["--time", "nan"], "positive"),
        (["--time", "1", "--times", "1,2"], "not both"),
        (["--times", "1:2"], "0.5:4:0.5"),
        (["--times", "soon"], "0.5:4:0.5"),
        (["--times", "1,inf"], "0.5:4:0.5"),
        (["--times", "0:1:0.5"], "positive times"),
        (["--times", "2,1"], "increase"),
        (["--times", "1:2:0"], "positive interval"),
        (["--times", "3:2:1"], "not before the first"),
        (["--times", "1:1e9:1e-3"], "more than 1000"),
        (["--times", "1,2", "--out", "flow.vtu"], ".vtkhdf"),
        (["--time", "1", "--animation", "flow.gif"], "several times"),
        (["--times", "1,2", "--animation", "flow.avi"], ".gif"),
    ],
)
def test_times_that_make_no_sense_are_wrong_usage(network, channel, options, words):
    finished = penn("predict", channel, *options)
    assert finished.exit_code == 2
    assert words in " ".join(finished.stderr.replace("│", " ").split())
    assert network.asked == []


@pytest.mark.parametrize("options", [["--time", "0.5"], ["--times", "0.5,1"], ["--steady"]])
def test_a_network_with_its_own_times_refuses_others_before_any_work(plate, options, monkeypatch):
    monkeypatch.setattr(command, "_read", lambda *_: pytest.fail("the case was read"))
    finished = penn(*plate, *options)
    assert finished.exit_code == 1
    assert "only the times that it was trained for" in finished.stderr


def test_times_are_in_the_units_of_the_case_and_json_says_steady(network, channel):
    record = succeeded("predict", channel, "--times", "0.5,1", "--steady", "--length", "2", "--speed", "4")
    assert network.asked == [(1.0, 2.0, INF)]
    assert record["times"] == [0.5, 1.0, "steady"]


def test_people_read_which_times_were_predicted(network, channel):
    assert " t = 2.5, " in penn("predict", channel, "--time", "2.5").stdout
    assert "3 times, t = 1 to t = 3" in penn("predict", channel, "--times", "1:3:1").stdout
    assert "steady state, " in penn("predict", channel, "--steady").stdout


# Files for ParaView


def test_a_list_of_files_holds_all_times_and_the_steady_state_after_them(network, channel, tmp_path):
    succeeded("predict", channel, "--times", "1,1.5", "--steady", "--out", tmp_path / "flow.pvd")
    found = frames_of(tmp_path / "flow.pvd")
    assert list(found) == [1.0, 1.5, 2.0]
    for grid, time in zip(found.values(), [1.0, 1.5, INF], strict=True):
        assert set(grid.point_data) >= {"u", "p"}
        assert np.abs(grid.point_data["u"]).max() == pytest.approx(share(time))


def test_the_four_times_of_a_network_are_one_file(plate, tmp_path):
    record = succeeded(*plate, "--out", tmp_path / "plate.vtkhdf")
    assert list(steps_of(tmp_path / "plate.vtkhdf")) == pytest.approx(record["times"])
    assert len(record["times"]) == 4


def test_a_file_for_one_time_holds_the_times_of_a_network_by_number(plate, tmp_path):
    succeeded(*plate, "--out", tmp_path / "plate.vtu")
    assert {"T", "T_1", "T_2", "T_3", "T_4"} <= set(pyvista.read(tmp_path / "plate.vtu").point_data)


def test_one_time_is_an_ordinary_file(network, channel, tmp_path):
    for suffix in (".vtu", ".vtkhdf"):
        succeeded("predict", channel, "--steady", "--out", tmp_path / f"flow{suffix}")
        assert np.abs(pyvista.read(tmp_path / f"flow{suffix}").point_data["u"]).max() == pytest.approx(1.0)


def test_an_animation_has_a_frame_for_each_time(network, channel, tmp_path):
    record = succeeded("predict", channel, "--times", "1,2", "--steady", "--animation", tmp_path / "new" / "flow.gif")
    assert record["written"] == [str(tmp_path / "new" / "flow.gif")]
    with Image.open(tmp_path / "new" / "flow.gif") as picture:
        assert getattr(picture, "n_frames", 1) == 3


def test_an_animation_of_one_time_is_refused_and_nothing_written(network, channel, tmp_path):
    finished = penn("predict", channel, "--out", tmp_path / "flow.vtu", "--animation", tmp_path / "flow.gif")
    assert finished.exit_code == 1
    assert "several times" in finished.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["channel"]


# OpenFOAM's time folders


def pressure_in(folder: Path) -> float:
    return float(np.abs(openfoam.read_field(folder / "p").values(12)).max())


def test_a_time_folder_implies_its_time(network, channel):
    record = succeeded("predict", channel, "--write-time", "2.5")
    assert network.asked == [(2.5,)]
    assert record["times"] == [2.5]
    assert record["written"] == [str(channel / "2.5")]


def test_times_count_from_the_start_of_the_case(network, channel):
    (channel / "0").rename(channel / "10")
    succeeded("predict", channel, "--times", "0.5,1", "--write-time", "all")
    assert sorted(path.name for path in openfoam.time_folders(channel)) == ["10", "10.5", "11"]
    succeeded("predict", channel, "--write-time", "12")
    assert network.asked == [(0.5, 1.0), (2.0,)]


def test_every_predicted_time_becomes_a_folder(network, channel):
    record = succeeded("predict", channel, "--times", "0.1:0.3:0.1", "--write-time", "all")
    assert [Path(path).name for path in record["written"]] == ["0.1", "0.2", "0.3"]
    pressures = [pressure_in(channel / name) for name in ("0.1", "0.2", "0.3")]
    np.testing.assert_allclose(
        np.array(pressures) / pressures[0], [share(t) / share(0.1) for t in (0.1, 0.2, 0.3)], 1e-6
    )


def test_one_of_the_predicted_times_can_be_chosen(network, channel):
    record = succeeded("predict", channel, "--times", "1,2,3", "--steady", "--write-time", "2")
    assert record["written"] == [str(channel / "2")]
    assert folder_names("2", [1.0, 2.0, 3.0, INF], 0.0, True) == {1: "2"}


def test_a_steady_state_goes_to_the_folder_that_the_user_names(network, channel):
    succeeded("predict", channel, "--steady", "--write-time", "1000")
    assert network.asked == [(INF,)]
    assert (channel / "1000" / "U").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--times", "1,2", "--write-time", "3"], "not among the predicted times, 1, 2"),
        (["--times", "1,2", "--steady", "--write-time", "all"], "--steady --write-time 1000"),
        (["--write-time", "0.0"], "exists already"),
        (["--times", "0.5,1", "--write-time", "all"], "exists already"),
    ],
)
def test_folders_that_cannot_be_are_refused_and_nothing_is_written(network, channel, tmp_path, options, words):
    (channel / "1.0").mkdir()
    before = sorted(path.name for path in channel.iterdir())
    finished = penn("predict", channel, *options, "--out", tmp_path / "flow.pvd")
    assert finished.exit_code == 1
    assert words in finished.stderr
    assert sorted(path.name for path in channel.iterdir()) == before
    assert not (tmp_path / "flow.pvd").exists()


def test_a_folder_before_the_start_is_refused(network, channel):
    (channel / "0").rename(channel / "10")
    finished = penn("predict", channel, "--write-time", "4")
    assert finished.exit_code == 1
    assert "not after the start of the case, 10" in finished.stderr
    assert network.asked == []


def test_a_network_with_its_own_times_writes_the_one_that_is_named_or_the_last():
    assert folder_names("0.27", [0.1, 0.2667], 0.0, False) == {1: "0.27"}
    assert folder_names("0.1", [0.1, 0.2667], 0.0, False) == {0: "0.1"}
    assert folder_names("99", [0.1, 0.2667], 0.0, False) == {1: "99"}


def _refuses_late(calibration, evidence, unknowns):
    error = ExpectedError(0.9, 2.0) if evidence.numbers["time"] > 0.7 else ExpectedError(0.01, 0.02)
    return Expected(dict.fromkeys(unknowns, error))


def test_each_time_is_refused_by_itself(network, channel, tmp_path, monkeypatch):
    """As where an inflow has come to zero at the last time."""
    monkeypatch.setattr("pennpde.trust.expected_error.judge", _refuses_late)
    case = channel
    asked = ["predict", case, "--times", "0.5,1,20"]
    part = penn(*asked, "--write-time", "all", "--out", tmp_path / "flow.pvd", "--json")
    assert part.exit_code == 0, part.stderr
    record = json.loads(part.stdout)
    assert (record["times"], record["refused_times"], record["expected"]["grade"]) == ([0.5, 1.0], [20.0], "good")
    assert "above 50 %: t = 20." in part.stderr
    assert sorted(each.name for each in openfoam.time_folders(case)) == ["0", "0.5", "1"]
    assert len(list((tmp_path / "flow.pvd.files").glob("*.vtu"))) == 2
    only = penn("predict", case, "--times", "0.25,20", "--write-time", "20")
    assert only.exit_code == 3
    every = penn("predict", case, "--times", "20,30")
    assert every.exit_code == 3
    forced = penn("predict", case, "--times", "0.25,20", "--force", "--json")
    assert json.loads(forced.stdout)["times"] == [0.25, 20.0]
