"""A disk that fills during any kind of output: exit code and message, the old file as it was, no part of a new one.

A limit on the size of files takes the place of a small disk, which only root could make: whatever library writes, the
system refuses what goes beyond the limit.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from commands import penn
from finished_runs import channel
from forks import forked
from paths import ROOT
from pennpde import openfoam
from pennpde.models.ducts import Flow


@dataclass(frozen=True)
class Finished:
    """What became of a command on a full disk, and what libraries wrote to the terminal behind its back."""

    exit_code: int
    output: str
    noise: str


def on_a_full_disk(most: int, command: Callable[[], tuple[int, str]]) -> Finished:
    """Run a command where no file may have more than so many bytes; in a copy of this process, as limits stay."""
    read_end, write_end = os.pipe()  # not a file: what the command says is not limited

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        os.dup2(write_end, 2)
        code, output = command()
        os.write(write_end, b"\n" + json.dumps([code, output[-10_000:]]).encode())

    with forked(work) as process:
        os.close(write_end)
        with os.fdopen(read_end, "rb") as stream:
            said = stream.read()
        ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0), "the program was ended by a signal"
    noise, _, result = said.decode().rpartition("\n")
    return Finished(*json.loads(result), noise)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PREDICT = "predict duct.vtu --case duct.toml --model own"
SERIES = "predict duct.vtu --case warm.toml --model heat"
WARM = """
[patches]
inlet = "x == 0"
[dirichlet.T]
inlet = 1.0
[neumann]
T = 0.0
[parameters]
velocity = [0.6, 0.0]
diffusivity = 0.3
"""
WRITTEN = {
    "fields in .vtu": (f"{PREDICT} --out out/flow.vtu", "out/flow.vtu"),
    "fields in .vtk": (f"{PREDICT} --out out/flow.vtk", "out/flow.vtk"),
    "fields in .vtkhdf": (f"{PREDICT} --out out/flow.vtkhdf", "out/flow.vtkhdf"),
    "a picture in .png": (f"{PREDICT} --png out/flow.png", "out/flow.png"),
    "a picture in .pdf": (f"{PREDICT} --png out/flow.pdf", "out/flow.pdf"),
    "a picture in .svg": (f"{PREDICT} --png out/flow.svg", "out/flow.svg"),
    "a page": (f"{PREDICT} --html out/flow.html", "out/flow.html"),
    "a picture of a dataset": ("info data --png out/data.png", "out/data.png"),
    "a case of a dataset": ("info data --case t0.2 --out out/case.vtkhdf", "out/case.vtkhdf"),
    "pictures of an evaluation": ("evaluate heat data --pictures out", "out/smallest_error_t0.4.png"),
    "several times in .vtkhdf": (f"{SERIES} --out out/series.vtkhdf", "out/series.vtkhdf"),
    "several times in .pvd": (f"{SERIES} --out out/series.pvd", "out/series.pvd"),
    "an animation": (f"{SERIES} --animation out/series.gif", "out/series.gif"),
    "a packed network": ("pack own --out out/own.zip --licence CC-BY-4.0", "out/own.zip"),
    "the demo": ("demo --out out", "out/flow.vtu"),
    "tables of records": (f"report {ROOT / 'lab' / 'records'} --out out/results.md", "out/results.md"),
}
QUICK = ("fields in .vtkhdf", "a picture in .png")


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=() if what in QUICK else pytest.mark.slow) for what in WRITTEN]
)
def test_a_disk_that_fills_leaves_the_old_file_and_says_so(what, sound, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    Path("out").mkdir()
    Path("warm.toml").write_text(WARM)
    arguments, name = WRITTEN[what]
    first = penn(*arguments.split())
    assert first.exit_code == 0, first.output
    before = contents(Path("out"))
    assert name in {f"out/{each}" for each in before}, sorted(before)

    def command() -> tuple[int, str]:
        finished = penn(*arguments.split())
        return finished.exit_code, finished.output

    finished = on_a_full_disk(len(before[name.removeprefix("out/")]) // 2, command)
    assert finished.exit_code == 1, finished.output
    assert "penn " in finished.output
    assert "looks like a bug" not in finished.output
    assert "Traceback" not in finished.output
    assert "Written: " not in finished.output
    assert not finished.noise.strip()
    assert contents(Path("out"))[name.removeprefix("out/")] == before[name.removeprefix("out/")]
    assert sorted(contents(Path("out"))) == sorted(before)


@pytest.mark.slow
@pytest.mark.parametrize("most", [300, 1_500, 5_000])
def test_a_disk_that_fills_during_training_leaves_whole_files_and_training_goes_on_later(
    sound, tmp_path, monkeypatch, most
):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    arguments = ["train", "rows.toml", "--data", "data", "--out", "out", "--device", "cpu", "--json"]

    def command() -> tuple[int, str]:
        finished = penn(*arguments)
        return finished.exit_code, finished.output

    finished = on_a_full_disk(most, command)
    assert finished.exit_code == 1, finished.output
    assert "looks like a bug" not in finished.output
    assert "Traceback" not in finished.output
    assert not list(Path("out").rglob(".*"))
    later = penn(*arguments, "--resume")
    assert later.exit_code == 0, later.output
    assert penn("evaluate", "out", "data", "--json").exit_code == 0


@pytest.mark.slow
def test_a_disk_that_fills_during_the_report_of_a_training_leaves_the_network_whole(sound, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    arguments = ["train", "data", "--from", "heat", "--steps", "1", "--out", "out", "--device", "cpu", "--threads", "1"]

    def command() -> tuple[int, str]:
        finished = penn(*arguments)
        return finished.exit_code, finished.output

    finished = on_a_full_disk(20_000, command)  # enough for weights and state, not for pictures
    assert finished.exit_code == 1, finished.output
    assert ".png" in finished.output
    assert "looks like a bug" not in finished.output
    assert not list(Path("out").rglob(".*"))
    assert penn("evaluate", "out", "data", "--json").exit_code == 0


@pytest.mark.slow
def test_a_disk_that_fills_during_generation_leaves_whole_files_and_generation_goes_on_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["generate", "gradient", "--out", "data", "--limit", "3", "--json"]

    def command() -> tuple[int, str]:
        finished = penn(*arguments)
        return finished.exit_code, finished.output

    finished = on_a_full_disk(3_000, command)
    assert finished.exit_code == 1, finished.output
    assert "looks like a bug" not in finished.output
    assert not list(Path("data").glob("*.vtkhdf"))
    assert not list(Path("data").glob(".*part*"))
    assert penn(*arguments).exit_code == 0
    assert penn("info", "data").exit_code == 0


@pytest.mark.slow
def test_a_disk_that_fills_during_a_collection_leaves_whole_files_and_it_goes_on_later(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for place in range(3):
        channel(tmp_path / f"runs/run_{place}", viscosity=0.01 * 1.5**place)
    arguments = ["collect", *sorted(map(str, Path("runs").iterdir())), "--out", "data", "--workers", "0", "--json"]

    def command() -> tuple[int, str]:
        finished = penn(*arguments)
        return finished.exit_code, finished.output

    finished = on_a_full_disk(6_000, command)
    assert finished.exit_code == 1, finished.output
    assert "looks like a bug" not in finished.output
    assert not list(Path("data").glob(".*part*"))
    later = penn(*arguments)
    assert later.exit_code == 0, later.output
    assert penn("info", "data").exit_code == 0


def test_a_disk_that_fills_while_a_time_folder_is_written_leaves_none(sound, tmp_path):
    folder = shutil.copytree(sound / "channel", tmp_path / "channel")
    case = openfoam.read_problem(folder, Flow(4))
    fields = {"u": torch.zeros(case.number_of_points, 2), "p": torch.zeros(case.number_of_points)}
    before = contents(folder)

    def command() -> tuple[int, str]:
        try:
            openfoam.write_time(folder, 4, case.mesh, fields, Flow.foam_fields)
        except OSError as error:
            return 1, str(error)
        return 0, ""

    finished = on_a_full_disk(200, command)
    assert finished.exit_code == 1
    assert "could not be written" in finished.output
    assert contents(folder) == before
    assert sorted(path.name for path in folder.iterdir()) == ["0", "constant", "system"]
    assert openfoam.write_time(folder, 4, case.mesh, fields, Flow.foam_fields).is_dir()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [["info", "--json"], ["info"], ["--help"], ["--version"]])
def test_an_output_that_cannot_be_written_is_one_line_and_exit_code_1(arguments):
    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [sys.executable, "-m", "pennpde", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert finished.returncode == 1
    assert "No space left on device" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert len(finished.stderr.splitlines()) == 1
