"""Content of the page, without the page itself: a request goes in, fields and the words about them come out."""

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
from jaxtyping import Float
from torch import Tensor

from pennpde import metrics
from pennpde.case import Case
from pennpde.checkpoints import Config, config_of, load_pretrained
from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import edges_of
from pennpde.mesh.triangulation import Polygon
from pennpde.penn import Predictor
from pennpde.prediction import Outcome, predict
from pennpde.prediction.outcome import time_name
from pennpde.quantities import parse, usual
from pennpde.trust.certificate import Certificate
from pennpde.viewer.records import record_of, with_comparison, with_doubts, with_segments, write_page
from pennpde.viewer.subjects import Slider, quality_of, subject_of
from pennpde.viewer.uploads import Segment, read_case, read_mesh, segments, suffixes, with_roles
from pennpde.viewer.views import Moments, Request

_MOST_REMEMBERED = 8
"""Outcomes, for files to be downloaded, and uploads."""
_MOMENTS = Moments(duration=4.0, frames=20)
"""Those that the page asks for until a user wants others."""
_REFINED = 1.0
"""Per cent of expected error that is small enough for who asks for a finer answer."""
_VISCOSITY = "viscosity"
_REYNOLDS = "Reynolds number"
_NOTHING: dict[str, Any] = {
    **{name: [] for name in ("facts", "certificate", "warnings", "notes", "errors", "seconds", "fields", "times")},
    "expected": {},
    "predicted": False,
    "has_truth": False,
    "quantities": [],
    "quality": "",
    "viscosity": None,
    "reynolds": None,
}
"""The words of a picture without a prediction."""


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
        self._usual_level = model.level
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
    def usual_data(self) -> Path:
        """Where a dataset lies that nobody names."""
        return Path("data") / self.subject.datasets[0].replace("-", "_")

    def start(self) -> dict[str, Any]:
        """What the page needs to know before the first request."""
        subject, config = self.subject, self.config
        trained = "" if config and (config.training or config.row) else " (untrained)"
        return {
            "network": f"{Path(self.name).name}{trained}",
            "about": about(self.name, config),
            "templates": [
                {**asdict(each), "sliders": [_shown(slider) for slider in each.sliders]} for each in subject.templates
            ],
            "numbers": [_shown(slider) for slider in subject.numbers],
            "drawing": [_shown(slider) for slider in subject.drawing],
            "needs": subject.needs,
            "hint": subject.hint,
            "dataset": str(self.data or ""),
            "cases": self.cases(),
            "suffixes": [*suffixes(), ".zip"],
            "takes_times": self.model.takes_times,
            "levels": list(self.model.levels),
            "moments": asdict(_MOMENTS) if self.model.takes_times else None,
            "examples": [request.content for request in self.examples()],
            "reynolds": self._reynolds_range(),
        }

    def examples(self) -> list[Request]:
        """What the page asks for before anybody moves a slider: the first design."""
        first = self.subject.templates[0]
        moments = replace(_MOMENTS, duration=first.duration) if self.model.takes_times else None
        level = self.model.levels[0] if self.model.levels else ""
        values = tuple(sorted((each.name, each.start) for each in first.sliders))
        return [Request("template", first.kind, values, moments=moments, level=level)]

    def warm_up(self) -> None:
        """Predict something small: the first prediction also loads libraries, which is none of its time."""
        template = self.subject.templates[0]
        case = self.subject.of_template(template, {"resolution": 10.0})
        outcome = predict(self.model, case, times=0.1) if self.model.takes_times else predict(self.model, case)
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
        """Read a file in a folder of its own, where other processes find it for `upload`, and say what it holds."""
        upload = self._read(path, name)
        if upload.case is not None:
            path.unlink()  # the folder has what was in it
        (path.parent / "name.json").write_text(json.dumps([name, path.name]), encoding="utf-8")
        self._remember(self._opened, path.parent.name, upload)
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
            name, file = json.loads((folder / "name.json").read_text(encoding="utf-8"))
            self._remember(self._opened, key, self._read(folder / file, name))
        self._opened.move_to_end(key)
        return self._opened[key]

    def _read(self, path: Path, name: str) -> Upload:
        if path.suffix.lower() == ".zip":
            case = read_case(path, path.parent / "case", self.model.equation)
            return Upload(name, case.mesh, [], case)
        mesh = read_mesh(path)
        return Upload(name, mesh, segments(mesh))

    # Views

    def view(self, request: Request) -> View:
        """What the request shows; a ValueError or another exception with words for the user says why it cannot."""
        if request in self._outcomes:
            self._outcomes.move_to_end(request)
            return self._outcomes[request]
        begin = time.perf_counter()
        upload = self.upload(request.name) if request.source == "upload" else None
        if upload is not None and upload.case is None and request.roles is None:
            mesh = upload.mesh
            facts = [f"{mesh.number_of_points:,} points", f"{mesh.number_of_cells:,} cells"]
            record, words = _with_pieces(record_of(mesh, {}), upload), {"facts": facts, "notes": list(mesh.notes)}
            view = View(request.number, upload.name, _compressed(record), _NOTHING | words, None)
        else:
            view = self._predicted_view(request, upload, begin)
        self._remember(self._outcomes, request, view)
        return view

    def file(self, request: Request, path: Path, field: str = "", frame: int = -1) -> None:
        """Write the prediction of a request to a file.

        Args:
            request: What is predicted.
            path: .vtu, .vtkhdf with all times, .html for a page of its own, .pdf, or .mp4, .webm and .gif, which play.
            field: That a picture shows, as the page calls it, such as "u_x"; by default all.
            frame: Which of the times a picture shows.
        """
        view = self.view(request)
        if view.outcome is None:
            raise ValueError("There is no prediction to write: predict first.")
        if path.suffix in (".pdf", ".mp4", ".webm", ".gif"):
            name = field.strip("|± ").partition("_")[0]
            names = [name] if name in view.outcome.fields else []
            if path.suffix == ".pdf":
                outcome = view.outcome if frame >= len(view.outcome.times) else view.outcome.at(frame)
                outcome.plot(*names, path=path, error=field.startswith("±"), title=view.title)
            else:
                view.outcome.animate(path, *names, title=view.title)
            return
        if path.suffix == ".vtkhdf":
            view.outcome.save(path)
            return
        if path.suffix == ".vtu":
            truth = _series(view.outcome, view.outcome.case.targets)
            last = {f"{name}_truth": values[..., -1] for name, values in truth.items()}
            view.outcome.mesh.with_fields(last).save(path)
            return
        record = json.loads(gzip.decompress(view.record))
        record.pop("segments", None)
        lines = [*view.words["expected"].get("lines", []), *view.outcome.certificate.lines()]
        write_page(path, record, view.title, ", ".join(view.words["facts"]), lines)

    def _predicted_view(self, request: Request, upload: Upload | None, begin: float) -> View:
        title, case = self._case(request, upload)
        truth_times = self._file(request.name).times if request.source == "dataset" and case.targets else ()
        outcome = self._predicted(case, request, truth_times)
        fields, truth = _series(outcome, outcome.fields), _series(outcome, case.targets)
        record = record_of(case.mesh, fields, outcome.times) | {"times": _finite(outcome.times)}
        if truth:
            record = with_comparison(record, fields, truth)
        record = with_doubts(record, _doubts(outcome))
        if upload is not None and upload.pieces:
            record = _with_pieces(record, upload)
        seconds = {**outcome.seconds, "altogether": time.perf_counter() - begin}
        words = _NOTHING | {
            "facts": _facts(outcome, self.model.equation.headline),
            "certificate": _measures(outcome.certificate),
            "warnings": [each for each in outcome.certificate.warnings if each not in outcome.expected.warnings],
            "notes": [*case.mesh.notes, *outcome.certificate.notes],
            "expected": _expected(outcome),
            "quantities": _quantities(outcome),
            "quality": quality_of(case.mesh) if request.source == "drawing" else "",
            "errors": _errors(fields, truth, case.mesh.point_volumes),
            "seconds": _durations(seconds),
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
            shape = [f"{each.read(values):.{each.digits}f}" for each in template.sliders if each.shape]
            title = " ".join([template.title, ", ".join(shape)]).strip()
            return title, self.subject.of_template(template, values)
        if request.source == "drawing":
            polygons = [Polygon(np.array(each.corners), each.roles) for each in request.polygons]
            if not polygons:
                raise ValueError("The drawing is empty.")
            return "Drawing", self.subject.of_drawing(polygons, values)
        if upload is None:
            return request.name, _with_viscosity(self._file(request.name).case, values)
        if upload.case is not None:
            return upload.name, _with_viscosity(upload.case, values)
        roles = request.roles or ()
        if len(roles) != len(upload.pieces):
            raise ValueError(f"{len(roles)} roles were given for {len(upload.pieces)} segments of the boundary.")
        if not any(set(needed) <= set(roles) for needed in self.subject.needs):
            missing = next(role for role in self.subject.needs[0] if role not in roles)
            raise ValueError(f"The mesh has no {missing}: choose a segment of its boundary.")
        return upload.name, self.subject.on_mesh(with_roles(upload.mesh, upload.pieces, roles), values)

    def _predicted(self, case: Case, request: Request, truth_times: Sequence[float]) -> Outcome:
        ranges, moments = self.config.training_range if self.config else None, request.moments
        how: dict[str, Any] = {}
        if self.model.levels:
            refine = request.level == "refine"
            self.model.set_level(request.level if request.level and not refine else self._usual_level)
            how = {"accuracy": _REFINED} if refine else {}
        if moments is not None and self.model.takes_times:
            units = self.model.equation.units(case)
            one = 1.0 if units is None else units.time
            how["times"] = truth_times or [one * each for each in moments.times]
        return predict(self.model, case, ranges, **how)

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


# Words


def about(name: str, config: Config | None) -> list[dict[str, str]]:
    """Which network this is and how it was trained, in rows of words."""
    if config is None:
        return [_row("Network", name), _row("Training", "unknown: the network has no configuration")]
    arguments = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in config.arguments.items())
    rows = {"Network": name, "Size": f"{config.parameters:,} parameters", "Settings": arguments}
    training, dataset = config.training, config.dataset
    if training or config.row:
        count = f"{dataset['train']} cases" if "train" in dataset else "an unnamed number of cases"
        how = [f"{training[key]:.0f} {key}" for key in ("epochs", "minutes") if _is_number(training.get(key))]
        how += [f"on {training['device']}"] if training.get("device") else []
        how += ["not finished"] if training.get("finished") is False else []
        rows |= {
            "Trained on": f"{count} of {dataset.get('kind', 'an unnamed dataset')}",
            "Note": str(dataset.get("note") or ""),
            "Experiment": config.row,
            "Training": ", ".join(how),
        }
        for split, errors in config.metrics.items():
            known = errors if isinstance(errors, Mapping) else {}
            # Other numbers than those of unknowns, such as a trainer's own, would be a riddle here.
            told = [f"{key} {value:.2e}" for key, value in known.items() if _is_number(value) and " " not in key]
            rows[f"Error, {split}"] = ", ".join(told)
    else:
        rows["Training"] = "none: untrained weights"
    return [_row(label, value) for label, value in rows.items() if value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _row(label: str, value: str, level: str = "", note: str = "") -> dict[str, str]:
    return {"label": label, "value": value, "level": level, "note": note}


def _facts(outcome: Outcome, headline: Sequence[str]) -> list[str]:
    """The case in a few words, with those of the equation's numbers that are worth it (`Equation.headline`)."""
    case = outcome.case
    words = [f"{case.number_of_points:,} points", f"{case.mesh.number_of_cells:,} cells"]
    words += [f"{name} {outcome.numbers[name]:.4g}" for name in headline if name in outcome.numbers]
    first, last = outcome.times[0], outcome.times[-1]
    words += [f"level {outcome.level}"] if outcome.level else []
    words.append(time_name(last) if first == last else f"t = {first:.4g} to {last:.4g}")
    if outcome.companion is not None:
        words.append(f"predicted on {outcome.companion.mesh.number_of_cells:,} triangles of the network's spacing")
    return words


def _measures(certificate: Certificate) -> list[dict[str, Any]]:
    """The certificate's measures, each with a level: good, bad, or none where only a person can judge."""
    levels = {True: "good", False: "bad", None: ""}
    rows: list[dict[str, Any]] = [
        _row(f"Prescribed {name}", f"{error:.1e}" if error else "exact", levels[error == 0], "largest deviation")
        for name, error in certificate.dirichlet.items()
    ]
    rows += [_row(each.name.capitalize(), each.text, levels[each.passed]) for each in certificate.checks]
    rows += [
        _row(f"Normal derivative of {name}", f"{error:.1e}", note="root mean square error")
        for name, error in certificate.neumann.items()
    ]
    history = [value for each in certificate.residuals for value in each]
    if history:
        level, how = "", "fixed count"
        if certificate.diverged or certificate.residual_grew:
            level = "bad"
            how = "diverged" if certificate.diverged else "converged" if certificate.converged else "residual grew"
        elif certificate.converged:
            level, how = "good", "converged"
        residual = f"{history[0]:.1e} → {history[-1]:.1e}"
        row = _row("Solver residual", residual, level, f"{len(history)} iterations, {how}")
        rows.append({**row, "history": _line(history)})
    inside, whole = sum(each.inside for each in certificate.compared), len(certificate.compared)
    if whole:
        rows.append(_row("Training range", f"{inside} of {whole}", levels[inside == whole], "numbers within it"))
    else:
        rows.append(_row("Training range", "unknown", note="not recorded by the network"))
    return rows


def _line(values: Sequence[float]) -> str:
    """Points of an SVG polyline, 100 wide and 24 high, with a logarithmic scale."""
    logs = torch.tensor(values, dtype=torch.float64).clamp_min(1e-300).log10()
    logs = logs[torch.isfinite(logs)]
    if len(logs) < 2:
        return ""
    span = float(logs.amax() - logs.amin()) or 1.0
    heights = (22 - 20 * (logs - logs.amin()) / span).tolist()
    return " ".join(f"{100 * k / (len(heights) - 1):.1f},{height:.1f}" for k, height in enumerate(heights))


def _errors(
    fields: Mapping[str, Tensor], truth: Mapping[str, Tensor], volumes: Float[Tensor, " points"]
) -> list[dict[str, str]]:
    """Rows about the error of each field against the truth, over all times, which are the last axis of both."""
    rows = []
    for name in truth:
        prediction, target = fields[name], truth[name].to(fields[name])
        share = 100 * float(metrics.relative_l2(prediction, target, volumes))
        mean = float(metrics.mean_squared_error(prediction, target, prediction.ndim - 2))
        text = f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
        rows.append(_row(f"Error of {name}", text, note=f"of its size; mean square {mean:.2e}"))
    return rows


def _expected(outcome: Outcome) -> dict[str, Any]:
    """How wrong the prediction probably is: a grade and sentences; nothing where no error can be expected."""
    found = outcome.expected
    if not found.errors:
        if not found.unknown_because:
            return {}
        lines = [f"Not known: {found.unknown_because}"]
        return {"grade": found.grade, "short": found.in_short, "sentence": lines[0], "lines": lines}
    lines = [f"{name}: {each}" for name, each in found.errors.items()]
    if found.grade != "good":
        lines += [f"Mostly because of {', '.join(found.reasons)}."] if found.reasons else []
        lines += [found.advice]
    first = next(iter(found.errors.values())).expected
    sentence = f"{found.in_short.partition(': ')[2]}{found.bounds}"
    return {
        "grade": found.grade,
        "short": found.in_short,
        "sentence": f"{sentence[0].upper()}{sentence[1:]}.",
        "lines": lines,
        "improvable": 100 * first > _REFINED,
    }


def _quantities(outcome: Outcome) -> list[dict[str, Any]]:
    """Forces and losses, at each of the times."""
    if outcome.flow is None:
        return []
    texts = usual(outcome.flow)
    return [
        {**each.as_dict(), "label": _label(text), "unit": each.unit if outcome.si else ""}
        for text, each in zip(texts, outcome.quantities(texts), strict=True)
    ]


def _label(text: str) -> str:
    """The name of a quantity as the page has room for it."""
    kind = parse(text).kind.name
    if kind == "pressure drop":
        return "Pressure drop"
    first = parse(text).arguments[0].replace("_", " ")
    return f"Share of {first}" if kind == "flow split" else f"{kind.capitalize()} of {first}"


def _doubts(outcome: Outcome) -> dict[str, Tensor]:
    """By unknown, the expected error at each point and time, where it is known."""
    found = outcome.expected
    by_time = outcome.expected_by_time or (found,) * len(outcome.times)
    return {
        name: torch.stack([each.local.get(name, values) for each in by_time], dim=-1)
        for name, values in found.local.items()
    }


def _durations(seconds: Mapping[str, float]) -> list[dict[str, Any]]:
    """Computing times, with their shares of the total."""
    whole = seconds["altogether"] or 1.0
    return [
        {
            "label": {"prepare": "Preparation"}.get(name, name.capitalize()),
            "value": f"{1000 * value:.0f} ms" if value < 1 else f"{value:.2f} s",
            "share": round(100 * value / whole, 1),
        }
        for name, value in seconds.items()
    ]
