"""The page of `penn view` as a user's hands and eyes have it."""

import json
from urllib.parse import quote, urlsplit

PATIENCE = 120_000
"""Milliseconds: a machine may be busy."""
START = {
    "panes": [
        {"source": "template", "kind": "a", "values": {"first": 0.37, "speed": 1, "viscosity": 0.001, "resolution": 8}}
    ],
    "active": 0,
    "compare": False,
    "field": "|u|",
    "shown": "",
    "streamlines": True,
    "cells": False,
    "range": {"mode": "robust", "low": None, "high": None},
    "tool": "",
    "line": None,
    "probes": [],
    "measured": "",
}
"""A coarse mesh takes less time."""


def link(address: str, **changes) -> str:
    return f"{address}#{quote(json.dumps(START | changes))}"


class Viewer:
    """The page as a user's hands and eyes have it."""

    def __init__(self, context, address):
        self.page = context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.address = address
        self.problems, self.hosts = [], set()
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.goto(address)
        self.page.wait_for_selector(".penn-field[data-source]", timeout=PATIENCE)

    def _hear(self, message):
        """Vue catches the page's own errors, and only says them; an answer that is an error is said as well."""
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def part(self, name):
        return self.page.locator(f'[data-test="{name}"]')

    def start_anew(self):
        self.page.unroute_all()  # a test that failed may have left one, and each test after it would wait in vain
        self.page.evaluate("location.hash = ''")
        self.page.goto(link(self.address))
        self.wait("pennPage.panes.length === 1 && pennPage.panes[0].values.a.resolution === 8")
        self.wait("document.querySelector('[data-test=status]').innerText.startsWith('Step 0.37')")
        self.settle()

    def wait(self, condition):
        self.page.wait_for_function(condition, timeout=PATIENCE)

    def settle(self):
        """Wait until nothing is being computed and the pictures are those of the latest views."""
        self.page.evaluate("new Promise((done) => setTimeout(done, 100))")
        self.wait(
            "pennPage.visible.every((index) => { const pane = pennPage.panes[index];"
            " return !pane.busy && !pennPage.isDraft(pane) && pane.drawn === 'record/' + pane.view.view; })"
        )

    def frame(self):
        """Wait until what was asked for is drawn."""
        self.page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => setTimeout(done)), 50))")

    def pixels(self, pane=0):
        """The colours of a picture, without lines and legend."""
        self.frame()
        return self.page.evaluate(
            f"document.querySelectorAll('.penn-field')[{pane}].querySelector('canvas').toDataURL()"
        )

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

    def place(self, x, y, pane=0):
        """Where a place of the mesh lies in the window."""
        box = self.page.locator(".penn-field").nth(pane).bounding_box()
        left, top = self.page.evaluate(f"pennPage.pictures[{pane}].view.toScreen({x}, {y})")
        return box["x"] + left, box["y"] + top

    def upload(self, path):
        self.part("source-mesh").click()
        self.part("file").set_input_files(path)

    def saved(self, button, tmp_path):
        with self.page.expect_download(timeout=PATIENCE) as started:
            self.part(button).click()
        path = tmp_path / started.value.suggested_filename
        started.value.save_as(path)
        return path
