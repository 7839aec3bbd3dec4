"""Drawing on the page: shapes by hand and by keys, what their sides are, undo, and the flow that follows."""

import json
from urllib.parse import urlsplit

import pytest

from browsing import PATIENCE, Viewer, link

CHANNEL = [[0, 0, 0, 0], [3, 0, 4, 0], [3, 1, 0, 0], [0, 1, 3, 0]]
"""x, y, what the side to the next corner is, and whether it is curved."""
BODY = [[1.0, 0.4, 0, 0], [1.2, 0.4, 0, 0], [1.2, 0.6, 0, 0], [1.0, 0.6, 0, 0]]
FLUID = {"speed": 1, "viscosity": 0.01, "points": 400}

pytestmark = pytest.mark.slow  # a browser takes seconds to start


def drawing(address: str, *shapes, **changes) -> str:
    pane = {"source": "drawing", "kind": "cylinder", "values": {}, "drawing": list(shapes), "drawn": FLUID}
    return link(address, panes=[pane], duration=1, **changes)


@pytest.fixture(scope="module")
def open_page(browser, flow_address):
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    yield Viewer(context, flow_address)
    context.close()


@pytest.fixture
def viewer(open_page, flow_address):
    open_page.page.unroute_all()
    open_page.page.evaluate("location.hash = ''")
    open_page.page.goto(drawing(flow_address, CHANNEL, BODY))
    corners = json.dumps([[each[:2] for each in shape] for shape in (CHANNEL, BODY)])
    found = "JSON.stringify(pennPage.pane.shapes?.map((shape) => shape.map(({ x, y }) => [x, y])))"
    open_page.wait(f"pennPage.pane?.source === 'drawing' && {found} === JSON.stringify({corners})")
    open_page.page.evaluate("Object.assign(pennPage.pane, { past: [], future: [] })")
    open_page.settle()
    yield open_page
    assert open_page.problems == []
    assert open_page.hosts <= {urlsplit(flow_address).netloc, ""}


def shapes(viewer):
    return viewer.page.evaluate("pennPage.pane.shapes.map((shape) => shape.map(({ x, y }) => [x, y]))")


def roles(viewer):
    return viewer.page.evaluate("pennPage.pane.shapes.map((shape) => shape.map(({ role }) => role))")


def drag(viewer, start, *places):
    viewer.page.mouse.move(*viewer.place(*start))
    viewer.page.mouse.down()
    for place in places:
        viewer.page.mouse.move(*viewer.place(*place), steps=4)
    viewer.page.mouse.up()


def test_a_corner_is_dragged_and_its_flow_follows(viewer):
    before = viewer.pixels()
    levels = []
    viewer.page.on(
        "request",
        lambda each: levels.append(json.loads(each.post_data)["level"]) if each.url.endswith("/view") else None,
    )
    drag(viewer, (3, 1), (3, 1.3), (3, 1.5))
    corner = shapes(viewer)[0][2]
    assert corner == pytest.approx([3, 1.5], abs=0.06)
    viewer.settle()
    assert viewer.pixels() != before
    assert levels[-1] == "standard"
    assert "fast" in levels
    assert "points" in viewer.part("quality").inner_text()
    viewer.part("undo").click()
    assert shapes(viewer)[0][2] == [3, 1]
    viewer.part("redo").click()
    assert shapes(viewer)[0][2] == corner
    viewer.page.keyboard.press("Control+z")
    assert shapes(viewer)[0][2] == [3, 1]


def test_a_body_is_moved_and_its_forces_are_told(viewer):
    assert "Drag of body" in viewer.part("quantities").inner_text()
    drag(viewer, (1.1, 0.5), (1.6, 0.5))
    assert shapes(viewer)[1][0][0] == pytest.approx(1.5, abs=0.06)
    assert shapes(viewer)[0] == [[x, y] for x, y, *_ in CHANNEL]
    viewer.settle()
    viewer.part("quantity-drag body").click()
    viewer.page.wait_for_selector('[data-test="measured"] path', state="attached", timeout=PATIENCE)


def test_sides_become_inlets_slip_and_moving_walls_by_clicking(viewer):
    viewer.page.mouse.click(*viewer.place(2, 1))
    viewer.part("chosen-side").wait_for()
    for role in ("slip", "moving"):
        viewer.part(f"role-{role}").click()
        assert roles(viewer)[0][2] == role
        viewer.settle()
        assert viewer.page.evaluate("pennPage.view.predicted")
    viewer.part("curved").locator("input").click()
    assert viewer.page.evaluate("pennPage.pane.shapes[0][2].curved")
    # A second click takes the next kind.
    for expected in ("inlet", "outlet"):
        viewer.page.mouse.click(*viewer.place(2, 1))
        assert roles(viewer)[0][2] == expected


def test_a_double_click_adds_a_corner_and_delete_removes_it(viewer):
    viewer.page.mouse.dblclick(*viewer.place(2, 0))
    assert len(shapes(viewer)[0]) == 5
    viewer.page.locator('[data-test="corner-0-1"]').focus()
    viewer.page.keyboard.press("Delete")
    assert len(shapes(viewer)[0]) == 4


