"""Every control of the page, used one after the other by pointer and keys, in whatever browser.

A `Browser` knows places of the window, not elements: a control that something covers, or that lies outside of the
window, cannot be used, as for people. What a step should bring about is said in JavaScript.
"""

from __future__ import annotations

import json
import time
from typing import Any, Protocol

SIZES = ((1400, 900), (900, 700), (400, 800))
PATIENCE = 120.0
_PLACE = """(selector) => {
  const inner = ["summary", ".v-slider-thumb", "input", ".v-field"];
  const found = [...document.querySelectorAll(selector)].find((each) => each.getClientRects().length);
  if (!found) return "is not there";
  const alone = "button, a, summary, input, path, circle, rect, [role=menuitem]";
  const control = found.matches(alone) ? found : inner.map((each) => found.querySelector(each)).find(Boolean) || found;
  if (control.disabled || control.classList.contains("v-list-item--disabled")) return "is disabled";
  if (!control.closest(".v-overlay")) control.scrollIntoView({ block: "center", inline: "center" });
  const box = control.getBoundingClientRect(), [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  let [atX, atY] = [x, y];
  if (control.matches("path")) {  // a line: its box has nothing in its middle
    const middle = control.getPointAtLength(control.getTotalLength() * 0.37), screen = control.getScreenCTM();
    [atX, atY] = [middle.x * screen.a + screen.e, middle.y * screen.d + screen.f];
  }
  if (Math.min(atX, atY, innerWidth - atX, innerHeight - atY) < 0) return `lies outside: ${atX}, ${atY}`;
  const hit = document.elementFromPoint(atX, atY);
  if (!hit || !(found.contains(hit) || hit.contains(control)))
    return `is covered by ${hit && hit.outerHTML.slice(0, 120)}`;
  if (getComputedStyle(control).pointerEvents === "none" && control.matches("button, a")) return "takes no pointer";
  return [atX, atY];
}"""

_SETTLED = "!pennPage.pane.busy && !pennPage.isDraft(pennPage.pane)"
_IN_PICTURE = """(x, y) => {
  const box = document.querySelector(".penn-field").getBoundingClientRect();
  const place = pennPage.pictures[0].view.toScreen(x, y);
  return [box.left + place[0], box.top + place[1]];
}"""


class Browser(Protocol):
    def value(self, expression: str) -> Any:
        """Of JavaScript."""

    def tap(self, x: float, y: float) -> None:
        """Click at a place of the window."""

    def press(self, key: str) -> None:
        """A key by its name in JavaScript, or a letter."""

    def resize(self, width: int, height: int) -> None: ...


class Tour:
    """Uses the controls of a page and remembers which."""

    def __init__(self, browser: Browser):
        self.browser, self.used = browser, set[str]()

    def until(self, condition: str) -> None:
        end = time.monotonic() + PATIENCE
        while not self.browser.value(f"!!({condition})"):
            assert time.monotonic() < end, f"still not: {condition}"
            time.sleep(0.03)

    def place(self, part: str) -> tuple[float, float]:
        """Where it can be clicked; what moves or fades in is waited for."""
        end, before = time.monotonic() + PATIENCE, None
        while True:
            selector = part if part.startswith("[") else f'[data-test="{part}"]'
            found = json.loads(self.browser.value(f"JSON.stringify(({_PLACE})({json.dumps(selector)}))"))
            if isinstance(found, list) and found == before:
                return found[0], found[1]
            assert isinstance(found, list) or time.monotonic() < end, f"{part} {found}"
            before = found
            time.sleep(0.03)

    def tap(self, part: str, then: str = "") -> None:
        """Click on it; afterwards something holds."""
        self.used.add(part)
        self.browser.tap(*self.place(part))
        if then:
            self.until(then)

    def close(self) -> None:
        """What lies above the page; a key that comes before it listens is lost."""
        while self.browser.value("!!document.querySelector('.v-overlay--active')"):
            self.browser.press("Escape")
            time.sleep(0.1)

    def change(self, part: str, what: str, *keys: str) -> None:
        """Click on it, or press keys in it, so that something becomes another."""
        before = self.browser.value(f"JSON.stringify({what})")
        if keys and "slider" in part:
            self.place(part)
            self.used.add(part)
            self.browser.value(f"document.querySelector('[data-test=\"{part}\"] .v-slider-thumb').focus()")
        elif keys and part.startswith(("corner-", "side-", "body-")):
            self.used.add(part)
            self.browser.value(f"document.querySelector('[data-test=\"{part}\"]').focus()")
        else:
            self.tap(part)
        for key in keys:
            self.browser.press(key)
        self.until(f"JSON.stringify({what}) !== {before!r}")

    def type(self, part: str, text: str, then: str) -> None:
        """Write into a field instead of what it holds."""
        self.tap(part, "document.activeElement.tagName === 'INPUT'")
        self.browser.value("document.activeElement.select()")
        for letter in text:
            self.browser.press(letter)
        self.until(then)


