"""Content of the page, without the page itself: a request goes in, fields and accompanying texts come out."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.checkpoints import Config, config_of, load_pretrained
from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import edges_of
from pennpde.penn import Predictor
from pennpde.prediction import Outcome, predict, series
from pennpde.viewer import wording
from pennpde.viewer.boundary import Segment, segments, with_roles
from pennpde.viewer.reading import arrays_of, mesh_of, open_case, read_case, read_mesh, suffixes
from pennpde.viewer.records import record_of, with_comparison, with_doubts, with_segments, write_page
from pennpde.viewer.requests import Moments, Request
from pennpde.viewer.subjects import Slider, subject_of

_MOST_REMEMBERED = 8
"""Outcomes, for files to be downloaded, and uploads."""
_MOMENTS = Moments(duration=4.0, frames=16)
"""Those that the page asks for until a user wants others."""
_VISCOSITY = "viscosity"
_REYNOLDS = "Reynolds number"


@dataclass(frozen=True, eq=False)
class View:
    """One picture and the texts next to it.

    Attributes:
        number: Tells it from all others: a hash of the request.
        title: What it shows.
        record: What `field_view.js` draws, as compressed JSON.
        words: What the page says about it.
        outcome: The prediction, for files; None if there is none.
    """

    number: str
    title: str
    record: bytes
    words: dict[str, Any]
    outcome: Outcome | None


@dataclass(frozen=True, eq=False)
class Upload:
    """A mesh from a file with the pieces of its boundary, or an OpenFOAM case."""

    name: str
    mesh: Mesh
    pieces: list[Segment]
    case: Case | None = None


class Workbench:
    """A network and what it can be asked for.

    Args:
        model: A network for flows or for a temperature.
        name: What the user calls it.
        data: The folder of a dataset with truth.
        uploads: The folder with what users uploaded, one folder each.
    """

    def __init__(self, model: Predictor, name: str, data: Path | None = None, uploads: Path | None = None):
        self.model, self.name, self.data, self.uploads = model, name, data, uploads
        self.subject = subject_of(model.equation.unknowns, name, model.takes_times)
        self.config: Config | None = config_of(model)
        self.manifest = None if data is None else self._manifest(data)
        self._outcomes: OrderedDict[Request, View] = OrderedDict()
        self._opened: OrderedDict[str, Upload] = OrderedDict()

    @classmethod
    def of(cls, name: str, data: Path | None = None, uploads: Path | None = None) -> Workbench:
        """With a network that comes with the package, or that of a folder."""
        model = load_pretrained(name)
        if not isinstance(model, Predictor):
            raise ValueError(f"{name} is a {type(model).__name__}, no Predictor: it solves no boundary value problem.")
        return cls(model, name, data, uploads)

    @property
    def takes_times(self) -> bool:
        """Whether the network can be asked for any time."""
        return self.model.takes_times

    @property
    def usual_data(self) -> Path:
        """Where a dataset lies that nobody names."""
        return Path("data") / self.subject.datasets[0].replace("-", "_")

    def start(self) -> dict[str, Any]:
        """What the page needs to know before the first request."""
        cases, config = self.cases(), self.config
        trained = "" if config and (config.training or config.row) else " (untrained)"
        return {
            "network": f"{Path(self.name).name}{trained}",
            "about": wording.about(self.name, config),
            "templates": [
                {**asdict(each), "sliders": [_shown(slider) for slider in each.sliders]}
                for each in self.subject.templates
            ],
            "numbers": [_shown(slider) for slider in self.subject.numbers],
            "needs": list(self.subject.needs),
            "hint": self.subject.hint,
            "dataset": str(self.data or ""),
            "dataset_kind": self.subject.datasets[0],
            "usual_data": str(self.usual_data),
            "cases": cases,
            "suffixes": [*suffixes(), ".zip"],
            "takes_times": self.takes_times,
            "moments": asdict(_MOMENTS) if self.takes_times else None,
            "examples": [request.content for request in self.examples()],
            "reynolds": self._reynolds_range(),
        }

    def examples(self) -> list[Request]:
        """What the page asks for before anybody moves a slider, of each design."""
        moments = _MOMENTS if self.takes_times else None
        return [
            Request("template", each.kind, tuple(sorted((s.name, s.start) for s in each.sliders)), moments=moments)
            for each in self.subject.templates
        ]

    def warm_up(self) -> None:
        """Predict something small: the first prediction also loads libraries, which is none of its time."""
        template = self.subject.templates[0]
        outcome = predict(self.model, self.subject.of_template(template, {"resolution": 4.0}))
        record_of(outcome.case.mesh, _series(outcome, outcome.fields), outcome.times)

    def cases(self) -> list[dict[str, str]]:
        """The cases of the dataset: those of the test set first, which no network was trained on."""
        if self.manifest is None:
            return []
        order = ("test", "validation", "train")
        splits = sorted(self.manifest.splits, key=lambda split: order.index(split) if split in order else len(order))
        listed = [{"name": name, "split": split} for split in splits for name in self.manifest.names(split)]
        return listed or [{"name": name, "split": ""} for name in self.manifest.names()]

    # Uploads

    def read(self, path: Path, name: str) -> dict[str, Any]:
        """Read a file in a folder of its own, where what comes of it is kept for `upload`, and say what it holds."""
        folder = path.parent
        if path.suffix.lower() == ".zip":
            case = read_case(path, folder / "case", self.model.equation)
            upload = Upload(name, case.mesh, [], case)
        else:
            mesh = read_mesh(path)
            upload = Upload(name, mesh, segments(mesh))
            np.savez(folder / "mesh.npz", **arrays_of(mesh))  # pyright: ignore[reportArgumentType]
        path.unlink()
        (folder / "name.json").write_text(json.dumps(name), encoding="utf-8")
        self._remember(self._opened, folder.name, upload)
        return {
            "name": name,
            "kind": "mesh" if upload.case is None else "case",
            "points": upload.mesh.number_of_points,
            "segments": [
                {"place": each.place, "length": f"{each.length:.4g}", "patch": each.patch} for each in upload.pieces
            ],
            "roles": [each.role for each in upload.pieces],
        }

    def upload(self, key: str) -> Upload:
        """What was uploaded, by its key."""
        if key not in self._opened:
            folder = (self.uploads or Path("/nonexistent")) / key
            if not (folder / "name.json").is_file():
                raise ValueError("This mesh is no longer on the server: upload it again.")
            name = json.loads((folder / "name.json").read_text(encoding="utf-8"))
            if (folder / "mesh.npz").is_file():
                with np.load(folder / "mesh.npz", allow_pickle=False) as arrays:
                    mesh = mesh_of(dict(arrays))
                upload = Upload(name, mesh, segments(mesh))
            else:
                case = open_case(folder / "case", self.model.equation)
                upload = Upload(name, case.mesh, [], case)
            self._remember(self._opened, key, upload)
        self._opened.move_to_end(key)
        return self._opened[key]

    # Views

    def view(self, request: Request) -> View:
        """What the request shows; a ValueError or another exception with words for the user says why it cannot."""
        if request in self._outcomes:
            self._outcomes.move_to_end(request)
            return self._outcomes[request]
        view = self._new_view(request)
        self._remember(self._outcomes, request, view)
        return view

    def file(self, request: Request, path: Path) -> None:
        """Write the prediction of a request to a file: .vtu, .vtkhdf with all times, or .html for a page of its own."""
        view = self.view(request)
        if view.outcome is None:
            raise ValueError("There is no prediction to write: predict first.")
        if path.suffix == ".vtkhdf":
            series.save(view.outcome, path)
            return
        if path.suffix == ".vtu":
            truth = {
                f"{name}_truth": values[..., -1]
                for name, values in _series(view.outcome, view.outcome.case.targets).items()
            }
            view.outcome.mesh().with_fields(truth).save(path)
            return
        record = json.loads(gzip.decompress(view.record))
        record.pop("segments", None)
        lines = [*view.words["expected"].get("lines", []), *view.outcome.certificate.lines()]
        write_page(path, record, view.title, ", ".join(view.words["facts"]), lines)

    def _new_view(self, request: Request) -> View:
        begin = time.perf_counter()
        upload = self.upload(request.name) if request.source == "upload" else None
        if upload is not None and upload.case is None and request.roles is None:
            return self._mesh_view(request, upload)
        title, case = self._case(request, upload)
        truth_times = self._file(request.name).times if request.source == "dataset" and case.targets else ()
        outcome = self._predicted(case, request.moments, truth_times)
        fields, truth = _series(outcome, outcome.fields), _series(outcome, case.targets)
        record = record_of(case.mesh, fields, outcome.times) | {"times": _finite(outcome.times)}
        if truth:
            record = with_comparison(record, fields, truth)
        record = with_doubts(record, wording.doubts(outcome))
        if upload is not None and upload.pieces:
            record = _with_pieces(record, upload)
        seconds = {**outcome.seconds, "altogether": time.perf_counter() - begin}
        words = _nothing() | {
            "facts": wording.facts(outcome, self.model.equation.headline),
            "certificate": wording.measures(outcome.certificate),
            "warnings": list(outcome.certificate.warnings),
            "notes": [*case.mesh.notes, *outcome.certificate.notes],
            "expected": wording.expected(outcome),
            "errors": wording.errors(fields, truth, case.mesh.point_volumes),
            "seconds": wording.durations(seconds),
            "predicted": True,
            "has_truth": bool(truth),
            "fields": [name for name in record["fields"] if not name.startswith(("truth ", "error "))],
            "times": _finite(outcome.times),
        }
        if _VISCOSITY in case.parameters and _REYNOLDS in outcome.numbers:
            words |= {
                "viscosity": float(case.parameters[_VISCOSITY].reshape(-1)[0]),
                "reynolds": outcome.numbers[_REYNOLDS],
            }
        return View(request.number, title, _compressed(record), words, outcome)

    def _case(self, request: Request, upload: Upload | None) -> tuple[str, Case]:
        values = dict(request.values)
        if request.source == "template":
            template = self.subject.template(request.name)
            shape = [each.read(values) for each in template.sliders if each.name in ("first", "second")]
            title = " ".join([template.title, ", ".join(f"{value:.2f}" for value in shape)]).strip()
            return title, self.subject.of_template(template, values)
        if upload is None:
            return request.name, _with_viscosity(self._file(request.name).case, values)
        if upload.case is not None:
            return upload.name, _with_viscosity(upload.case, values)
        roles = request.roles or ()
        if len(roles) != len(upload.pieces):
            raise ValueError(f"{len(roles)} roles were given for {len(upload.pieces)} segments of the boundary.")
        for role in self.subject.needs:
            if role not in roles:
                raise ValueError(f"The mesh has no {role}: choose a segment of its boundary.")
        return upload.name, self.subject.on_mesh(with_roles(upload.mesh, upload.pieces, roles), values)

    def _predicted(self, case: Case, moments: Moments | None, truth_times: Sequence[float]) -> Outcome:
        ranges = self.config.training_range if self.config else None
        if moments is None or not self.takes_times:
            return predict(self.model, case, ranges)
        if truth_times:
            return predict(self.model, case, ranges, times=truth_times)
        units = self.model.equation.units(case)
        one = 1.0 if units is None else units.time
        return predict(self.model, case, ranges, times=[one * each for each in moments.times])

    def _mesh_view(self, request: Request, upload: Upload) -> View:
        mesh = upload.mesh
        facts = [f"{mesh.number_of_points:,} points", f"{mesh.number_of_cells:,} cells"]
        record = _compressed(_with_pieces(record_of(mesh, {}), upload))
        return View(request.number, upload.name, record, _nothing() | {"facts": facts, "notes": list(mesh.notes)}, None)

    def _file(self, name: str) -> CaseFile:
        if self.manifest is None or self.data is None or name not in self.manifest.cases:
            raise ValueError(f"The dataset has no case {name!r}.")
        return storage.read_file(self.data, name, self.manifest)

    def _manifest(self, folder: Path) -> storage.Manifest:
        manifest = storage.read_manifest(folder)
        if manifest.dataset not in self.subject.datasets:
            raise ValueError(
                f"{folder} is a dataset of {manifest.dataset!r}; with {self.name} the page compares with one of "
                f"{' or '.join(self.subject.datasets)}."
            )
        return manifest

    def _reynolds_range(self) -> list[float] | None:
        """From where to where the slider goes: well around what the network was trained on."""
        if _REYNOLDS not in self.model.equation.headline:
            return None
        low, high = (self.config.training_range if self.config else {}).get(_REYNOLDS, (100.0, 1000.0))
        return [min(10.0, low / 10), max(2000.0, 5 * high)]

    @staticmethod
    def _remember(kept: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        kept[key] = value
        while len(kept) > _MOST_REMEMBERED:
            kept.popitem(last=False)


def _nothing() -> dict[str, Any]:
    """The words of a picture without a prediction."""
    return {
        "facts": [],
        "certificate": [],
        "warnings": [],
        "notes": [],
        "expected": {},
        "errors": [],
        "seconds": [],
        "predicted": False,
        "has_truth": False,
        "fields": [],
        "times": [],
        "viscosity": None,
        "reynolds": None,
    }


def _shown(slider: Slider) -> dict[str, Any]:
    """As JSON, which knows no infinity."""
    return {**asdict(slider), "high": None if slider.typed else slider.high}


def _finite(times: Sequence[float]) -> list[float | None]:
    """Times as JSON has them: None for the steady state."""
    return [each if math.isfinite(each) else None for each in times]


def _with_viscosity(case: Case, values: Mapping[str, float]) -> Case:
    """A stored case with another viscosity, of which there is no truth."""
    if _VISCOSITY not in values or _VISCOSITY not in case.parameters:
        return case
    viscosity = values[_VISCOSITY]
    if not viscosity > 0:
        raise ValueError(f"The viscosity is {viscosity:g}; it must be larger than zero.")
    own = case.parameters[_VISCOSITY]
    return replace(case, parameters={**case.parameters, _VISCOSITY: torch.full_like(own, viscosity)}, targets={})


def _series(outcome: Outcome, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Fields with an axis of times, the last, also where there is one time; none where they hold at others."""
    series = {
        name: values if values.ndim > outcome.case.initial[name].ndim else values[..., None]
        for name, values in fields.items()
    }
    return series if all(values.shape[-1] == len(outcome.times) for values in series.values()) else {}


def _with_pieces(record: dict[str, Any], upload: Upload) -> dict[str, Any]:
    edges = edges_of(upload.mesh)
    return with_segments(record, [edges[piece.facets] for piece in upload.pieces])


def _compressed(record: Mapping[str, Any]) -> bytes:
    # Level 1: base64 of floats gains little from more.
    return gzip.compress(json.dumps(record, allow_nan=False).encode(), 1)
