"""Content of the page, without the page itself: a request goes in, fields and accompanying texts come out."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennpde.case import Case
from pennpde.checkpoints import Config, config_of, load_pretrained
from pennpde.datasets import storage
from pennpde.datasets.flow.cases import CELLS_PER_LENGTH, case_name, coarse_mesh, flow_through
from pennpde.mesh import Mesh
from pennpde.mesh.outline import edges_of
from pennpde.network import Predictor
from pennpde.prediction import Outcome, predict
from pennpde.viewer import wording
from pennpde.viewer.boundary import Role, Segment, segments, with_roles
from pennpde.viewer.records import record_of, with_comparison, with_segments

VISCOSITY = 1e-3
_MOST_REMEMBERED = 64 * 2**20
"""Bytes of records that are kept, compressed."""


@dataclass(frozen=True)
class Template:
    """A duct with design parameters from 0 to 1."""

    kind: str
    title: str
    sliders: tuple[str, ...]


TEMPLATES = (
    Template("a", "Step", ("Ramp",)),
    Template("b", "Offset duct", ("Lower ramp", "Upper ramp")),
    Template("c", "Expansion", ("Lower ramp", "Upper ramp")),
)


@dataclass(frozen=True)
class TemplateRequest:
    """The flow through a template's duct."""

    kind: str
    parameters: tuple[float, ...]
    speed: float = 1.0
    viscosity: float = VISCOSITY
    cells_per_length: float = CELLS_PER_LENGTH


@dataclass(frozen=True)
class DatasetRequest:
    """A case of the dataset, with the reference solution next to the prediction."""

    name: str


@dataclass(frozen=True)
class MeshRequest:
    """A mesh that was uploaded; without roles, only the mesh."""

    upload: int
    roles: tuple[Role, ...] | None = None
    speed: float = 1.0
    viscosity: float = VISCOSITY


Request = TemplateRequest | DatasetRequest | MeshRequest


@dataclass(frozen=True, eq=False)
class View:
    """One picture and the texts next to it.

    Attributes:
        number: Tells it from all others.
        title: What it shows.
        record: What `field_view.js` draws, as compressed JSON.
        facts: Short words: numbers of points and cells, Reynolds number, time.
        certificate: Rows for the page; None without a prediction.
        warnings: Of the certificate.
        errors: Rows of errors against the truth, where there is one.
        seconds: What took how long.
        outcome: The prediction, for files; None if there is none.
    """

    number: int
    title: str
    record: bytes
    facts: list[str]
    certificate: list[dict[str, Any]] | None
    warnings: list[str]
    errors: list[dict[str, Any]]
    seconds: dict[str, float]
    outcome: Outcome | None


@dataclass(frozen=True, eq=False)
class Upload:
    """A mesh from a file with the pieces of its boundary."""

    number: int
    name: str
    mesh: Mesh
    pieces: list[Segment]


