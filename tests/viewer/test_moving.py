"""The page with the flow network: it opens on flow that moves, and follows the hand."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsing import PATIENCE, Viewer
from pennpde.mesh.triangulation import fill
from pennpde.viewer.shapes import BY_KIND

pytestmark = pytest.mark.slow  # a browser takes seconds to start

CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
CAVITY = """[patches]
wall = "rest"
lid = "y == 1"
[dirichlet.u]
wall = 0.0
lid = [1.0, 0.0]
[neumann]
p = 0.0
[initial]
p = 0.0
[parameters]
viscosity = 0.01
"""


class FlowViewer(Viewer):
    def answered(self):
        self.wait("pennPage.view.predicted && !pennPage.isDraft(pennPage.pane)")

    def choose(self, kind):
        self.part(f"template-{kind}").click()
        self.answered()


@pytest.fixture(scope="module")
def flow(browser, flow_address) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    found = FlowViewer(context, flow_address)
    yield found
    context.close()
    assert found.problems == []


def test_the_page_opens_on_a_vortex_street_that_plays(flow):
    flow.wait("pennPage.playing")
    assert flow.status().startswith("Cylinder")
    first = flow.page.evaluate("pennPage.frame")
    flow.wait(f"pennPage.frame !== {first}")
    assert flow.page.locator("h1").inner_text() == "PENN prediction"
    assert flow.part("announcement").get_attribute("aria-live") == "polite"


def test_a_fast_answer_is_refined_and_can_be_refined_further(flow):
    flow.choose("cavity")
    flow.wait("pennPage.view.asked.level === 'standard' && !pennPage.pane.busy")
    assert "level standard" in flow.status()
    flow.wait("document.querySelector('[data-test=announcement]').innerText.includes('xpected error')")
    before = flow.page.evaluate("pennPage.view.expected.short")
    flow.part("refine").click()
    flow.wait("pennPage.view.asked.level === 'refine' && !pennPage.pane.busy")
    assert flow.page.evaluate("pennPage.view.expected.short") != before
    assert flow.part("refine").count() == 0


def test_while_a_slider_is_dragged_outline_and_answer_follow_and_all_times_come_back(flow):
    flow.choose("bend")
    flow.page.evaluate("pennPage.playing = false; pennPage.frame = 9")
    thumb = flow.part("slider-angle").locator(".v-slider-thumb").bounding_box()
    x, y = thumb["x"] + thumb["width"] / 2, thumb["y"] + thumb["height"] / 2
    mouse = flow.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 20, y, steps=4)
    flow.wait("pennPage.dragging && pennPage.pictures[0].view.options.sketch")  # before there is an answer
    outline = flow.page.evaluate("JSON.stringify(pennPage.pane.sketch)")
    flow.wait("pennPage.view.times.length === 1 && !pennPage.isDraft(pennPage.pane)")
    assert flow.page.evaluate("pennPage.view.asked.level") == "fast"
    assert flow.page.evaluate("pennPage.view.times[0] / pennPage.duration") == pytest.approx(0.5)  # the time in view
    mouse.move(x + 40, y, steps=4)
    flow.wait(f"JSON.stringify(pennPage.pane.sketch) !== {outline!r}")
    mouse.up()
    flow.wait("!pennPage.dragging && pennPage.view.times.length === 20")
    assert flow.page.evaluate("pennPage.frame") == 9
    angle = flow.page.evaluate("pennPage.pane.values.bend.angle")
    assert angle > 90
    assert flow.status().startswith(f"Bend {angle:.0f}")


def test_a_cavity_can_be_uploaded_by_its_moving_wall_and_with_its_problem_file(flow, tmp_path):
    mesh = fill(BY_KIND["cavity"].polygons({"height": 1.0}), 1 / 12)
    mesh.save(tmp_path / "cavity.vtu")
    flow.upload(tmp_path / "cavity.vtu")
    flow.page.wait_for_selector('[data-test="segments"]', timeout=PATIENCE)
    assert flow.page.evaluate("pennPage.missing()") == ["inlet", "outlet"]
    places = flow.page.evaluate("pennPage.pane.upload.segments.map((each) => each.place)")
    lid = next(number for number, place in enumerate(places) if place.startswith("y = 1"))
    flow.part(f"segment-{lid}").get_by_text("lid").click()
    flow.part("predict").click()
    flow.answered()
    flow.wait("pennPage.view.times.length === 20")
    with zipfile.ZipFile(tmp_path / "cavity.zip", "w") as archive:
        archive.write(tmp_path / "cavity.vtu", "cavity.vtu")
        archive.writestr("cavity.toml", CAVITY)
    flow.upload(tmp_path / "cavity.zip")
    flow.wait("pennPage.pane.upload.kind === 'case'")
    flow.answered()
    assert flow.page.evaluate("pennPage.view.reynolds") == pytest.approx(100, rel=0.05)
    flow.part("source-template").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_a_contrast_of_four_and_a_half_at_least(flow, scheme):
    flow.part(scheme).click()
    for source in ("mesh", "dataset", "template"):
        flow.part(f"source-{source}").click()
        flow.wait("!pennPage.pane.busy")
        flow.page.wait_for_timeout(600)  # colours fade from one to the other
        flow.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert flow.page.evaluate(CONTRAST) == []


def test_a_saved_picture_has_twice_the_size_and_a_title(flow, tmp_path):
    from PIL import Image

    flow.choose("nozzle")
    flow.wait("!pennPage.pane.busy")
    flow.part("download").click()
    path = flow.saved("download-png", tmp_path)
    box = flow.page.locator(".penn-field").bounding_box()
    with Image.open(path) as picture:
        assert picture.width == pytest.approx(2 * box["width"], abs=2)
        assert picture.height > 2 * box["height"] + 60  # with title and small print
