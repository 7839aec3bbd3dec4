"""A small network on disk, a small dataset, and the page of `penn view` in a headless Chromium."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pennpde import checkpoints, registry
from pennpde.case import Case
from pennpde.data import storage
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.penn import PENN
from pennpde.trust.certificate import spanned
from problems import FLOW

SWITCHES = [
    "--headless",
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ARGUMENTS = {"width": 4, "iterations": 2, "pressure_iterations": 2}


def small_network(seed: int = 0) -> PENN:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = registry.build("ducts", ARGUMENTS)
    assert isinstance(network, PENN)
    return network.eval()


def solved_case(name: str = "a_0.30", cells_per_length: float = 6.0) -> Case:
    """A case with a truth: not the solution, but fields that keep the conditions."""
    case = flow_case(coarse_mesh(name, cells_per_length=cells_per_length), name)
    x = case.mesh.points[:, 0]
    velocity = case.initial["u"] * (1 + 0.2 * torch.sin(3 * x))[:, None]
    truth = {"u": case.dirichlet["u"].apply(velocity), "p": case.dirichlet["p"].apply(0.3 * torch.cos(x))}
    return replace(case, targets=truth)


@pytest.fixture(scope="session")
def network_folder(tmp_path_factory) -> Path:
    """As `penn train` leaves it, with a training range that a speed of 1 is within."""
    config = checkpoints.Config(
        "ducts",
        ARGUMENTS,
        row="small",
        dataset={"kind": "flow", "train": 3, "validation": 1},
        training={"epochs": 2, "minutes": 1.5, "finished": True},
        metrics={"validation": {"u": 0.0123}},
        training_range=spanned([flow_case(coarse_mesh(name)) for name in ("a_0.00", "a_1.00", "c_0.50_0.50")], FLOW),
    )
    return checkpoints.save(small_network(), tmp_path_factory.mktemp("networks") / "small", config)


@pytest.fixture(scope="session")
def dataset_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("datasets") / "flow"
    names = ["a_0.30", "b_0.10_0.70"]
    cases = [solved_case(name) for name in names]
    storage.write(folder, cases, splits={"train": names[:1], "test": names[1:]}, dataset="flow", times=[4.0])
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("needs Chromium")
    return found


@pytest.fixture(scope="session")
def browser(chromium) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=chromium, args=SWITCHES)
        yield running
        running.close()


@contextlib.contextmanager
def served(folder: Path, *options: object) -> Iterator[str]:
    """`penn view`, started as users start it, and the address of its page."""
    log = folder / "stderr"
    with log.open("wb") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", "pennpde", "view", *map(str, options), "--port", "0", "--no-browser"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert server.stdout is not None
        alarm = threading.Timer(180, server.kill)
        alarm.start()
        line = server.stdout.readline()
        alarm.cancel()
        assert line.startswith("http://127.0.0.1:"), f"penn view said {line!r} and {log.read_text()!r}"
        yield line.split()[0]
        assert server.poll() is None, f"the server ended: {log.read_text()}"
        folders = set(Path(tempfile.gettempdir()).glob("penn-view-*"))
        server.terminate()
        assert server.wait(60) == 0
        assert folders - set(Path(tempfile.gettempdir()).glob("penn-view-*")), "uploads stayed behind"
        server.stdout.close()
    assert "Traceback" not in log.read_text()


@pytest.fixture
def serve():
    """For a page of one test only."""
    return served


@pytest.fixture(scope="session")
def address(network_folder, dataset_folder, tmp_path_factory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    with served(folder, "--model", network_folder, "--data", dataset_folder, "--workers", 1) as found:
        yield found


@pytest.fixture(scope="session")
def transport_address(tmp_path_factory) -> Iterator[str]:
    """The page for a temperature at several times."""
    with served(tmp_path_factory.mktemp("server"), "--model", "advection-diffusion", "--workers", 1) as found:
        yield found


@pytest.fixture(scope="session")
def flow_address(tmp_path_factory) -> Iterator[str]:
    """The page for plane flow at any time."""
    with served(tmp_path_factory.mktemp("server"), "--model", "flow", "--workers", 2) as found:
        yield found