def tour(browser: Browser, mesh: bytes) -> set[str]:
    """Use everything; which controls that were."""
    go = Tour(browser)
    value, tap, change, until = browser.value, go.tap, go.change, go.until
    value(
        "(navigator.clipboard.writeText = async (address) => { window.shared = address; },"
        " penn.save = (content, name) => { window.saved = name; }, 1)"
    )
    # The head of the page
    tap("network", "document.querySelector('[data-test=about]')?.getClientRects().length")
    go.close()
    for scheme in ("dark", "light"):
        tap(scheme, f"document.querySelector('.penn.v-theme--{scheme}')")
    tap("system", "pennPage.scheme === 'system'")
    tap("link", "window.shared")
    # A design, coarse, and its sliders
    for kind in value("pennPage.start.templates.map((each) => each.kind).join()").split(",")[::-1]:
        tap(f"template-{kind}", f"pennPage.pane.kind === {kind!r}")
    tap("template-cavity", "pennPage.pane.kind === 'cavity'")
    for name in ("height", "speed", "resolution"):
        change(f"slider-{name}", "pennPage.pane.values.cavity", "Home" if name == "resolution" else "ArrowLeft")
    go.type("viscosity", "0.02", "pennPage.pane.values.cavity.viscosity === 0.02")
    change("slider-duration", "pennPage.duration", "Home")
    until(f"{_SETTLED} && pennPage.view.times.length === 20 && pennPage.reynolds")
    change("slider-reynolds", "pennPage.pane.values.cavity.viscosity", "ArrowLeft")
    tap("steady", "pennPage.steady")
    tap("steady", "!pennPage.steady")
    until(f"{_SETTLED} && pennPage.view.times.length === 20 && pennPage.view.expected.grade")
    # What is shown of it
    for name in value("pennPage.fields.join()").split(",")[::-1]:
        tap(f"field-{name}", f"pennPage.field === {name!r}")
    for switch in ("streamlines", "cells", "playing"):
        change({"playing": "play"}.get(switch, switch), f"pennPage.{switch}")
        change({"playing": "play"}.get(switch, switch), f"pennPage.{switch}")
    value("pennPage.playing = false")
    value("pennPage.frame = 5")
    change("slider-time", "pennPage.frame", "ArrowLeft")
    tap("range")
    for mode in ("full", "typed"):
        tap(f"range-{mode}", f"pennPage.range.mode === {mode!r}")
    go.type("range-low", "0.1", "pennPage.range.low === 0.1")
    go.type("range-high", "0.7", "pennPage.range.high === 0.7")
    tap("range-robust", "pennPage.range.mode === 'robust'")
    go.close()
    value("pennPage.pictures[0].view.move({ zoom: 3, centre: [0.5, 0.5] })")
    tap("reset", "pennPage.pictures[0].view.zoom === 1")
    quantity = value("'quantity-' + pennPage.view.quantities[0].name")
    tap(quantity, "pennPage.measured")
    tap(quantity, "!pennPage.measured")
    for part in ("certificate", "timing"):
        tap(part, f"document.querySelector('[data-test={part}]').open")
    # Lines, probes, a study
    tap("tool-line", "pennPage.line")
    go.type("line-x0", "0.3", "pennPage.line[0][0] === 0.3")
    tap("line-csv", "window.saved?.endsWith('line.csv')")
    tap("tool-probe", "pennPage.tool === 'probe'")
    value("document.querySelector('.penn-field').scrollIntoView({ block: 'center' })")
    browser.tap(*json.loads(value(f"JSON.stringify(({_IN_PICTURE})(0.5, 0.5))")))
    until("pennPage.probes.length === 1")
    tap("probes-csv", "window.saved?.endsWith('probes.csv')")
    tap("probes-clear", "!pennPage.probes.length")
    tap("tool-study", "pennPage.tool === 'study'")
    for part in ("study-slider", "study-quantity"):
        tap(part, "document.querySelector('.v-overlay--active')")
        go.close()
    go.type("study-low", "0.9", "document.querySelector('[data-test=study-low] input').value === '0.9'")
    go.type("study-high", "1.1", "document.querySelector('[data-test=study-high] input').value === '1.1'")
    for count in ("40", "2"):  # the first is stopped
        go.type("study-count", count, f"document.querySelector('[data-test=study-count] input').value === {count!r}")
        tap("study-run")
        if count == "40":
            tap("study-stop", "document.querySelector('[data-test=study-run]')")
    until("document.querySelector('[data-test=study-status]')?.innerText.startsWith('2 predictions')")
    tap("study-csv", "window.saved?.endsWith('study.csv')")
    tap("tool-study", "!pennPage.tool")
    # Two cases
    tap("compare", "pennPage.compare")
    tap("case-A", "pennPage.active === 0")
    tap("case-B", "pennPage.active === 1")
    tap("compare", "!pennPage.compare")
    _downloads(go)
    _drawing(go)
    _dataset_and_upload(go, mesh)
    return go.used


