"""The page of `penn view` in a real browser: what a user does, and what they see."""

import http.client
import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
import torch
from problems import rectangle

from pennpde.mesh import Mesh
from pennpde.viewer.records import record_of, write_page
from pennpde.viewer.server import MOST_BYTES

pytestmark = pytest.mark.slow  # a browser takes seconds to start

PATIENCE = 60_000
"""Milliseconds: a machine may be busy."""


class Viewer:
    """The page as a user's hands and eyes have it."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.problems, self.hosts = [], set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.goto(address)
        self.page.wait_for_selector(".penn-field[data-source]", timeout=PATIENCE)

    def part(self, name):
        return self.page.locator(f'[data-test="{name}"]')

    def start_anew(self):
        """All controls where a new server has them, but for a coarser mesh, which takes less time."""
        self.page.evaluate("""() => {
          const start = { source: "template", kind: "a", first: 0.37, second: 0.37, speed: 1, viscosity: 0.001,
            field: "|u|", shown: "", cells: false, streamlines: true, hold: false, message: "", resolution: 8 };
          for (const [name, value] of Object.entries(start)) trame.state.set(name, value);
        }""")
        self.wait("document.querySelector('[data-test=status]').innerText.startsWith('Step 0.37')")
        self.settle()

    def wait(self, condition):
        self.page.wait_for_function(condition, timeout=PATIENCE)

    def settle(self):
        """Wait until nothing is being computed and the picture is that of the latest view."""
        self.wait(
            "!document.querySelector('.v-progress-linear--active')"
            " && trame.state.get('busy') === false"
            " && document.querySelector('.penn-field').dataset.source === 'record/' + trame.state.get('view')"
        )

    def frame(self):
        """Wait until what was asked for is drawn."""
        self.page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 50))")

    def pixels(self):
        """The picture's colours, without lines and legend."""
        self.frame()
        return self.page.evaluate("document.querySelector('.penn-field canvas').toDataURL()")

    def overlay(self):
        self.frame()
        return self.page.evaluate("document.querySelectorAll('.penn-field canvas')[1].toDataURL()")

    def status(self):
        return self.part("status").inner_text()

    def nudge(self, slider, times=1, key="ArrowRight"):
        thumb = self.part(slider).locator(".v-slider-thumb")
        thumb.focus()
        for _ in range(times):
            thumb.press(key)

    def upload(self, path):
        self.part("source-mesh").click()
        self.page.locator("input[type=file]").first.set_input_files(path)


@pytest.fixture(scope="module")
def open_viewer(browser, address):
    # One page for all: to open one takes longer than most tests.
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    yield Viewer(context, address)
    context.close()


@pytest.fixture
def viewer(open_viewer, address):
    open_viewer.start_anew()
    yield open_viewer
    assert open_viewer.problems == []
    assert open_viewer.hosts <= {urlsplit(address).netloc, ""}, "the page asked another machine"


@pytest.fixture
def mesh_file(tmp_path):
    """A duct from (0, 0) to (3, 1) whose file names no patches."""
    replace(rectangle((24, 8), (3.0, 1.0)), patches={}).save(tmp_path / "my duct.vtu")
    return tmp_path / "my duct.vtu"


def test_the_picture_follows_the_sliders(viewer):
    seen = [viewer.pixels()]
    title = viewer.status()
    for slider in ("slider-0", "slider-speed"):
        viewer.nudge(slider, 3)
        viewer.wait(f"document.querySelector('[data-test=status]').innerText !== {title!r}")
        viewer.settle()
        assert viewer.status() != title
        assert viewer.pixels() not in seen
        seen.append(viewer.pixels())
        title = viewer.status()
    viewer.part("template-b").click()
    viewer.wait("document.querySelector('[data-test=status]').innerText.startsWith('Offset duct')")
    viewer.settle()
    assert viewer.pixels() not in seen
    assert viewer.part("slider-1").is_visible()


def test_while_a_slider_moves_only_its_latest_place_counts(viewer):
    viewer.nudge("slider-0", 1, "Home")
    viewer.settle()
    before = viewer.page.evaluate("trame.state.get('view')")
    viewer.nudge("slider-0", 30)
    viewer.wait("document.querySelector('[data-test=status]').innerText.startsWith('Step 0.30')")
    viewer.settle()
    computed = viewer.page.evaluate("trame.state.get('view')") - before
    assert 1 <= computed < 30


def test_fields_cells_and_streamlines_are_switched(viewer):
    seen = [viewer.pixels()]
    for field in ("field-x", "field-y", "field-p", "cells"):
        viewer.part(field).click()
        assert viewer.pixels() not in seen
        seen.append(viewer.pixels())
    with_lines = viewer.overlay()
    viewer.part("streamlines").click()
    assert viewer.overlay() != with_lines
    assert viewer.pixels() == seen[-1]


