"""kill -9 at random moments: no half file, nothing lost that was complete, and the same command goes on to the end.

The moments are random, the laws hold at all of them. CI kills a few times, the deep run 200 times in all.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from commands import penn
from finished_runs import channel
from forks import forked
from pennpde import checkpoints, openfoam
from pennpde.checkpoints import CheckpointError
from pennpde.data import storage
from pennpde.data.storage import DatasetError
from pennpde.mesh import Mesh

FEW = 3
MANY = {"predict": 60, "write a time folder": 20, "train": 40, "generate": 40, "collect": 40}
NUMBERS = [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.deep)]


def run(*arguments: str) -> None:
    finished = penn(*arguments)
    assert finished.exit_code == 0, finished.output


def kills(
    number: int, work: Callable[[], object], check: Callable[[], None], prepare: Callable[[], None] = lambda: None
) -> int:
    """Do the work so many times in a copy of this process, kill it at a random moment, check what is left.

    Args:
        number: how often.
        work: to be killed.
        check: what must hold afterwards.
        prepare: is done before, and not killed.

    Returns:
        how often it was killed before its end.
    """
    moments, killed = random.Random(number), 0
    begin = time.monotonic()
    prepare()
    with forked(work) as process:  # once to the end, to know how long it takes
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == 0
    duration = time.monotonic() - begin
    for _ in range(number):
        prepare()
        with forked(work) as process:
            time.sleep(moments.uniform(0, duration))
            os.kill(process, signal.SIGKILL)
            killed += os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == signal.SIGKILL
        check()
    return killed


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".*") if ".part" in path.name or path.is_dir())


@pytest.mark.parametrize("many", NUMBERS)
def test_a_prediction_that_is_killed_leaves_whole_files(sound, tmp_path, monkeypatch, many):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    Path("out").mkdir()
    names = ["flow.vtu", "flow.vtkhdf", "flow.png", "flow.html"]

    def predict() -> None:
        for name in names:
            option = {".png": "--png", ".html": "--html"}.get(Path(name).suffix, "--out")
            run("predict", "duct.vtu", "--case", "duct.toml", "--model", "own", option, f"out/{name}")

    def check() -> None:
        for name in names[:2]:
            assert set(Mesh.read(Path("out") / name).fields) == {"u", "p"}
        assert (Path("out") / names[2]).read_bytes().endswith(b"IEND\xaeB`\x82")
        assert (Path("out") / names[3]).read_text().endswith("</html>\n")

    assert kills(MANY["predict"] if many else FEW, predict, check) > 0
    predict()
    check()
    assert sorted(path.name for path in Path("out").iterdir()) == sorted(names)  # no part is left behind either


@pytest.mark.parametrize("many", NUMBERS)
def test_a_time_folder_is_whole_or_not_there(sound, tmp_path, many):
    folder = shutil.copytree(sound / "channel", tmp_path / "channel")
    cells = openfoam.PolyMesh.read(folder).number_of_cells

    def predict() -> None:
        run("predict", str(folder), "--model", str(sound / "own"), "--write-time", "4")

    def remove() -> None:
        shutil.rmtree(folder / "4", ignore_errors=True)

    def check() -> None:
        if (folder / "4").exists():
            assert len(openfoam.read_field(folder / "4" / "p", folder).values(cells)) == cells
            assert len(openfoam.read_field(folder / "4" / "U", folder).values(cells)) == cells

    kills(MANY["write a time folder"] if many else FEW, predict, check, remove)
    remove()
    predict()
    check()
    assert parts(folder) == []


@pytest.mark.parametrize("many", NUMBERS)
def test_a_training_that_is_killed_goes_on_and_its_network_always_loads(sound, tmp_path, monkeypatch, many):
    monkeypatch.chdir(shutil.copytree(sound, tmp_path / "here"))
    whole = ("train", "rows.toml", "--data", "data", "--device", "cpu", "--deterministic", "--steps", "400", "--quiet")
    run(*whole, "--out", "out/whole")
    folder = Path("out/run")

    def begin_again() -> None:
        if (folder / "training.json").exists():  # it came to its end
            shutil.rmtree(folder)

    def train() -> None:
        run(*whole, "--out", "out/run", "--resume")

    def check() -> None:
        try:
            checkpoints.load(folder)
        except CheckpointError:
            assert not (folder / "config.json").exists()  # killed before the first one

    kills(MANY["train"] if many else FEW, train, check, begin_again)
    begin_again()
    train()
    # However often it was killed, the end is the same, bit for bit.
    assert (folder / "model.safetensors").read_bytes() == Path("out/whole/model.safetensors").read_bytes()
    assert parts(folder) == []


@pytest.mark.parametrize("many", NUMBERS)
def test_a_generation_that_is_killed_goes_on_and_loses_no_case(tmp_path, monkeypatch, many):
    monkeypatch.chdir(tmp_path)
    arguments = ("generate", "gradient", "--limit", "12", "--workers", "0", "--quiet")
    run(*arguments, "--out", "whole")
    expected = storage.dataset_hash("whole")
    complete: set[str] = set()

    def generate() -> None:
        run(*arguments, "--out", "data")

    def begin_again() -> None:
        nonlocal complete
        if len(complete) == 12 or not complete:
            shutil.rmtree("data", ignore_errors=True)
            complete = set()

    def check() -> None:
        nonlocal complete
        try:
            manifest = storage.read_manifest("data")
        except DatasetError:
            assert not Path("data/manifest.json").exists()
            assert not complete
            return
        found = set(manifest.cases)
        for name in found:
            storage.read_file("data", name)  # whatever the manifest lists is whole and has its hash
        assert complete <= found
        complete = found

    kills(MANY["generate"] if many else FEW, generate, check, begin_again)
    begin_again()
    generate()
    assert storage.dataset_hash("data") == expected
    assert parts(Path("data")) == []


@pytest.mark.parametrize("many", NUMBERS)
def test_a_collection_that_is_killed_goes_on_and_loses_no_run(tmp_path, monkeypatch, many):
    monkeypatch.chdir(tmp_path)
    for place in range(6):
        channel(tmp_path / f"runs/run_{place}", viscosity=0.01 * 1.5**place)
    arguments = ("collect", *sorted(map(str, Path("runs").iterdir())), "--workers", "0", "--quiet")
    run(*arguments, "--out", "whole")
    expected = storage.dataset_hash("whole")
    complete: set[str] = set()

    def collect() -> None:
        run(*arguments, "--out", "data")

    def begin_again() -> None:
        nonlocal complete
        if len(complete) == 6 or not complete:
            shutil.rmtree("data", ignore_errors=True)
            complete = set()

    def check() -> None:
        nonlocal complete
        if not Path("data/manifest.json").exists():
            assert not complete
            return
        found = set(storage.read_manifest("data").cases)
        for name in found:
            storage.read_file("data", name)
        assert complete <= found
        complete = found

    kills(MANY["collect"] if many else FEW, collect, check, begin_again)
    begin_again()
    collect()
    assert storage.dataset_hash("data") == expected
    assert parts(Path("data")) == []
