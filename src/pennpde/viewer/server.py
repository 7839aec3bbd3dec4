"""The page of `penn view` and its server.

The server remembers nothing about browsers: what a page shows is kept in the browser and in its address. A browser
sends a request as JSON, gets words, and fetches the picture behind them. While a view is computed, it gets a draft and
hears of the progress, as lines of JSON on the same connection. Other processes do the work (`pool`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import html
import ipaddress
import json
import re
import secrets
import shutil
import signal
import tempfile
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote, urlsplit

import trame_client
import trame_vuetify
from aiohttp import web

from pennpde import __version__
from pennpde.viewer.shapes import outline_of
from pennpde.viewer.views import Computation, Request, Shown, Views, is_large
from pennpde.viewer.workers import BusyError, Pool

MOST_BYTES = 50 * 2**20
"""Of an uploaded file."""
MOST_UPLOADS = 100
MOST_STORED = 2 * 2**30
"""Bytes of all uploads on the disk, unpacked; beyond it the oldest is removed."""
_MOST_OF_A_REQUEST = 64 * 2**10
MOST_LINKS, _LONGEST_LINK = 10_000, 32 * 2**10
"""Short links that are remembered, and letters of what one stands for."""
_FILES = (".vtu", ".vtkhdf", ".html", ".pdf", ".mp4", ".webm", ".gif")
"""That a prediction can be written as."""
_GRACE = 0.2
"""Seconds in which a prediction may come without a draft before it: two pictures in a row would only flicker."""
_PULSE = 0.5
"""Seconds between two words about the progress."""
_WEB = Path(__file__).parent / "web"
_LIBRARIES = {
    "vue": Path(trame_client.__file__).parent / "module" / "vue3-www",
    "vuetify": Path(trame_vuetify.__file__).parent / "module" / "v3-serve",
}
_ICON = "data:image/svg+xml," + quote(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -6 40 40">'
    '<path d="M2 8H14L18 25H38V3H2Z" fill="#2a6fdb"/></svg>'
)
_LINES = {"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"}


class Page:
    """One page for any number of browsers.

    Args:
        model: Name of a network that comes with the package, or its folder.
        data: The folder of a dataset with truth.
        plugin: A file or module that registers networks.
        workers: Processes for small predictions; by default as many as there are cores, up to four.
    """

    def __init__(self, model: str, data: Path | None = None, *, plugin: str | None = None, workers: int | None = None):
        self._folder = tempfile.TemporaryDirectory(prefix="penn-view-")
        self._uploads: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._links: OrderedDict[str, str] = OrderedDict()
        self._bytes: dict[str, int] = {}
        """On the disk, by upload."""
        arguments = ["--model", model, "--uploads", self._folder.name]
        arguments += ["--data", str(data)] if data is not None else []
        arguments += ["--plugin", plugin] if plugin is not None else []
        self._pool = Pool(arguments, workers)
        self._views = Views(self._computed)
        self._start: dict[str, Any] = {}
        self._loopback = True

    async def run(self, host: str, port: int, on_ready: Callable[[str], None]) -> None:
        """Serve until cancelled or terminated. `on_ready` gets the address of the page."""
        self._loopback = _is_loopback(host)
        terminated = asyncio.Event()
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # Windows, or not the main thread
            # By default the process would end at once, and leave behind what was uploaded.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
        runner = web.AppRunner(self._application(), access_log=None)
        examples: asyncio.Task[None] | None = None
        try:
            self._start = await self._pool.start()
            self._views.spans = {
                slider["name"]: slider["high"] - slider["low"]
                for template in self._start["templates"]
                for slider in template["sliders"]
                if not slider["typed"]
            }
            self._views.shapes = frozenset(
                slider["name"]
                for template in self._start["templates"]
                for slider in template["sliders"]
                if slider["shape"]
            )
            await runner.setup()
            await web.TCPSite(runner, host, port).start()
            name = f"[{host}]" if ":" in host else host
            on_ready(f"http://{name}:{runner.addresses[0][1]}/")
            examples = asyncio.create_task(self._prepare_examples())
            await terminated.wait()
        finally:
            if examples is not None:
                examples.cancel()
                await asyncio.gather(examples, return_exceptions=True)
            await self._views.close()
            await runner.cleanup()
            await self._pool.close()
            self._folder.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard], client_max_size=_MOST_OF_A_REQUEST)
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/index.html", self._index),
                web.get("/start", self._started),
                web.post("/view", self._view),
                web.post("/outline", self._outline),
                web.get(r"/record/{number:[0-9a-f]+}", self._record),
                web.get(r"/download/{number:[0-9a-f]+}/{name}", self._download),
                web.post("/share", self._share),
                web.get(r"/s/{key:[0-9a-f]{10}}", self._shared),
                web.post("/upload", self._upload),
                web.get(r"/upload/{key:[0-9a-f]+}", self._uploaded),
                web.static("/web", _WEB),
                *(web.static(f"/{name}", folder) for name, folder in _LIBRARIES.items()),
            ]
        )
        return application

    # The page itself

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Other sites, open in the same browser, may not talk to this server, nor this page to other sites.

        Errors of handlers have words for the user.
        """
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="Another site may not use this server.")
        if self._loopback and not _is_loopback(urlsplit(f"//{request.host}").hostname or ""):
            raise web.HTTPForbidden(text="This server answers only to the name of this machine; see --host.")
        try:
            response = await handler(request)
        except BusyError as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from None
        except ValueError as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from None
        if not response.prepared:
            response.headers.setdefault(
                "Content-Security-Policy",
                # Vue compiles the page's template in the browser, which counts as eval.
                "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
                "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; "
                "frame-ancestors 'self'",
            )
            response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    async def _index(self, _: web.Request) -> web.Response:
        shell = Template((_WEB / "index.html").read_text(encoding="utf-8"))
        page = (_WEB / "view.html").read_text(encoding="utf-8")
        body = shell.substitute(version=html.escape(__version__), icon=_ICON, page=page)
        return web.Response(text=body, content_type="text/html", headers={"Cache-Control": "no-cache"})

    async def _started(self, _: web.Request) -> web.Response:
        return web.json_response({**self._start, "upload_limit": MOST_BYTES}, headers={"Cache-Control": "no-store"})

    async def _outline(self, http: web.Request) -> web.Response:
        """The shape of a design, at once: this process makes it itself."""
        request = Request.of(await http.json())
        return web.json_response(outline_of(request.name, dict(request.values)))

    # Views

    async def _prepare_examples(self) -> None:
        """What the designs show first, one after the other: whoever comes meanwhile waits for one at most."""
        for example in self._start["examples"]:
            with contextlib.suppress(ValueError, BusyError):  # who asks for it will hear why
                await self._views.prepare(Request.of(example))

    async def _view(self, http: web.Request) -> web.StreamResponse:
        request = Request.of(await http.json())
        points = self._found(request.name).get("points", 0) if request.source == "upload" else 0
        shown = self._views.find(request.number)
        if shown is not None:
            return _line(shown.words)
        with self._views.wanted(request, is_large(request, points)) as computation:
            await asyncio.wait([computation.task], timeout=_GRACE)
            if not computation.task.done():
                return await self._stream(http, computation)
            return _line(computation.task.result().words)

    async def _stream(self, http: web.Request, computation: Computation) -> web.StreamResponse:
        """A draft, if there is one, then the progress, then the view or an error: a line each."""
        response = web.StreamResponse(headers=_LINES)
        draft = self._views.nearest(computation.request)
        content: dict[str, Any] = {} if draft is None else {"draft": draft.words}
        with contextlib.suppress(ConnectionError):  # a browser that moves on closes the connection
            await response.prepare(http)
            while http.transport is not None and not computation.task.done():
                content["progress"] = self._views.progress(computation)
                await response.write(json.dumps(content).encode() + b"\n")
                await asyncio.wait([computation.task], timeout=_PULSE)
                content = {}
            if computation.task.done() and not computation.task.cancelled():
                error = computation.task.exception()
                content = {"error": str(error)} if error is not None else computation.task.result().words
                await response.write(json.dumps(content).encode() + b"\n")
        return response

    async def _computed(self, computation: Computation) -> Shown:
        request = computation.request
        words, record = await self._pool.view(
            request.content, computation.large, computation.begin, computation.hear, urgent=request.follows
        )
        title = Path(words["title"]).stem if request.source == "upload" else words["title"]
        asked = {name: request.content[name] for name in ("values", "moments", "level")}
        return Shown(request, words | {"file": _file_name(title), "asked": asked}, record)

    def _find(self, http: web.Request) -> Shown:
        shown = self._views.find(http.match_info["number"])
        if shown is None:
            raise web.HTTPNotFound(text="This picture is no longer available.")
        return shown

    async def _record(self, http: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return web.Response(body=self._find(http).record, content_type="application/json", headers=headers)

    async def _download(self, http: web.Request) -> web.Response:
        shown, name = self._find(http), Path(http.match_info["name"])
        if name.suffix not in _FILES or not shown.words["predicted"]:
            raise web.HTTPNotFound(text=f"There is no {name}.")
        query = http.query
        field, frame = query.get("field", "")[:40], int(query["frame"]) if query.get("frame", "").isdigit() else -1
        body = await self._pool.file(shown.request.content, name.suffix, field, frame)
        headers = {"Content-Disposition": f'attachment; filename="{_file_name(name.stem)}{name.suffix}"'}
        return web.Response(body=body, content_type="application/octet-stream", headers=headers)

    # Links

    async def _share(self, http: web.Request) -> web.Response:
        """A short address for what stands after the # in that of the page."""
        state = await http.text()
        if not 0 < len(state) <= _LONGEST_LINK:
            raise ValueError("This view is too large for a short link.")
        key = hashlib.sha256(state.encode()).hexdigest()[:10]
        self._links[key] = state
        if len(self._links) > MOST_LINKS:
            self._links.popitem(last=False)
        return web.json_response({"path": f"s/{key}"})

    async def _shared(self, http: web.Request) -> web.Response:
        state = self._links.get(http.match_info["key"])
        if state is None:
            raise web.HTTPNotFound(text="This link is no longer known: short links last as long as the server runs.")
        raise web.HTTPFound(f"/#{quote(state, safe='%')}")

    # Uploads

    async def _upload(self, http: web.Request) -> web.Response:
        name = Path(http.query.get("name", "")).name[:200] or "mesh"
        if (http.content_length or 0) > MOST_BYTES:
            raise _too_large(name, http.content_length or 0)
        key = secrets.token_hex(16)
        folder = Path(self._folder.name) / key
        folder.mkdir()
        try:
            # The reader's messages name the file, so it keeps its name, as far as file systems allow, and a suffix
            # that is harmless; whether it is one that can be read, the reader says.
            suffix = re.sub(r"[^a-z0-9.]", "", Path(name).suffix.lower())[:10]
            path = folder / f"{_file_name(Path(name).stem)}{suffix}"
            await _receive(http, path, name)
            content = await self._pool.read(str(path), name)
        except BaseException as error:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            if isinstance(error, ConnectionError):
                raise web.HTTPBadRequest(text=f"{name} did not arrive whole.") from None
            raise
        self._uploads[key] = content
        self._bytes[key] = await asyncio.to_thread(_size, folder)
        while len(self._uploads) > MOST_UPLOADS or (len(self._uploads) > 1 and sum(self._bytes.values()) > MOST_STORED):
            oldest, _ = self._uploads.popitem(last=False)
            del self._bytes[oldest]
            await asyncio.to_thread(shutil.rmtree, Path(self._folder.name) / oldest, ignore_errors=True)
        return web.json_response({"key": key, **content})

    async def _uploaded(self, http: web.Request) -> web.Response:
        """What an upload holds, for a link that goes back to it."""
        key = http.match_info["key"]
        return web.json_response({"key": key, **self._found(key)}, headers={"Cache-Control": "no-store"})

    def _found(self, key: str) -> dict[str, Any]:
        if key not in self._uploads:
            raise web.HTTPGone(text="This mesh is no longer on the server: upload it again.")
        self._uploads.move_to_end(key)
        return self._uploads[key]


async def _receive(http: web.Request, path: Path, name: str) -> None:
    received = 0
    with path.open("wb") as stream:
        async for part in http.content.iter_chunked(2**18):
            received += len(part)
            if received > MOST_BYTES:
                raise _too_large(name, received)
            stream.write(part)


def _too_large(name: str, size: int) -> web.HTTPRequestEntityTooLarge:
    allowed = f"the page takes up to {MOST_BYTES >> 20} MB. Use `penn predict` for larger meshes."
    return web.HTTPRequestEntityTooLarge(MOST_BYTES, size, text=f"{name} is too large: {allowed}")


def _line(content: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(content).encode() + b"\n", headers=_LINES)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "_", title, flags=re.ASCII).strip("._")[:80] or "penn"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