def _downloads(go: Tour) -> None:
    go.until(_SETTLED)
    go.tap("download")
    for suffix in ("png", "pdf", "mp4", "webm", "vtu", "vtkhdf", "html"):
        go.place(f"download-{suffix}")
        go.used.add(f"download-{suffix}")
        if suffix != "png" and not go.browser.value("!!window.fetched"):  # once in a browser: films take seconds
            address = f"document.querySelector('[data-test=download-{suffix}]').href"
            go.browser.value(
                f"(fetch({address}).then((answer) => answer.blob()).then(({{ size }}) => (window.size = size)), 1)"
            )
            go.until("window.size > 1000")
            go.browser.value("window.size = 0")
    go.browser.value("window.fetched = true")
    go.tap("download-png", "!document.querySelector('.v-overlay--active')")


def _drawing(go: Tour) -> None:
    tap, change, shapes = go.tap, go.change, "pennPage.pane.shapes"
    tap("source-drawing", "document.querySelector('[data-test=layer]')")
    go.until("pennPage.frames[0]")
    tap("side-0-0", "document.querySelector('[data-test=chosen-side]')")
    for role in ("slip", "moving", "inlet", "outlet", "wall"):
        tap(f"role-{role}", f"{shapes}[0][0].role === {role!r}")
    tap("curved", f"{shapes}[0][0].curved")
    tap("curved", f"!{shapes}[0][0].curved")
    change("corner-0-0", shapes, "ArrowLeft")
    go.type("corner-x", "-0.1", f"{shapes}[0][0].x === -0.1")
    go.type("corner-y", "-0.1", f"{shapes}[0][0].y === -0.1")
    for part in ("add-square", "remove", "add-round", "undo", "redo"):
        change(part, shapes)
    change("body-1", shapes, "ArrowRight")
    for pen in ("pen-outline", "pen-body"):
        tap(pen, "pennPage.pen")
        go.place("sheet")
        go.used.add("sheet")
        go.browser.press("Escape")
        go.until("!pennPage.pen")
    go.browser.value(
        "(pennPage.pen = 'outline', document.querySelector('.penn-field').scrollIntoView({ block: 'center' }))"
    )
    go.until("document.querySelector('[data-test=sheet]') === document.activeElement")
    for x, y in ((0.2, 0.1), (0.8, 0.1), (0.8, 0.4), (0.2, 0.4)):
        go.browser.tap(*json.loads(go.browser.value(f"JSON.stringify(({_IN_PICTURE})({x}, {y}))")))
    go.browser.press("Enter")
    go.until(f"{shapes}.length === 1 && {shapes}[0].length === 4 && !pennPage.pane.fault")
    go.until(f"{_SETTLED} && pennPage.view.title === 'Drawing'")
    go.browser.value("window.shared = ''")
    go.tap("link", "window.shared.includes('/s/')")
    go.browser.value("(fetch(window.shared).then((answer) => { window.led = answer.ok && answer.redirected; }), 1)")
    go.until("window.led")
    for name in ("speed", "points"):
        change(f"slider-{name}", "pennPage.pane.values.drawing", "ArrowLeft")
    change("switch-developed", "pennPage.pane.values.drawing")


def _dataset_and_upload(go: Tour, mesh: bytes) -> None:
    tap, value, until = go.tap, go.browser.value, go.until
    tap("source-dataset", "pennPage.pane.source === 'dataset'")
    until("!pennPage.pane.busy && pennPage.view.has_truth")
    for name in ("truth", "error", "prediction"):
        tap(f"shown-{name}", f"pennPage.shown === {{ prediction: '' }}['{name}'] || pennPage.shown === '{name} '")
    tap("case", "document.querySelector('.v-overlay--active')")
    go.close()
    go.change("slider-reynolds", "pennPage.pane.viscosity", "ArrowLeft")
    tap("own-viscosity", "pennPage.pane.viscosity === null")
    tap("source-mesh", "pennPage.pane.source === 'mesh'")
    go.place("upload")
    go.used.add("upload")
    value(
        "(() => { const files = new DataTransfer(), chooser = document.querySelector('[data-test=file]');"
        f" files.items.add(new File([new Uint8Array({list(mesh)})], 'duct.vtu'));"
        " chooser.files = files.files; chooser.dispatchEvent(new Event('change')); return 1; })()"
    )
    until("pennPage.pane.upload && document.querySelector('[data-test=segments]')")
    for number, role in enumerate(("inlet", "outlet")):
        tap(f'[data-test="segment-{number}"] .penn-{role}', f"pennPage.pane.roles[{number}] === {role!r}")
    go.type("mesh-speed", "2", "pennPage.pane.numbers.speed === 2")
    go.type("mesh-viscosity", "0.01", "pennPage.pane.numbers.viscosity === 0.01")
    go.change("mesh-developed", "pennPage.pane.numbers")
    tap("predict", "pennPage.pane.wanted && !pennPage.pane.busy && pennPage.view.predicted")
    tap("source-template", "pennPage.pane.source === 'template'")
