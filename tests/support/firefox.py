"""Firefox, driven by WebDriver BiDi: no driver program, and a virtual screen, because WebGL needs one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import aiohttp

PREFERENCES = {
    "webgl.force-enabled": True,
    "ui.prefersReducedMotion": 1,
    "browser.shell.checkDefaultBrowser": False,
    "focusmanager.testmode": True,  # without a window manager no window has the focus
}
_KEYS = {"Escape": "\ue00c", "Enter": "\ue006", "Home": "\ue011", "ArrowLeft": "\ue012", "ArrowRight": "\ue014"}


class FirefoxWindow:
    """One page, for whoever does not wait: its loop runs in a thread of its own, as Playwright keeps one in ours."""

    def __init__(self, address: str, folder: Path):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._open = contextlib.AsyncExitStack()
        self._page: Firefox = self._done(self._open.enter_async_context(firefox(address, folder)))
        self.problems = self._page.problems

    def value(self, expression: str) -> Any:
        return self._done(self._page.value(expression))

    def wait(self, condition: str, patience: float = 120.0) -> None:
        end, holds = time.monotonic() + patience, False
        while not holds:
            assert time.monotonic() < end, condition
            with contextlib.suppress(RuntimeError):  # between two pages
                holds = self.value(f"!!({condition})")
            time.sleep(0.1)

    def tap(self, x: float, y: float) -> None:
        self._done(self._page.tap(x, y))

    def press(self, key: str) -> None:
        self._done(self._page.press(key))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self._done(self._page.drag(start, end))

    def resize(self, width: int, height: int) -> None:
        self._done(self._page.resize(width, height))

    def close(self) -> None:
        self._done(self._open.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _done(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(300)


class Firefox:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self._socket, self._number, self._context = socket, 0, ""
        self.problems: list[str] = []
        """What the page said to its console as an error."""

    async def open(self, address: str) -> None:
        await self._ask("session.new", capabilities={})
        await self._ask("session.subscribe", events=["log.entryAdded"])
        self._context = (await self._ask("browsingContext.getTree"))["contexts"][0]["context"]
        await self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    async def value(self, expression: str) -> Any:
        """Of JavaScript; numbers, texts and booleans."""
        found = await self._ask(
            "script.evaluate", expression=expression, target={"context": self._context}, awaitPromise=True
        )
        if found["type"] == "exception":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    async def tap(self, x: float, y: float) -> None:
        place = {"type": "pointerMove", "x": round(x), "y": round(y)}
        await self._pointer([place, {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}])

    async def press(self, key: str) -> None:
        """By its name in JavaScript, or a letter."""
        value = _KEYS.get(key, key)
        actions = [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        keys = {"type": "key", "id": "keys", "actions": actions}
        await self._ask("input.performActions", context=self._context, actions=[keys])

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """With the left button, between two places of the window."""
        (x, y), (to_x, to_y) = ([round(each) for each in place] for place in (start, end))
        await self._pointer(
            [
                {"type": "pointerMove", "x": x, "y": y},
                {"type": "pointerDown", "button": 0},
                {"type": "pointerMove", "x": (x + to_x) // 2, "y": (y + to_y) // 2, "duration": 50},
                {"type": "pointerMove", "x": to_x, "y": to_y, "duration": 50},
                {"type": "pointerUp", "button": 0},
            ]
        )

    async def resize(self, width: int, height: int) -> None:
        await self._ask(
            "browsingContext.setViewport", context=self._context, viewport={"width": width, "height": height}
        )

    async def _pointer(self, actions: list[dict[str, Any]]) -> None:
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions}
        await self._ask("input.performActions", context=self._context, actions=[pointer])

    async def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=180)
            if answer.get("method") == "log.entryAdded" and answer["params"]["level"] == "error":
                self.problems.append(str(answer["params"]["text"]))
            if answer.get("id") == self._number:
                if answer["type"] == "error":
                    raise RuntimeError(f"{method}: {answer['message']}")
                return answer["result"]


@contextlib.asynccontextmanager
async def firefox(address: str, folder: Path) -> AsyncIterator[Firefox]:
    """A page in a new Firefox, whose profile lies in a folder."""
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
    (folder / "user.js").write_text("\n".join(lines))
    reading, writing = os.pipe()
    screen = ["Xvfb", "-displayfd", str(writing), "-screen", "0", "1400x1000x24"]
    with subprocess.Popen(screen, pass_fds=[writing], stderr=subprocess.DEVNULL) as display:
        os.close(writing)
        with os.fdopen(reading) as told:
            number = told.readline().strip()
        command = ["firefox-esr", "--no-remote", "--profile", str(folder), "--remote-debugging-port", "0"]
        environment = os.environ | {"DISPLAY": f":{number}", "HOME": str(folder)}
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment) as browser:
            try:
                assert browser.stderr is not None
                heard = (re.search(rb"BiDi listening on (ws://\S+)", line) for line in browser.stderr)
                found = next(filter(None, heard))[1].decode()
                async with (
                    aiohttp.ClientSession() as client,
                    client.ws_connect(f"{found}/session", max_msg_size=0) as ws,
                ):
                    page = Firefox(ws)
                    await page.open(address)
                    yield page
            finally:
                browser.terminate()
                display.terminate()
