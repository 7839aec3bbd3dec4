"""Take the pictures of docs/viewer.md: the page of `penn view` in a headless Chromium.

python docs/screenshots.py                 # all pictures
python docs/screenshots.py viewer_mesh     # one of them

The picture of the dataset needs `data/flow`, or another dataset of flows given by --data.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import sync_playwright

from pennlab.datasets.split_quads import triangulated
from pennpde.models.designs import coarse_mesh

IMAGES = Path(__file__).parent / "images"
SWITCHES = ["--headless", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
PATIENCE = 180_000
LARGEST = 200_000
"""Bytes of a picture."""


def chromium(driver: Any) -> Any:
    """A running browser."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    return driver.chromium.launch(executable_path=found, args=SWITCHES)


def part(page: Any, name: str) -> Any:
    """A part of the page by the name that tests have for it."""
    return page.locator(f'[data-test="{name}"]')


def settle(page: Any) -> None:
    """Wait until nothing is being computed and the pictures are drawn."""
    page.wait_for_timeout(200)
    page.wait_for_function(
        "window.pennPage && pennPage.start && pennPage.visible.every((index) => { const pane = pennPage.panes[index];"
        " return !pane.busy && pane.view.view && pane.drawn === 'record/' + pane.view.view; })",
        timeout=PATIENCE,
    )
    page.wait_for_timeout(800)


def show_dataset(page: Any) -> None:
    """A case of the test set, and its error."""
    part(page, "source-dataset").click()
    page.wait_for_selector('[data-test="errors"]', timeout=PATIENCE)
    settle(page)
    part(page, "shown-error").click()
    settle(page)


def upload(page: Any) -> None:
    """A duct of triangles without any patch, its inlet and outlet picked on the page."""
    mesh = replace(triangulated(coarse_mesh("a_0.60")), patches={})
    with tempfile.TemporaryDirectory() as folder:
        mesh.save(Path(folder) / "my duct.vtu")
        part(page, "source-mesh").click()
        part(page, "file").set_input_files(Path(folder) / "my duct.vtu")
        page.wait_for_selector('[data-test="segments"]', timeout=PATIENCE)
        settle(page)
    box = page.locator(".penn-field").bounding_box()
    for place, clicks in (((0.0, 1.5), 1), ((3.0, 1.0), 2)):  # wall, inlet, outlet
        for _ in range(clicks):
            x, y = page.evaluate(f"pennPage.pictures[0].view.toScreen{place}")
            page.mouse.click(box["x"] + x, box["y"] + y)
            page.wait_for_timeout(700)
    settle(page)
    part(page, "predict").click()
    page.wait_for_selector('[data-test="certificate"]', timeout=PATIENCE)
    settle(page)


def draft(page: Any) -> bytes:
    """A slider is being dragged, and its flow is not there yet."""
    held: list[Any] = []
    page.evaluate("pennPage.playing = false")
    page.route("**/view", lambda route: held.append(route))  # noqa: PLW0108  # Playwright marks its handlers
    page.evaluate("pennPage.drag(true); pennPage.pane.values.cylinder.diameter = 0.42")
    page.wait_for_function("pennPage.pictures[0].view.options.sketch", timeout=PATIENCE)
    page.wait_for_timeout(700)
    content = page.screenshot()
    for route in held:
        route.abort()
    return content


