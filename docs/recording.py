"""Record the animation of the README: a slider is dragged, a shape is drawn, and the page answers.

python docs/recording.py            # docs/images/page.gif and page.mp4

The page of `penn view` runs in a headless Chromium. Every step is followed by pictures of the window until the answer
is there; the waiting itself is cut to some pictures, so the animation shows what happens, not how fast this machine is.
"""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))
from screenshots import PATIENCE, chromium, part, settle

IMAGES = Path(__file__).parent / "images"
WINDOW = {"width": 1200, "height": 780}
SHOWN = (840, 546)
PER_SECOND = 8
LARGEST = 3_000_000
"""Bytes of the animation."""
_COLOURS = 128
_LONGEST_WAIT = 4
"""Pictures that are kept of a wait."""


class Recorder:
    """Takes pictures of a page, with a pointer, which headless browsers do not show."""

    def __init__(self, page: Any):
        self.page, self.images = page, []
        page.add_style_tag(content="#pointer { position: fixed; z-index: 9999; pointer-events: none; }")
        page.evaluate(
            """() => { const pointer = document.createElement("div"); pointer.id = "pointer";
            pointer.innerHTML = '<svg width="22" height="26" viewBox="0 0 11 13">'
              + '<path d="M1 1v10l2.6-2.4 1.7 3.6 1.6-.8-1.7-3.5h3.6z" fill="white" stroke="black"/></svg>';
            document.body.append(pointer); window.addEventListener("pointermove", ({ clientX, clientY }) => {
              pointer.style.left = clientX + "px"; pointer.style.top = clientY + "px"; }, true); }"""
        )

    def take(self, number: int = 1) -> None:
        for _ in range(number):
            content = self.page.screenshot()
            self.images.append(Image.open(io.BytesIO(content)).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS))

    def hold(self, number: int) -> None:
        """The last picture for longer."""
        self.images += [self.images[-1]] * number

    def wait(self, condition: str) -> None:
        """Until it holds, with a few pictures meanwhile."""
        for _ in range(_LONGEST_WAIT):
            self.page.wait_for_timeout(60)
            self.take()
            if self.page.evaluate(condition):
                break
        self.page.wait_for_function(condition, timeout=PATIENCE)
        self.page.wait_for_timeout(200)
        self.take(2)

    def answer(self) -> None:
        """Until nothing is being computed."""
        self.wait("!pennPage.pane.busy && !pennPage.isDraft(pennPage.pane)")

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 6) -> None:
        """With the pointer; after each step the fast answer."""
        mouse = self.page.mouse
        mouse.move(*start)
        self.take(2)
        mouse.down()
        for x, y in zip(
            np.linspace(start[0], end[0], steps + 1)[1:], np.linspace(start[1], end[1], steps + 1)[1:], strict=True
        ):
            mouse.move(x, y)
            self.page.wait_for_timeout(60)
            self.take()
            self.page.wait_for_function("!pennPage.pane.busy && !pennPage.isDraft(pennPage.pane)", timeout=PATIENCE)
            self.page.wait_for_timeout(150)
            self.take()
        mouse.up()


def middle(locator: Any) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def play(recorder: Recorder, times: int) -> None:
    for frame in range(20 - times, 20):
        recorder.page.evaluate(f"pennPage.frame = {frame}")
        recorder.page.wait_for_timeout(120)
        recorder.take()


def record(page: Any) -> list[Image.Image]:
    """It plays, a slider is dragged, the outline is taken by hand, a side gets another role, a force over time."""
    recorder = Recorder(page)
    page.evaluate("pennPage.playing = false")
    settle(page)
    play(recorder, 14)
    x, y = middle(part(page, "slider-diameter").locator(".v-slider-thumb"))
    recorder.drag((x, y), (x + 70, y), 5)
    recorder.answer()
    play(recorder, 8)
    part(page, "source-drawing").click()
    page.wait_for_selector('[data-test="layer"]', timeout=PATIENCE)
    recorder.answer()
    x, y = middle(part(page, "corner-0-2"))
    recorder.drag((x, y), (x, y - 70), 5)
    recorder.answer()
    x, y = middle(part(page, "body-1"))
    recorder.drag((x, y), (x + 60, y + 10), 4)
    recorder.answer()
    x, y = middle(part(page, "side-0-0"))
    page.mouse.click(x, y)
    recorder.take(3)
    page.mouse.move(*middle(part(page, "role-slip")))
    recorder.take(2)
    part(page, "role-slip").click()
    recorder.answer()
    page.mouse.move(*middle(part(page, "quantity-drag body")))
    recorder.take(2)
    part(page, "quantity-drag body").click()
    recorder.take(2)
    play(recorder, 12)
    recorder.hold(PER_SECOND)
    return recorder.images


def indexed(images: list[Image.Image]) -> Iterator[Image.Image]:
    """With the same few colours, and without dots, which would make each picture differ from the one before."""
    sample = Image.new("RGB", (SHOWN[0], SHOWN[1] * 4))
    for number in range(4):
        sample.paste(images[(len(images) - 1) * number // 3], (0, SHOWN[1] * number))
    palette = sample.quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    for image in images:
        yield image.quantize(palette=palette, dither=Image.Dither.NONE)


def write(images: list[Image.Image]) -> None:
    import imageio_ffmpeg

    first, *others = indexed(images)
    first.save(
        IMAGES / "page.gif", save_all=True, append_images=others, duration=1000 // PER_SECOND, loop=0, optimize=True
    )
    film = imageio_ffmpeg.write_frames(
        IMAGES / "page.mp4", SHOWN, fps=PER_SECOND, quality=7, macro_block_size=2, ffmpeg_log_level="error"
    )
    film.send(None)
    for image in images:
        film.send(np.ascontiguousarray(image))
    film.close()
    for name in ("page.gif", "page.mp4"):
        size = (IMAGES / name).stat().st_size
        print(f"{name}: {len(images)} pictures, {size / 1e6:.2f} MB{'' if size < LARGEST else ', TOO LARGE'}")


def main() -> None:
    command = [sys.executable, "-m", "pennpde", "view", "--port", "0", "--no-browser", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as driver:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().split()[0]
            page = chromium(driver).new_context(viewport=WINDOW, color_scheme="light").new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(address)
            page.wait_for_function("window.pennPage && pennPage.view && pennPage.view.predicted", timeout=PATIENCE)
            images = record(page)
        finally:
            server.terminate()
    write(images)


if __name__ == "__main__":
    main()
