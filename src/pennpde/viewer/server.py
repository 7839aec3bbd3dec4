"""The page of `penn view` and its server: trame keeps the state of the controls, HTTP carries pictures and files."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import ipaddress
import itertools
import json
import logging
import math
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from trame.app import get_server
from trame.ui.html import DivLayout
from trame_vuetify.module import v3 as vuetify

from pennpde import __version__
from pennpde.datasets.flow.cases import CELLS_PER_LENGTH
from pennpde.datasets.flow.ducts import case_name, duct
from pennpde.viewer import wording
from pennpde.viewer.boundary import ROLES, Role
from pennpde.viewer.reading import SUFFIXES, Reader
from pennpde.viewer.records import WEB, write_page
from pennpde.viewer.workbench import (
    TEMPLATES,
    VISCOSITY,
    DatasetRequest,
    MeshRequest,
    Request,
    TemplateRequest,
    View,
    Workbench,
)

MOST_BYTES = 50 * 2**20
"""Of an uploaded file."""
_PAUSE = 0.03
"""Seconds a slider may go on moving before its place counts."""
_COLOURS = {
    "light": {"background": "#f4f6f9", "surface": "#ffffff", "primary": "#2a6fdb", "success": "#1f9d6b"},
    "dark": {"background": "#12161d", "surface": "#1b212b", "primary": "#6ea4ff", "success": "#4cc38a"},
}
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -6 40 40">'
    '<path d="M2 8H14L18 25H38V3H2Z" fill="#2a6fdb"/></svg>'
)
_numbers = itertools.count(1)
_logger = logging.getLogger(__name__)


class Page:
    """One page over one workbench. All browsers that look at it see the same state, as of one desk.

    Args:
        workbench: What is shown.
        reader: What reads uploaded files.
        most_bytes: Of an uploaded file.
    """

    def __init__(self, workbench: Workbench, reader: Reader, most_bytes: int = MOST_BYTES):
        self.workbench, self.reader, self.most_bytes = workbench, reader, most_bytes
        # trame hands out the same server for the same name.
        self.server: Any = get_server(f"penn view {next(_numbers)}", client_type="vue3")
        self.state = self.server.state
        self._wanted: Request | None = None
        self._predicted: MeshRequest | None = None
        self._worker: asyncio.Task | None = None
        self._loopback = True
        self._warm = False
        self._set_up()

    async def run(self, host: str, port: int, on_ready: Callable[[str], None]) -> None:
        """Serve until cancelled. `on_ready` gets the address of the page."""
        self._loopback = _is_loopback(host)
        # trame would take the command line of the program for its own.
        os.environ["TRAME_ARGS"] = ""
        self.server.controller.on_server_bind.add(self._bind)
        name = f"[{host}]" if ":" in host else host
        self.server.controller.on_server_ready.add(lambda **_: on_ready(f"http://{name}:{self.server.port}/"))
        await self.server.start(
            host=host,
            port=port,
            thread=True,  # leaves signals to asyncio
            timeout=0,  # an open page need not keep it alive
            open_browser=False,
            show_connection_info=False,
            exec_mode="coroutine",
        )

    # The page

    def _set_up(self) -> None:
        folder = f"__penn_{__version__}"
        self.server.enable_module(vuetify)
        self.server.enable_module(
            {
                "serve": {folder: str(WEB)},
                "scripts": [f"{folder}/field_view.js", f"{folder}/component.js"],
                "styles": [f"{folder}/style.css"],
                "vue_use": ["penn"],
            }
        )
        state = self.state
        state.trame__title = "PENN flow prediction"
        state.trame__favicon = f"data:image/svg+xml;base64,{base64.b64encode(_ICON.encode()).decode()}"
        state.trame__vuetify3_config = {
            "theme": {"themes": {name: {"colors": colours} for name, colours in _COLOURS.items()}}
        }
        state.update(self._start())
        # State of the browser only, not of the prediction.
        state.client_only("dark", "scheme", "field", "streamlines", "cells", "hold", "marked", "uploading")
        state.change(
            "source", "kind", "first", "second", "speed", "viscosity", "resolution", "dataset_case"
        )(self._follow)  # fmt: skip
        state.change("roles")(self._follow_roles)
        state.change("mesh_speed", "mesh_viscosity")(self._follow_mesh)
        self.server.trigger("predict")(self._predict_on_mesh)
        with DivLayout(self.server) as layout:
            layout.root.add_child((WEB / "view.html").read_text(encoding="utf-8"))

    def _start(self) -> dict[str, Any]:
        workbench, cases = self.workbench, self.workbench.cases()
        about = wording.about(workbench.name, workbench.config)
        trained = "" if workbench.config and (workbench.config.training or workbench.config.row) else " (untrained)"
        return {
            "network": f"{Path(workbench.name).name}{trained}",
            "about": about,
            "templates": [
                {"kind": each.kind, "title": each.title, "sliders": list(each.sliders), "outline": _outline(each.kind)}
                for each in TEMPLATES
            ],
            "source": "template",
            "kind": "a",
            "first": 0.37,
            "second": 0.37,
            "speed": 1.0,
            "viscosity": VISCOSITY,
            "resolution": CELLS_PER_LENGTH,
            "cases": cases,
            "dataset_case": cases[0]["name"] if cases else None,
            "dataset_name": str(workbench.data or ""),
            "upload": None,
            "upload_limit": self.most_bytes,
            "upload_suffixes": ", ".join(SUFFIXES),
            "uploading": False,
            "roles": [],
            "marked": -1,
            "mesh_speed": 1.0,
            "mesh_viscosity": VISCOSITY,
            "field": "|u|",
            "shown": "",
            "streamlines": True,
            "cells": False,
            "hold": False,
            "scheme": "system",
            "dark": False,
            "busy": False,
            "message": "",
            **_nothing(),
        }

    # From controls to pictures

    def _follow(self, **_: Any) -> None:
        """A control of the templates or the dataset moved, or another source was chosen."""
        state = self.state
        if state.source == "mesh":
            if state.upload:
                self._follow_roles()
            else:
                self._wanted = None
                state.update(_nothing())
            return
        if state.source == "dataset":
            if state.dataset_case:
                self._ask(DatasetRequest(str(state.dataset_case)))
            return
        with self._complaining():
            template = next(each for each in TEMPLATES if each.kind == state.kind)
            parameters = [_number(state[name], name) for name in ("first", "second")][: len(template.sliders)]
            self._ask(
                TemplateRequest(
                    template.kind,
                    # A name has two decimals, and names make meshes: the same place is the same picture.
                    tuple(round(min(1.0, max(0.0, value)), 2) for value in parameters),
                    _number(state.speed, "inlet speed"),
                    _number(state.viscosity, "viscosity"),
                    min(60.0, max(4.0, _number(state.resolution, "resolution"))),
                )
            )

    def _follow_roles(self, **_: Any) -> None:
        """The prediction of the mesh, if it is one of these roles; else only the mesh."""
        if self.state.source != "mesh" or not self.state.upload:
            return
        number, last = self.state.upload["number"], self._predicted
        is_current = last is not None and (last.upload, last.roles) == (number, tuple(self.state.roles))
        self._ask(last if last is not None and is_current else MeshRequest(number))

    def _follow_mesh(self, **_: Any) -> None:
        if self.state.source == "mesh" and self.state.upload and self.state.predicted:
            self._predict_on_mesh()

    def _predict_on_mesh(self) -> None:
        state = self.state
        with self._complaining():
            if not state.upload:
                raise ValueError("There is no mesh yet.")
            roles: tuple[Role, ...] = tuple(role if role in ROLES else "wall" for role in state.roles)
            speed, viscosity = _number(state.mesh_speed, "inlet speed"), _number(state.mesh_viscosity, "viscosity")
            self._predicted = MeshRequest(state.upload["number"], roles, speed, viscosity)
            self._ask(self._predicted)

    @contextlib.contextmanager
    def _complaining(self):
        try:
            yield
        except Exception as error:
            self.state.message = _words(error)

    def _ask(self, request: Request) -> None:
        """Only the latest request counts; one is computed at a time, and the others that came meanwhile are not."""
        self._wanted = request
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        if not self._warm:
            self._warm = True
            with self.state as state:
                state.busy = True
            with contextlib.suppress(Exception):  # what is wrong will show in the first request
                await asyncio.to_thread(self.workbench.warm_up)
        while self._wanted is not None:
            await asyncio.sleep(_PAUSE)
            request, self._wanted = self._wanted, None
            if request is None:
                break
            with self.state as state:
                state.busy = True
            try:
                view = await asyncio.to_thread(self.workbench.view, request)
            except Exception as error:
                _logger.debug("a request failed", exc_info=True)
                if self._wanted is None:
                    with self.state as state:
                        state.update({"message": _words(error), "busy": False})
            else:
                with self.state as state:
                    state.update(_shown(view, request) | {"busy": self._wanted is not None, "message": ""})
        with self.state as state:
            state.busy = False

    # Over HTTP

    def _bind(self, web_server: Any) -> None:
        web_server.app.middlewares.append(self._guard)
        web_server.app.add_routes(
            [
                web.get("/", self._index),
                web.get(r"/record/{number:\d+}", self._record),
                web.get(r"/download/{number:\d+}/{name}", self._download),
                web.post("/upload", self._upload),
            ]
        )

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Other sites, open in the same browser, may not talk to this server, nor this page to other sites."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="Another site may not use this server.")
        if self._loopback and not _is_loopback(urlsplit(f"//{request.host}").hostname or ""):
            raise web.HTTPForbidden(text="This server answers only to the name of this machine; see --host.")
        response = await handler(request)
        if not response.prepared:
            response.headers.setdefault(
                "Content-Security-Policy",
                # Vue compiles the page's template in the browser, which counts as eval.
                "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
                "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
                f"connect-src 'self' ws://{request.host} wss://{request.host}; object-src 'none'; base-uri 'self'",
            )
        return response

    async def _index(self, _: web.Request) -> web.Response:
        raise web.HTTPFound("index.html?reconnect=auto")

    def _find(self, request: web.Request) -> View:
        view = self.workbench.find(int(request.match_info["number"]))
        if view is None:
            raise web.HTTPNotFound(text="This picture is no longer available.")
        return view

    async def _record(self, request: web.Request) -> web.Response:
        headers = {"Content-Encoding": "gzip", "Cache-Control": "no-store"}
        return web.Response(body=self._find(request).record, content_type="application/json", headers=headers)

    async def _download(self, request: web.Request) -> web.Response:
        view, name = self._find(request), request.match_info["name"]
        write = {".vtu": _write_fields, ".html": _write_page}.get(Path(name).suffix)
        if write is None or view.outcome is None:
            raise web.HTTPNotFound(text=f"There is no {name}.")
        body = await asyncio.to_thread(_written, write, view, Path(name).suffix)
        headers = {"Content-Disposition": f'attachment; filename="{_file_name(Path(name).stem)}{Path(name).suffix}"'}
        return web.Response(body=body, content_type="application/octet-stream", headers=headers)

    async def _upload(self, request: web.Request) -> web.Response:
        name = Path(request.query.get("name", "")).name or "mesh"
        allowed = f"the page takes up to {self.most_bytes / 2**20:.0f} MB. Use `penn predict` for larger meshes."
        if (request.content_length or 0) > self.most_bytes:
            raise web.HTTPRequestEntityTooLarge(
                self.most_bytes, request.content_length or 0, text=f"{name} is too large: {allowed}"
            )
        with tempfile.TemporaryDirectory(prefix="penn-view-") as folder:
            # The reader's messages name the file, so it keeps its name, as far as file systems allow.
            path = Path(folder) / f"{_file_name(Path(name).stem)}{Path(name).suffix.lower()}"
            received = 0
            with path.open("wb") as stream:
                async for part in request.content.iter_chunked(2**18):
                    received += len(part)
                    if received > self.most_bytes:
                        raise web.HTTPRequestEntityTooLarge(
                            self.most_bytes, received, text=f"{name} is too large: {allowed}"
                        )
                    stream.write(part)
            try:
                mesh = await asyncio.to_thread(self.reader.read, path)
                upload = await asyncio.to_thread(self.workbench.add, name, mesh)
            except Exception as error:
                _logger.debug("an upload failed", exc_info=True)
                raise web.HTTPUnprocessableEntity(text=_words(error)) from None
        with self.state as state:
            state.update(
                {
                    "upload": {
                        "number": upload.number,
                        "name": name,
                        "segments": [
                            {"place": each.place, "length": f"{each.length:.4g}", "patch": each.patch}
                            for each in upload.pieces
                        ],
                    },
                    "roles": [each.role for each in upload.pieces],
                    "source": "mesh",
                    "message": "",
                }
            )
        self._ask(MeshRequest(upload.number))
        return web.json_response({"points": mesh.number_of_points, "segments": len(upload.pieces)})


def _nothing() -> dict[str, Any]:
    """The state without a picture."""
    return {
        "view": 0,
        "scope": "",
        "title": "",
        "file": "penn",
        "facts": [],
        "certificate": [],
        "warnings": [],
        "errors": [],
        "seconds": [],
        "predicted": False,
        "has_truth": False,
        "shown": "",
    }


def _shown(view: View, request: Request) -> dict[str, Any]:
    if isinstance(request, MeshRequest):
        scope = f"upload {request.upload}"
    else:
        scope = request.name if isinstance(request, DatasetRequest) else request.kind
    state = _nothing() | {
        "view": view.number,
        "scope": scope,
        "title": view.title,
        "file": _file_name(view.title),
        "facts": view.facts,
        "certificate": view.certificate or [],
        "warnings": view.warnings,
        "errors": view.errors,
        "seconds": wording.durations(view.seconds),
        "predicted": view.outcome is not None,
        "has_truth": bool(view.errors),
    }
    if view.errors:
        del state["shown"]  # going through cases, one keeps looking at their errors
    return state


def _number(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"The {name} is {value!r}; it must be a number.") from None
    if not math.isfinite(number):
        raise ValueError(f"The {name} is {number}; it must be a finite number.")
    return number


def _words(error: Exception) -> str:
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    # What libraries and we raise for wrong input explains itself; anything else needs its name.
    named = message and isinstance(error, ValueError | KeyError | OSError)
    return message if named else f"{type(error).__name__}: {message}"


def _outline(kind: str) -> str:
    """The duct of a template as the points of an SVG polygon."""
    number = len(next(each for each in TEMPLATES if each.kind == kind).sliders)
    sides = [side for sides in duct(case_name(kind, (0.4,) * number)).patches.values() for side in sides]
    following = dict(sides)
    place, points = sides[0][0], []
    for _ in sides:
        points.append(f"{place[0]:.2f},{place[1]:.2f}")
        place = following[place]
    return " ".join(points)


def _file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "_", title, flags=re.ASCII).strip("._")[:80] or "penn"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _written(write: Callable[[Path, View], None], view: View, suffix: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="penn-view-") as folder:
        path = Path(folder) / f"flow{suffix}"
        write(path, view)
        return path.read_bytes()


def _write_fields(path: Path, view: View) -> None:
    assert view.outcome is not None
    mesh = view.outcome.mesh()
    truth = {f"{name}_truth": values for name, values in view.outcome.case.targets.items()}
    mesh.with_fields(truth).save(path)


def _write_page(path: Path, view: View) -> None:
    assert view.outcome is not None
    record = json.loads(gzip.decompress(view.record))
    record.pop("segments", None)
    write_page(path, record, view.title, ", ".join(view.facts), view.outcome.certificate.lines())
