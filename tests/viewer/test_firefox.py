"""The page in a second browser: it draws, a corner is dragged, and nothing goes wrong."""

import asyncio
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from browsing import link
from firefox import Firefox, firefox

pytestmark = pytest.mark.slow  # a browser takes seconds to start

CHANNEL = [[0, 0, 0, 0], [3, 0, 4, 0], [3, 1, 0, 0], [0, 1, 3, 0]]
BODY = [[1.0, 0.4, 0, 1], [1.2, 0.4, 0, 1], [1.2, 0.6, 0, 1], [1.0, 0.6, 0, 1]]
FLUID = {"speed": 1, "viscosity": 0.01, "points": 400}
SETTLED = """window.pennPage && pennPage.pane && !pennPage.pane.busy && !pennPage.isDraft(pennPage.pane)
  && pennPage.pane.drawn === "record/" + pennPage.pane.view.view"""
COLOURS = """(() => { const canvas = document.querySelector(".penn-field canvas"), gl = canvas.getContext("webgl");
  const bytes = new Uint8Array(4 * canvas.width * canvas.height), found = new Set();
  gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
  for (let k = 0; k < bytes.length; k += 40) found.add(bytes[k] + ":" + bytes[k + 1] + ":" + bytes[k + 2]);
  return found.size; })()"""


async def place(page: Firefox, x: float, y: float) -> tuple[float, float]:
    toward = f"pennPage.pictures[0].view.toScreen({x}, {y})"
    box = 'document.querySelector(".penn-field").getBoundingClientRect()'
    found = await page.value(f"JSON.stringify([{box}.left + {toward}[0], {box}.top + {toward}[1]])")
    left, top = json.loads(found)
    return left, top


async def draws(address: str, folder) -> None:
    pane = {"source": "drawing", "kind": "cylinder", "values": {}, "drawing": [CHANNEL, BODY], "drawn": FLUID}
    async with firefox(link(address, panes=[pane], duration=1), folder) as page:
        await page.wait(SETTLED)
        assert await page.value(COLOURS) > 50  # the field, in its colours
        before = await page.value("pennPage.view.view")
        await page.drag(await place(page, 3, 1), await place(page, 3, 1.4))
        assert await page.value("pennPage.pane.shapes[0][2].y") == pytest.approx(1.4, abs=0.06)
        await page.wait(SETTLED)
        assert await page.value("pennPage.view.view") != before
        assert await page.value("document.querySelector('[data-test=quantities]').innerText.includes('Drag of body')")
        (folder / "page.png").write_bytes(await page.picture())
        assert page.problems == []


def test_the_page_draws_in_firefox(flow_address, tmp_path):
    for program, package in (("firefox-esr", "Firefox"), ("Xvfb", "Xvfb")):
        if shutil.which(program) is None:
            pytest.skip(f"needs {package}")
    # In a thread of its own: Playwright keeps a loop running in this one once a test has used it.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(draws(flow_address, tmp_path))).result()