def test_the_pointer_reads_values_and_the_wheel_zooms(viewer):
    box = viewer.page.locator(".penn-field").bounding_box()
    x, y = viewer.page.evaluate("trame.refs.picture.view.toScreen(0.02, 1.5)")
    viewer.page.mouse.move(box["x"] + x, box["y"] + y)
    text = viewer.page.locator(".penn-field > div").inner_text()
    read = dict(re.findall(r"^(\S+)\s+(-?[\d.]+)", text, re.MULTILINE))
    assert float(read["u_x"]) == pytest.approx(1.0, abs=0.3)  # just behind the inlet
    assert read.keys() == {"x", "y", "|u|", "u_x", "u_y", "p"}
    before = viewer.pixels()
    viewer.page.mouse.wheel(0, -400)
    assert viewer.pixels() != before
    viewer.part("reset").click()
    assert viewer.pixels() == before


def test_certificate_timing_and_network_stand_beside_the_picture(viewer):
    certificate = viewer.part("certificate").inner_text()
    for words in ("Prescribed u", "exact", "Flux imbalance", "Divergence", "Solver residual", "Training range"):
        assert words in certificate
    assert re.search(r"Network\s+[\d.]+ m?s", viewer.part("timing").inner_text())
    viewer.part("network").click()
    viewer.wait("document.querySelector('[data-test=about]').innerText.includes('3 cases of flow')")
    viewer.page.keyboard.press("Escape")
    viewer.nudge("slider-speed", 1, "End")
    viewer.wait("document.querySelector('[data-test=warnings]')?.innerText.includes('Reynolds number is 3000')")


def test_the_page_is_light_or_dark_as_the_system_or_the_user_wants(browser, address):
    context = browser.new_context(color_scheme="light")
    viewer = Viewer(context, address)
    page = viewer.page
    background = "getComputedStyle(document.querySelector('.penn')).backgroundColor"
    light = page.evaluate(background)
    page.emulate_media(color_scheme="dark")
    viewer.wait("document.querySelector('.penn.v-theme--dark')")
    dark = page.evaluate(background)
    assert dark != light
    viewer.part("light").click()
    viewer.wait("document.querySelector('.penn.v-theme--light')")
    page.reload()  # the choice is kept
    page.wait_for_selector(".penn-field[data-source]", timeout=PATIENCE)
    viewer.wait("document.querySelector('.penn.v-theme--light')")
    viewer.part("dark").click()
    viewer.wait("document.querySelector('.penn.v-theme--dark')")
    context.close()


@pytest.mark.parametrize("size", [(1400, 900), (820, 1100)])
def test_nothing_is_cut_off_in_a_wide_and_in_a_narrow_window(viewer, size):
    viewer.page.set_viewport_size({"width": size[0], "height": size[1]})
    assert viewer.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    picture = viewer.page.locator(".penn-field").bounding_box()
    assert picture["width"] > size[0] / 2
    assert picture["height"] > 300
    assert picture["y"] + picture["height"] < size[1]
    for name in ("certificate", "slider-0", "field-p", "download"):
        box = viewer.part(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= size[0]
    viewer.page.set_viewport_size({"width": 1400, "height": 900})


def test_a_mesh_is_uploaded_its_patches_picked_and_its_flow_predicted(viewer, mesh_file):
    viewer.upload(mesh_file)
    viewer.page.wait_for_selector('[data-test="segments"]', timeout=PATIENCE)
    viewer.settle()
    assert viewer.page.locator(".penn-segment").count() == 4
    assert viewer.part("predict").is_disabled()
    plain = viewer.overlay()
    viewer.part("segment-3").hover()
    assert viewer.overlay() != plain  # highlighted in the picture
    viewer.part("segment-0").get_by_text("in", exact=True).click()
    # The outlet by a click on the boundary in the picture, twice: wall, inlet, outlet.
    viewer.settle()
    box = viewer.page.locator(".penn-field").bounding_box()
    x, y = viewer.page.evaluate("trame.refs.picture.view.toScreen(3, 0.5)")
    for role in ("inlet", "outlet"):
        viewer.page.mouse.click(box["x"] + x, box["y"] + y)
        viewer.wait(f"trame.state.get('roles')[3] === {role!r}")
    viewer.settle()
    viewer.part("mesh-speed").locator("input").fill("2")
    viewer.part("predict").click()
    viewer.page.wait_for_selector('[data-test="certificate"]', timeout=PATIENCE)
    viewer.settle()
    assert "Reynolds number 2000" in viewer.status()
    assert "exact" in viewer.part("certificate").inner_text()
    # It is still there after a look at something else.
    viewer.part("source-template").click()
    viewer.wait("document.querySelector('[data-test=status]').innerText.startsWith('Step')")
    viewer.part("source-mesh").click()
    viewer.wait("document.querySelector('[data-test=status]').innerText.includes('Reynolds number 2000')")
    # Other roles, and the prediction is no longer shown.
    viewer.part("segment-1").get_by_text("out", exact=True).click()
    viewer.wait("trame.state.get('predicted') === false")


def test_files_that_are_no_meshes_get_a_message_and_the_page_lives_on(viewer, mesh_file, tmp_path):
    (tmp_path / "broken.vtu").write_text("<VTKFile this is not")
    viewer.upload(tmp_path / "broken.vtu")
    viewer.page.wait_for_selector('[data-test="message"]', timeout=PATIENCE)
    assert "broken.vtu" in viewer.part("message").inner_text()
    with (tmp_path / "huge.vtu").open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)
    viewer.upload(tmp_path / "huge.vtu")
    viewer.wait("document.querySelector('[data-test=message]').innerText.includes('huge.vtu')")
    assert "50 MB" in viewer.part("message").inner_text()
    viewer.upload(mesh_file)
    viewer.page.wait_for_selector('[data-test="segments"]', timeout=PATIENCE)
    viewer.wait("!document.querySelector('[data-test=message]')")
    viewer.part("source-template").click()
    viewer.wait("document.querySelector('[data-test=status]').innerText.startsWith('Step')")


