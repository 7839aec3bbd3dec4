"""Fields on a plane mesh as the record that `field_view.js` draws, and as a page that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from torch import Tensor

from pennpde.files import write_atomically
from pennpde.mesh import Mesh
from pennpde.pictures import DIVERGING, ERROR, SEQUENTIAL, limits_of, openings, triangles
from pennpde.prediction.outcome import Outcome

WEB = Path(__file__).parent / "web"
_LARGEST = float(np.finfo(np.float32).max)


def record_of(
    mesh: Mesh,
    fields: Mapping[str, Tensor],
    times: Sequence[float] = (),
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> dict[str, Any]:
    """What the page draws: every component of every field, and the magnitude of vectors.

    Args:
        mesh: A plane mesh.
        fields: By name, [points] or [points, 2]. Without fields only the mesh is shown.
        times: When the fields hold. Where they are given, times are a further axis of every field, the last.
        limits: Of the colours, by the name of a component such as "|u|"; by default each field's own.
    """
    shown, velocity = _components(fields, bool(times))
    through = next((each for each in fields.values() if each.ndim == 2 + bool(times)), None)
    last = None if through is None else (through[..., -1] if times else through).detach().cpu().double().numpy()
    found = [] if last is None else openings(mesh, last)
    closed = np.setdiff1d(np.arange(len(mesh.facets)), np.concatenate([[], *(each.facets for each in found)]))
    return {
        "points": _packed(mesh.points.numpy(), np.float32),
        "triangles": _packed(triangles(mesh), np.uint32),
        "edges": _packed(_cell_edges(mesh), np.uint32),
        "fields": {name: _entry(values, _colours_of(name), (limits or {}).get(name)) for name, values in shown.items()},
        "times": list(times),
        "velocity": velocity,
        "outline": _packed(mesh.facets.connectivity.reshape(-1, 2)[closed], np.uint32),
        "arrows": [
            [*tail, *(tail + arrow), each.enters]
            for each in found
            for tail, arrow in zip(each.tails.tolist(), each.arrows, strict=True)
        ],
        "colours": {name: _colour_table(name) for name in (SEQUENTIAL, DIVERGING, ERROR)},
    }


def with_comparison(
    record: Mapping[str, Any], fields: Mapping[str, Tensor], truth: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The record with the truth and the size of the error as further fields, such as "truth p" and "error p".

    Prediction and truth share the truth's limits: the same colour means the same value.
    """
    in_time = bool(record["times"])
    ours, _ = _components(fields, in_time)
    theirs, velocity = _components(truth, in_time)
    differences = {name: fields[name] - values.to(fields[name]) for name, values in truth.items()}
    difference, _ = _components(differences, in_time)
    entries = dict(record["fields"])
    for name, values in theirs.items():
        limits = limits_of(values, _colours_of(name))
        entries[name] = _entry(ours[name], _colours_of(name), limits)
        entries[f"truth {name}"] = _entry(values, _colours_of(name), limits)
        entries[f"truth {name}"]["velocity"] = velocity and [f"truth {part}" for part in velocity]
    for name in theirs:
        entries[f"error {name}"] = _entry(np.abs(difference[name]), ERROR) | {"velocity": None}
    return {**record, "fields": entries}


def with_doubts(record: Mapping[str, Any], doubts: Mapping[str, Tensor]) -> dict[str, Any]:
    """The record of fields at times with their expected errors, [points, times], as further fields, such as "± p"."""
    entries = {
        f"± {name}": _entry(values.detach().cpu().numpy().astype(np.float64).T, ERROR) | {"velocity": None}
        for name, values in doubts.items()
    }
    return {**record, "fields": {**record["fields"], **entries}}


def with_segments(record: Mapping[str, Any], pieces: Iterable[np.ndarray]) -> dict[str, Any]:
    """The record with pieces of the boundary to point at, each given by the points of its edges [edges, 2]."""
    return {**record, "segments": [_packed(edges, np.uint32) for edges in pieces]}


def page_of(outcome: Outcome, title: str = "Prediction") -> str:
    """One HTML text with all times of a prediction; it loads nothing else: play, pan, zoom, probe."""
    mesh, several = outcome.case.mesh, len(outcome.times) > 1
    record = record_of(mesh, outcome.fields if several else outcome.last, outcome.shown_times if several else ())
    numbers = outcome.title(outcome.time).partition(", ")[2]
    told = [outcome.when, numbers, f"{mesh.number_of_points:,} points", outcome.expected.in_short]
    subtitle = "; ".join(filter(None, told))
    return _page(record, title, subtitle, outcome.expected.lines() + outcome.certificate.lines())


def write_page(
    path: Path | str, record: Mapping[str, Any], title: str, subtitle: str, certificate: Sequence[str]
) -> None:
    """One HTML file that contains the fields and loads nothing else: pan, zoom, probe."""
    write_atomically(path, _page(record, title, subtitle, certificate))


def _page(record: Mapping[str, Any], title: str, subtitle: str, certificate: Sequence[str]) -> str:
    page = Template((WEB / "page.html").read_text(encoding="utf-8"))
    # "</" inside a script would end it.
    return page.substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        certificate=html.escape("\n".join(line.strip() for line in certificate)),
        script=(WEB / "field_view.js").read_text(encoding="utf-8"),
        record=json.dumps(record).replace("</", "<\\/"),
    )


def _packed(values: np.ndarray, kind: type) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def _components(fields: Mapping[str, Tensor], in_time: bool = False) -> tuple[dict[str, np.ndarray], list[str] | None]:
    """Magnitudes and components, [points] or [times, points], and the names of the first vector's components."""
    shown: dict[str, np.ndarray] = {}
    velocity = None
    for name, values in fields.items():
        array = values.detach().cpu().numpy().astype(np.float64)
        if in_time:
            array = np.moveaxis(array, -1, 0)
        if array.ndim == 1 + in_time:
            shown[name] = array
            continue
        shown[f"|{name}|"] = np.linalg.norm(array, axis=-1)
        parts = {f"{name}_{axis}": array[..., k] for k, axis in enumerate("xy")}
        shown |= parts
        velocity = velocity or list(parts)
    return shown, velocity


def _entry(values: np.ndarray, colours: str, limits: Sequence[float] | None = None) -> dict[str, Any]:
    with np.errstate(over="ignore"):  # a solver that diverged knows no bounds
        packed = _packed(values, np.float32)
    finite = values[np.isfinite(values) & (np.abs(values) < _LARGEST)]
    extent = [float(finite.min()), float(finite.max())] if len(finite) else [0.0, 0.0]
    return {
        "values": packed,
        "colours": colours,
        "limits": list(limits or limits_of(values, colours)),
        "extent": extent,
    }


def _colours_of(name: str) -> str:
    return SEQUENTIAL if name.startswith("|") else DIVERGING


def _cell_edges(mesh: Mesh) -> np.ndarray:
    ends = mesh.offsets[1:]
    following = np.arange(1, len(mesh.connectivity) + 1)
    following[ends - 1] = mesh.offsets[:-1]
    edges = np.sort(np.stack([mesh.connectivity, mesh.connectivity[following]], axis=1), axis=1)
    return np.unique(edges, axis=0)


@cache
def _colour_table(name: str) -> str:
    from matplotlib import colormaps

    return _packed((255 * colormaps[name](np.linspace(0, 1, 256))[:, :3]).round(), np.uint8)
