"""Take the pictures of docs/viewer.md: the page of `penn view` in a headless Chromium.

python docs/screenshots.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from pennpde.datasets.flow.cases import coarse_mesh

IMAGES = Path(__file__).parent / "images"
SWITCHES = ["--headless", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
PATIENCE = 120_000


def settle(page: Any) -> None:
    """Wait until nothing is being computed and the picture is drawn."""
    page.wait_for_function(
        "!document.querySelector('.v-progress-linear--active') && trame.state.get('busy') === false"
        " && document.querySelector('.penn-field').dataset.source === 'record/' + trame.state.get('view')",
        timeout=PATIENCE,
    )
    page.wait_for_timeout(800)


def upload(page: Any) -> None:
    """A duct of triangles without any patch, its inlet and outlet picked on the page."""
    mesh = replace(coarse_mesh("a_0.60").triangulated(), patches={})
    with tempfile.TemporaryDirectory() as folder:
        mesh.save(Path(folder) / "my duct.vtu")
        page.locator('[data-test="source-mesh"]').click()
        page.locator("input[type=file]").first.set_input_files(Path(folder) / "my duct.vtu")
        page.wait_for_selector('[data-test="segments"]', timeout=PATIENCE)
        settle(page)
    box = page.locator(".penn-field").bounding_box()
    for place, clicks in (((0.0, 1.5), 1), ((3.0, 1.0), 2)):  # wall, inlet, outlet
        for _ in range(clicks):
            x, y = page.evaluate(f"trame.refs.picture.view.toScreen{place}")
            page.mouse.click(box["x"] + x, box["y"] + y)
            page.wait_for_timeout(700)
    settle(page)
    page.locator('[data-test="predict"]').click()
    page.wait_for_selector('[data-test="certificate"]', timeout=PATIENCE)
    settle(page)


def main() -> None:
    command = [sys.executable, "-m", "pennpde", "view", "--port", "0", "--no-browser"]
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        browser = driver.chromium.launch(executable_path=chromium, args=SWITCHES)
        for name, size, scheme in (
            ("viewer", (1400, 900), "light"),
            ("viewer_dark", (1000, 800), "dark"),
            ("viewer_dataset", (1400, 900), "light"),
            ("viewer_mesh", (1400, 900), "light"),
        ):
            width, height = size
            page = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme).new_page()
            page.goto(address)
            page.wait_for_selector(".penn-field[data-source]", timeout=PATIENCE)
            settle(page)
            if name == "viewer_dataset":
                page.locator('[data-test="source-dataset"]').click()
                page.wait_for_selector('[data-test="errors"]', timeout=PATIENCE)
                settle(page)
            if name == "viewer_mesh":
                upload(page)
            page.screenshot(path=IMAGES / f"{name}.png")
        browser.close()
        server.terminate()


if __name__ == "__main__":
    main()
