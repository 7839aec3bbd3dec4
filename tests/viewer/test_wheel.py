"""The page as it comes out of the wheel, outside of a clone: no file of it is missing, and it predicts."""

import os
import subprocess
import sys
import zipfile

import pytest

from browsing import Viewer
from paths import ROOT

pytestmark = pytest.mark.slow  # a browser takes seconds to start


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel holds."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_page_of_an_installed_wheel_predicts_outside_of_a_clone(browser, installed, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.chdir(tmp_path)
    where = [sys.executable, "-c", "import pennpde; print(pennpde.__file__)"]
    found = subprocess.run(where, check=True, capture_output=True, text=True, env=os.environ).stdout
    assert found.startswith(str(installed))
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    with serve(tmp_path, "--workers", 1) as address:
        viewer = Viewer(context, address)
        viewer.wait("pennPage.view.predicted && pennPage.pane.drawn")
        assert viewer.status().startswith("Cylinder")
        assert viewer.part("source-dataset").count() == 0  # there is none here, and no tab that leads nowhere
        viewer.part("source-drawing").click()
        viewer.wait(
            "pennPage.pane.source === 'drawing' && pennPage.view.title === 'Drawing' && pennPage.view.predicted"
        )
        assert viewer.problems == []
    context.close()