def test_everything_can_be_done_with_keys(viewer):
    corner = viewer.page.locator('[data-test="corner-0-2"]')
    corner.focus()
    for key in ("ArrowUp", "Shift+ArrowUp", "ArrowLeft"):
        viewer.page.keyboard.press(key)
    x, y = shapes(viewer)[0][2]
    assert x < 3
    assert y > 1.1
    assert f"at {x}, {y}".replace(".0,", ",") in corner.get_attribute("aria-label")
    viewer.part("corner-x").locator("input").fill("2.9")
    assert shapes(viewer)[0][2][0] == 2.9
    viewer.page.locator('[data-test="side-0-0"]').focus()
    for key, role in (("s", "slip"), ("m", "moving"), ("w", "wall"), ("Enter", "slip"), ("Shift+Enter", "wall")):
        viewer.page.keyboard.press(key)
        assert roles(viewer)[0][0] == role
    viewer.page.keyboard.press("+")
    assert len(shapes(viewer)[0]) == 5
    viewer.page.locator('[data-test="body-1"]').focus()
    viewer.page.keyboard.press("ArrowRight")
    assert shapes(viewer)[1][0][0] > 1.0
    viewer.page.keyboard.press("Delete")
    assert len(shapes(viewer)) == 1
    viewer.part("add-round").focus()
    viewer.page.keyboard.press("Enter")
    assert len(shapes(viewer)) == 2
    viewer.settle()
    assert "Drag of body" in viewer.part("quantities").inner_text()


def test_an_outline_is_drawn_corner_by_corner(viewer):
    viewer.part("pen-outline").click()
    for place in ((0.2, 0.1), (2.6, 0.1), (2.6, 0.9), (0.2, 0.9), (0.2, 0.1)):
        viewer.page.mouse.click(*viewer.place(*place))
    assert len(shapes(viewer)) == 1
    assert sorted(roles(viewer)[0]) == ["inlet", "outlet", "wall", "wall"]
    viewer.settle()
    assert viewer.page.evaluate("pennPage.view.predicted")
    viewer.part("pen-body").click()
    for place in ((1.0, 0.4), (1.3, 0.4), (1.1, 0.6)):
        viewer.page.mouse.click(*viewer.place(*place))
    viewer.page.keyboard.press("Enter")
    assert len(shapes(viewer)) == 2
    viewer.settle()
    assert "Drag of body" in viewer.part("quantities").inner_text()


def test_what_cannot_be_filled_is_said_and_the_last_flow_stays(viewer):
    before = viewer.page.evaluate("pennPage.view.view")
    viewer.page.locator('[data-test="side-0-1"]').focus()
    viewer.page.keyboard.press("w")
    assert "no outlet" in viewer.part("fault").inner_text()
    viewer.page.keyboard.press("o")
    assert viewer.part("fault").count() == 0
    drag(viewer, (1.1, 0.5), (1.1, 1.0))
    assert "cross" in viewer.part("fault").inner_text()
    viewer.part("undo").click()
    viewer.settle()
    assert viewer.page.evaluate("pennPage.view.view") == before
    viewer.part("source-template").click()
    viewer.settle()
    viewer.part("source-drawing").click()
    assert len(shapes(viewer)) == 2  # it is still there


def test_a_design_becomes_a_drawing_whose_curves_have_a_few_corners(viewer, flow_address):
    viewer.page.evaluate("location.hash = ''")
    panes = [{"source": "template", "kind": "bend", "values": {"resolution": 6}}]
    viewer.page.goto(link(flow_address, panes=panes, duration=1))
    viewer.wait("pennPage.pane?.kind === 'bend' && pennPage.pane.source === 'template'")
    viewer.settle()
    viewer.part("source-drawing").click()
    viewer.wait("pennPage.pane.source === 'drawing' && pennPage.view.title === 'Drawing'")
    viewer.settle()
    found = shapes(viewer)[0]
    assert 8 <= len(found) <= 16
    assert sum(viewer.page.evaluate("pennPage.pane.shapes[0].map(({ curved }) => curved)")) >= 4
    assert sorted(set(roles(viewer)[0])) == ["inlet", "outlet", "wall"]


def test_a_link_and_a_picture_share_the_drawing(viewer, browser, tmp_path):
    viewer.page.locator('[data-test="side-0-0"]').focus()
    viewer.page.keyboard.press("s")
    viewer.settle()
    viewer.page.wait_for_timeout(400)
    address = viewer.page.evaluate("location.href")
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    other = Viewer(context, address)
    other.wait("pennPage.pane?.source === 'drawing'")
    other.settle()
    assert roles(other) == roles(viewer)
    assert other.pixels() == viewer.pixels()
    assert other.problems == []
    context.close()
    viewer.part("download").click()
    assert viewer.saved("download-png", tmp_path).read_bytes()[:4] == b"\x89PNG"


def test_a_study_of_a_slider_gives_a_curve(viewer, tmp_path):
    viewer.part("tool-study").click()
    viewer.part("study-count").locator("input").fill("3")
    viewer.part("study-run").click()
    viewer.wait("document.querySelector('[data-test=study-status]')?.innerText.startsWith('3 predictions')")
    rows = viewer.saved("study-csv", tmp_path).read_text().splitlines()
    assert rows[0].startswith("Speed of inlets and moving walls,Drag of body")
    drags = [float(row.split(",")[1]) for row in rows[1:]]
    assert len(drags) == 3
    assert drags[0] < drags[1] < drags[2]  # faster flow, larger force
