"""Every control of the page, used by pointer and keys, at three sizes of the window, in Chromium and in Firefox."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from browsing import PATIENCE
from firefox import FirefoxWindow
from pennpde.mesh.triangulation import fill
from pennpde.viewer.records import WEB
from pennpde.viewer.shapes import BY_KIND
from touring import SIZES, tour

pytestmark = pytest.mark.deep  # minutes of two browsers, whose frames a busy machine keeps waiting

READY = "window.pennPage?.panes?.length && pennPage.view.predicted && pennPage.pane.drawn"
ELSEWHERE = {
    "last": "test_page.py::test_the_page_leads_back_to_the_last_case",
    "force": "of a refused prediction",
    "refine": "test_moving.py::test_a_fast_answer_is_refined_and_can_be_refined_further",
}
"""Controls that are only there sometimes."""
COLOURS = """(() => { const canvas = document.querySelector(".penn-field canvas"), gl = canvas.getContext("webgl");
  const bytes = new Uint8Array(4 * canvas.width * canvas.height), found = new Set();
  gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  for (let k = 0; k < bytes.length; k += 40) found.add(bytes[k] + ":" + bytes[k + 1] + ":" + bytes[k + 2]);
  return found.size; })()"""


class ChromiumWindow:
    """One page of Playwright's."""

    def __init__(self, browser: Any, address: str):
        self.context = browser.new_context(reduced_motion="reduce")
        self.page, self.problems = self.context.new_page(), []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda each: self.problems.append(each.text) if each.type == "error" else None)
        self.page.goto(address)

    def value(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def wait(self, condition: str) -> None:
        self.page.wait_for_function(condition, timeout=PATIENCE)

    def tap(self, x: float, y: float) -> None:
        self.page.mouse.click(x, y)

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*end, steps=3)
        self.page.mouse.up()

    def resize(self, width: int, height: int) -> None:
        self.page.set_viewport_size({"width": width, "height": height})

    def close(self) -> None:
        self.context.close()


@contextmanager
def opened(name: str, request: pytest.FixtureRequest, address: str, folder: Path) -> Iterator[Any]:
    if name == "Firefox":
        for program, package in (("firefox-esr", "Firefox"), ("Xvfb", "Xvfb")):
            if shutil.which(program) is None:
                pytest.skip(f"needs {package}")
        window: Any = FirefoxWindow(address, folder)
    else:
        window = ChromiumWindow(request.getfixturevalue("browser"), address)
    try:
        yield window
    finally:
        window.close()


@pytest.fixture(scope="module", params=["Chromium", "Firefox"])
def window(request, flow_address, tmp_path_factory) -> Iterator[Any]:
    with opened(request.param, request, flow_address, tmp_path_factory.mktemp("profile")) as found:
        found.wait(READY)
        yield found


def controls() -> set[str]:
    """The names of all controls in the sources of the page, as far as they stand there as they are."""
    tags = "v-btn|button|v-switch|penn-number|v-select|v-autocomplete|v-list-item|circle|path|rect"
    texts = "".join((WEB / name).read_text() for name in ("view.html", "study.js", "drawing.js"))
    return set(re.findall(rf"<(?:{tags})\b[^>]*?\sdata-test=\"([\w-]+)\"", texts))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size)))
def test_every_control_can_be_used_whatever_the_size_and_the_browser(window, size, tmp_path):
    fill(BY_KIND["cavity"].polygons({"height": 1.0}), 1 / 8).save(tmp_path / "duct.vtu")
    window.resize(*size)
    anew = "history.replaceState(null, '', location.pathname), location.reload()"
    window.value(f"(window.old = true, localStorage.clear(), {anew}, 1)")
    window.wait(f"!window.old && {READY}")
    used = tour(window, (tmp_path / "duct.vtu").read_bytes())
    assert controls() - used - ELSEWHERE.keys() == set()
    assert window.problems == []


def test_a_corner_is_dragged_and_the_flow_follows(window):
    window.resize(*SIZES[0])
    window.value("document.querySelector('[data-test=source-drawing]').click()")
    settled = "!pennPage.pane.busy && pennPage.pane.drawn === 'record/' + pennPage.view.view && pennPage.frames[0]"
    window.wait(f"pennPage.pane.source === 'drawing' && {settled}")
    window.wait(f"{COLOURS} > 50")  # the field, in its colours
    before, corner = window.value("pennPage.view.view"), window.value("pennPage.pane.shapes[0][2].y")
    circle = "document.querySelector('[data-test=corner-0-2]').getBoundingClientRect()"
    window.value("document.querySelector('.penn-field').scrollIntoView({ block: 'center' })")
    x, y = (
        window.value(f"{circle}.{side} + {circle}.{length} / 2")
        for side, length in (("left", "width"), ("top", "height"))
    )
    window.drag((x, y), (x, y - 30))
    assert window.value("pennPage.pane.shapes[0][2].y") > corner
    window.wait(f"pennPage.view.view !== {before!r} && {settled}")
    assert window.problems == []