class Workbench:
    """A network and what it can be asked for. Its methods may be called from any thread.

    Args:
        model: A flow network.
        name: What the user calls it.
        data: The folder of a flow dataset with truth.
    """

    def __init__(self, model: Predictor, name: str, data: Path | None = None):
        shown = flow_through(coarse_mesh("a_0.00", cells_per_length=4), 1.0, VISCOSITY).initial.keys()
        if model.equation.unknowns.keys() != shown:
            raise ValueError(
                f"The page shows flows, which have the unknowns {' and '.join(shown)}; {name} solves for "
                f"{', '.join(sorted(model.equation.unknowns))}."
            )
        self.model, self.name, self.data = model, name, data
        self.config: Config | None = config_of(model)
        self.manifest = None if data is None else _flow_manifest(data)
        self.uploads: dict[int, Upload] = {}
        self._views: OrderedDict[Request, View] = OrderedDict()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, name: str, data: Path | None = None) -> Workbench:
        """With a network that comes with the package, or that of a folder."""
        model = load_pretrained(name)
        if not isinstance(model, Predictor):
            raise ValueError(f"{name} is a {type(model).__name__}, no Predictor: it solves no boundary value problem.")
        return cls(model, name, data)

    def warm_up(self) -> None:
        """Predict something small: the first prediction also loads libraries, which is none of its time."""
        outcome = predict(self.model, flow_through(coarse_mesh("a_0.00", cells_per_length=4), 1.0, VISCOSITY))
        record_of(outcome.case.mesh, outcome.fields)

    def cases(self) -> list[dict[str, str]]:
        """The cases of the dataset: those of the test set first, which no network was trained on."""
        if self.manifest is None:
            return []
        splits = sorted(
            self.manifest.splits,
            key=lambda split: (
                ("test", "validation", "train").index(split) if split in ("test", "validation", "train") else 3
            ),
        )
        listed = [{"name": name, "split": split} for split in splits for name in self.manifest.names(split)]
        return listed or [{"name": name, "split": ""} for name in self.manifest.names()]

    def add(self, name: str, mesh: Mesh) -> Upload:
        """Take a mesh in; it replaces the one before."""
        upload = Upload(next(self._numbers), name, mesh, segments(mesh))
        with self._lock:
            self.uploads = {upload.number: upload}
        return upload

    def view(self, request: Request) -> View:
        """What the request shows; a ValueError or another exception with words for the user says why it cannot."""
        with self._lock:
            if request in self._views:
                self._views.move_to_end(request)
                return self._views[request]
        view = self._new_view(request)
        with self._lock:
            self._views[request] = view
            while len(self._views) > 1 and sum(len(each.record) for each in self._views.values()) > _MOST_REMEMBERED:
                self._views.popitem(last=False)
        return view

    def find(self, number: int) -> View | None:
        """A view that is still remembered, by its number."""
        with self._lock:
            return next((view for view in self._views.values() if view.number == number), None)

    def _new_view(self, request: Request) -> View:
        begin = time.perf_counter()
        if isinstance(request, MeshRequest):
            upload = self.uploads.get(request.upload)
            if upload is None:
                raise ValueError("This mesh was replaced by another one.")
            if request.roles is None:
                return self._mesh_view(upload)
            title, case = upload.name, _case_of_upload(upload, request.roles, request.speed, request.viscosity)
        elif isinstance(request, DatasetRequest):
            title, case = request.name, self._case_of_dataset(request.name)
        else:
            template = next(each for each in TEMPLATES if each.kind == request.kind)
            title = f"{template.title} {', '.join(f'{value:.2f}' for value in request.parameters)}"
            mesh = coarse_mesh(case_name(request.kind, request.parameters), cells_per_length=request.cells_per_length)
            case = flow_through(mesh, request.speed, request.viscosity)
        outcome = predict(self.model, case, self.config.training_range if self.config else None)
        record = record_of(case.mesh, outcome.fields)
        if case.targets:
            record = with_comparison(record, outcome.fields, case.targets)
        if isinstance(request, MeshRequest):
            record = _with_pieces(record, self.uploads[request.upload])
        return View(
            number=next(self._numbers),
            title=title,
            record=_compressed(record),
            facts=wording.facts(outcome, self.model.equation.headline),
            certificate=wording.measures(outcome.certificate),
            warnings=list(outcome.certificate.warnings),
            errors=wording.errors(outcome),
            seconds={**outcome.seconds, "altogether": time.perf_counter() - begin},
            outcome=outcome,
        )

    def _mesh_view(self, upload: Upload) -> View:
        mesh = upload.mesh
        return View(
            number=next(self._numbers),
            title=upload.name,
            record=_compressed(_with_pieces(record_of(mesh, {}), upload)),
            facts=[f"{mesh.number_of_points:,} points", f"{mesh.number_of_cells:,} cells"],
            certificate=None,
            warnings=[],
            errors=[],
            seconds={},
            outcome=None,
        )

    def _case_of_dataset(self, name: str) -> Case:
        if self.manifest is None or self.data is None or name not in self.manifest.cases:
            raise ValueError(f"The dataset has no case {name!r}.")
        return storage.read_file(self.data, name, self.manifest).case


def _flow_manifest(folder: Path) -> storage.Manifest:
    manifest = storage.read_manifest(folder)
    if manifest.dataset != "flow":
        raise ValueError(f"{folder} is a dataset of {manifest.dataset!r}; the page compares with one of 'flow'.")
    return manifest


def _case_of_upload(upload: Upload, roles: Sequence[Role], speed: float, viscosity: float) -> Case:
    for role in ("inlet", "outlet", "wall"):
        if role not in roles:
            raise ValueError(f"The mesh has no {role}: choose a segment of its boundary.")
    return flow_through(with_roles(upload.mesh, upload.pieces, roles), speed, viscosity)


def _with_pieces(record: dict[str, Any], upload: Upload) -> dict[str, Any]:
    edges = edges_of(upload.mesh)
    return with_segments(record, [edges[piece.facets] for piece in upload.pieces])


def _compressed(record: Mapping[str, Any]) -> bytes:
    # Level 1: base64 of floats gains little from more.
    return gzip.compress(json.dumps(record, allow_nan=False).encode(), 1)