def test_wrong_numbers_get_a_message(viewer):
    viewer.part("viscosity").locator("input").fill("0")
    viewer.page.wait_for_selector('[data-test="message"]', timeout=PATIENCE)
    assert "viscosity is 0" in viewer.part("message").inner_text()
    viewer.part("viscosity").locator("input").fill("0.001")
    viewer.wait("!document.querySelector('[data-test=message]')")


def test_a_case_of_the_dataset_is_compared_with_its_truth(viewer):
    viewer.part("source-dataset").click()
    viewer.page.wait_for_selector('[data-test="errors"]', timeout=PATIENCE)
    viewer.settle()
    assert viewer.status().startswith("b_0.10_0.70")
    assert "Error of u" in viewer.part("errors").inner_text()
    pictures = {viewer.pixels()}
    for shown in ("shown-truth", "shown-error"):
        viewer.part(shown).click()
        pictures.add(viewer.pixels())
    assert len(pictures) == 3


def test_fields_picture_and_page_are_downloaded(viewer, tmp_path):
    found = {}
    for kind in ("vtu", "png", "html"):
        viewer.part("download").click()
        with viewer.page.expect_download(timeout=PATIENCE) as started:
            viewer.part(f"download-{kind}").click()
        assert re.fullmatch(rf"Step_\d\.\d\d\.{kind}", started.value.suggested_filename)
        found[kind] = tmp_path / started.value.suggested_filename
        started.value.save_as(found[kind])
    mesh = Mesh.read(found["vtu"])
    assert mesh.fields["u"].shape == (mesh.number_of_points, 2)
    assert mesh.patches.keys() == {"inlet", "outlet", "wall"}
    assert found["png"].read_bytes().startswith(b"\x89PNG")
    assert "Certificate" in found["html"].read_text()


def test_a_written_page_opens_and_draws_from_its_file_alone(browser, tmp_path):
    mesh = rectangle((12, 6), (2.0, 1.0))
    x, y = mesh.points.T
    record = record_of(mesh, {"u": torch.stack([y * (1 - y), 0 * x], dim=1), "p": 1 - x})
    write_page(tmp_path / "page.html", record, "Channel", "72 cells", ["exact"])
    page = browser.new_page(viewport={"width": 900, "height": 700})
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    page.goto((tmp_path / "page.html").as_uri())
    canvas = "new Promise((done) => setTimeout(() => done(document.querySelector('#view canvas').toDataURL()), 100))"
    speed = page.evaluate(canvas)
    page.get_by_role("button", name="p", exact=True).click()
    pressure = page.evaluate(canvas)
    page.get_by_role("button", name="cells").click()
    assert len({speed, pressure, page.evaluate(canvas)}) == 3
    assert page.locator("h1").first.inner_text() == "Channel"
    page.close()
    assert problems == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://127.0.0.1:{port}"}, 200),
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Host": "elsewhere.example"}, 403),
    ],
)
@pytest.mark.parametrize("path", ["/index.html", "/ws"])
def test_other_sites_may_not_use_the_server(address, path, headers, status):
    parts = urlsplit(address)
    if path == "/ws":
        headers = headers | {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        status = 101 if status == 200 else status
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.request("GET", path, headers={key: value.format(port=parts.port) for key, value in headers.items()})
    answer = connection.getresponse()
    assert answer.status == status
    if path != "/ws":
        assert "default-src 'self'" in answer.headers.get("Content-Security-Policy", "") or status == 403
    connection.close()


def test_the_server_itself_refuses_too_much(address):
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    connection.putrequest("POST", "/upload?name=huge.vtu")
    connection.putheader("Content-Length", str(MOST_BYTES + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert "50 MB" in answer.read().decode()
    connection.close()