def designs(page: Any) -> bytes:
    """Ten designs, each as soon as its fast answer is there."""
    from PIL import Image

    kinds = ("cavity", "a", "bend", "u_bend", "tee", "fork", "nozzle", "diffuser", "aerofoil", "manifold")
    tiles = []
    page.evaluate("pennPage.playing = false")
    for kind in kinds:
        part(page, f"template-{kind}").click()
        page.wait_for_function("pennPage.view.predicted && !pennPage.isDraft(pennPage.pane)", timeout=PATIENCE)
        page.wait_for_timeout(900)
        box = page.locator(".penn-field").bounding_box()
        tiles.append(Image.open(io.BytesIO(page.screenshot(clip=box))).convert("RGB"))
    width, height = 400, round(400 * tiles[0].height / tiles[0].width)
    sheet = Image.new("RGB", (4 * width, 3 * height), "white")
    for number, tile in enumerate(tiles):
        small = tile.resize((width, height), Image.Resampling.LANCZOS)
        sheet.paste(small, (width * (number % 4), height * (number // 4)))
    content = io.BytesIO()
    sheet.save(content, format="PNG")
    return content.getvalue()


def draw(page: Any) -> None:
    """A cylinder in a channel whose outlet was dragged open, and the side that is chosen."""
    part(page, "source-drawing").click()
    page.wait_for_selector('[data-test="layer"]', timeout=PATIENCE)
    page.evaluate("pennPage.playing = false")
    settle(page)
    page.evaluate(
        """() => { const shapes = JSON.parse(JSON.stringify(pennPage.pane.shapes)), [, right, upper] = shapes[0];
        right.y = -0.4; upper.y = 1.4; pennPage.change(shapes); }"""
    )
    settle(page)
    part(page, "add-square").click()
    page.evaluate(
        """() => { const shapes = JSON.parse(JSON.stringify(pennPage.pane.shapes));
        for (const each of shapes[2]) { each.x += 1.2; each.y += 0.2; } pennPage.change(shapes); }"""
    )
    settle(page)
    page.evaluate("pennPage.chosen = { shape: 0, side: 0 }; pennPage.frame = 19")
    settle(page)


def quantities(page: Any) -> None:
    """The lift of the cylinder over time."""
    page.evaluate("pennPage.playing = false; pennPage.frame = 17")
    settle(page)
    part(page, "quantity-lift body").click()
    settle(page)


def study(page: Any) -> None:
    """The pressure drop of a nozzle over its throat."""
    page.evaluate("pennPage.playing = false")
    part(page, "template-nozzle").click()
    page.wait_for_function(
        "pennPage.view.title.startsWith('Nozzle') && pennPage.pane.kind === 'nozzle'", timeout=PATIENCE
    )
    settle(page)
    part(page, "tool-study").click()
    page.wait_for_selector('[data-test="study-run"]', timeout=PATIENCE)
    part(page, "study-run").click()
    page.wait_for_function(
        "document.querySelector('[data-test=study-status]')?.innerText.includes('7 predictions')", timeout=PATIENCE
    )
    settle(page)


def play(page: Any) -> None:
    """The vortex street at its last time, refined."""
    page.evaluate("pennPage.playing = false; pennPage.frame = 17")
    settle(page)


def compare(page: Any) -> None:
    """Two Reynolds numbers side by side, and the speed along a line through both."""
    part(page, "compare").click()
    settle(page)
    page.evaluate("pennPage.setReynolds(2); pennPage.playing = false; pennPage.frame = 17")
    settle(page)
    part(page, "tool-line").click()
    settle(page)


def shrink(content: bytes, path: Path) -> None:
    """Write a picture; where it takes too much space, with 256 colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size >= LARGEST:
        picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=2).save(path, optimize=True)


@dataclass(frozen=True)
class Picture:
    """One picture: the network, the size of the window, and what is done before it is taken."""

    name: str
    model: str
    size: tuple[int, int]
    scheme: Literal["light", "dark"] = "light"
    act: Callable[[Any], bytes | None] = settle
    """What is done on the page; it may return another picture than that of the window."""


PICTURES = (
    Picture("viewer", "flow", (1280, 800), act=play),
    Picture("viewer_designs", "flow", (1280, 900), act=designs),
    Picture("viewer_draft", "flow", (1280, 800), act=draft),
    Picture("viewer_draw", "flow", (1280, 800), act=draw),
    Picture("viewer_quantities", "flow", (1280, 800), act=quantities),
    Picture("viewer_study", "flow", (1280, 1000), "dark", act=study),
    Picture("viewer_dark", "flow", (400, 800), "dark", act=play),
    Picture("viewer_dataset", "flow", (1280, 800), act=show_dataset),
    Picture("viewer_mesh", "flow", (1280, 800), act=upload),
    Picture("viewer_compare", "flow", (1280, 1000), act=compare),
)


def take(pictures: Sequence[Picture], options: Sequence[str]) -> None:
    """Take the pictures of one network."""
    command = [sys.executable, "-m", "pennpde", "view", "--port", "0", "--no-browser", "--model", pictures[0].model]
    with (
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as driver,
    ):
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[0]
            browser = chromium(driver)
            for picture in pictures:
                width, height = picture.size
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=picture.scheme)
                page = context.new_page()
                page.set_default_timeout(PATIENCE)
                page.goto(address)
                page.wait_for_function("window.pennPage && pennPage.view && pennPage.view.predicted", timeout=PATIENCE)
                content = picture.act(page) or page.screenshot()
                path = IMAGES / f"{picture.name}.png"
                shrink(content, path)
                size = path.stat().st_size
                print(f"{path.name}: {size / 1000:.0f} kB{'' if size < LARGEST else ', TOO LARGE'}")
                context.close()
            browser.close()
        finally:
            server.terminate()  # or its end would be waited for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*(each.name for each in PICTURES), []], metavar="NAME")
    parser.add_argument("--data")
    given = parser.parse_args()
    wanted = [each for each in PICTURES if not given.names or each.name in given.names]
    options = ["--data", given.data] if given.data else []
    for model in dict.fromkeys(each.model for each in wanted):
        take([each for each in wanted if each.model == model], options)


if __name__ == "__main__":
    main()
