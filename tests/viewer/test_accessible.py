"""The page by the rules of axe-core, in all that it can show: names, roles, contrast, landmarks."""

from importlib.resources import files

import pytest

from browsing import PATIENCE, Viewer

pytestmark = pytest.mark.slow  # a browser takes seconds to start

CHECK = """axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations.map(
  ({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 150)).join(" | ")}`))"""


@pytest.fixture(scope="module")
def axe():
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    return files(package).joinpath("axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_anything_that_the_page_shows(browser, flow_address, axe, scheme):
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    viewer = Viewer(context, flow_address)
    viewer.page.evaluate("(source) => { (0, eval)(source); }", axe)
    faults = {}

    def check(what):
        viewer.page.wait_for_timeout(600)  # what appears is half transparent at first
        if found := viewer.page.evaluate(CHECK):
            faults[what] = found

    viewer.settle()
    check("start")
    for menu in ("network", "range", "download"):
        viewer.part(menu).click()
        check(menu)
        viewer.page.keyboard.press("Escape")
        viewer.page.wait_for_timeout(400)
    viewer.part("source-drawing").click()
    viewer.page.wait_for_selector('[data-test="layer"]', timeout=PATIENCE)
    for part in ("side-0-0", "corner-0-0", "body-1"):
        viewer.part(part).focus()
        check(part)
    viewer.settle()
    for tool in ("study", "probe", "line"):
        viewer.part(f"tool-{tool}").click()
        check(tool)
    viewer.part("tool-line").click()
    viewer.part("quantity-drag body").click()
    check("quantity")
    for source in ("dataset", "mesh", "template"):
        viewer.part(f"source-{source}").click()
        viewer.page.wait_for_timeout(1000)
        check(source)
    viewer.part("compare").click()
    viewer.settle()
    check("compare")
    viewer.page.set_viewport_size({"width": 400, "height": 800})
    check("narrow")
    assert faults == {}
    assert viewer.problems == []
    context.close()
