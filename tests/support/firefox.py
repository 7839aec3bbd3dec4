"""Firefox, driven by WebDriver BiDi: no driver program, and a virtual screen, because WebGL needs one."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

SIZE = {"width": 1280, "height": 850}
PREFERENCES = {"webgl.force-enabled": True, "ui.prefersReducedMotion": 1, "browser.shell.checkDefaultBrowser": False}


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
        await self._ask("browsingContext.setViewport", context=self._context, viewport=SIZE)
        await self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    async def value(self, expression: str) -> Any:
        """Of JavaScript; numbers, texts and booleans."""
        found = await self._ask(
            "script.evaluate", expression=expression, target={"context": self._context}, awaitPromise=True
        )
        if found["type"] == "exception":
            raise RuntimeError(found["exceptionDetails"]["text"])
        return found["result"].get("value")

    async def wait(self, condition: str, patience: float = 120.0) -> None:
        """Until it holds."""
        test = f"({condition}) || Date.now() > start + {1000 * patience}"
        loop = f"const look = () => {{ if ({test}) done(!!({condition})); else setTimeout(look, 100); }}; look();"
        assert await self.value(f"new Promise((done) => {{ const start = Date.now(); {loop} }})"), condition

    async def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """With the left button, between two places of the window."""
        (x, y), (to_x, to_y) = ([round(each) for each in place] for place in (start, end))
        moves = [
            {"type": "pointerMove", "x": x, "y": y},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "x": (x + to_x) // 2, "y": (y + to_y) // 2, "duration": 50},
            {"type": "pointerMove", "x": to_x, "y": to_y, "duration": 50},
            {"type": "pointerUp", "button": 0},
        ]
        pointer = {"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": moves}
        await self._ask("input.performActions", context=self._context, actions=[pointer])

    async def picture(self) -> bytes:
        found = await self._ask("browsingContext.captureScreenshot", context=self._context)
        return base64.b64decode(found["data"])

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
