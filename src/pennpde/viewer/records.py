"""Fields on a plane mesh as the record that `field_view.js` draws, and as a page that needs nothing else."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from torch import Tensor

from pennpde.mesh import Mesh
from pennpde.pictures import DIVERGING, ERROR, SEQUENTIAL, triangles

_HERE = Path(__file__).parent
SCRIPT = _HERE / "field_view.js"


def record_of(
    mesh: Mesh, fields: Mapping[str, Tensor], limits: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, Any]:
    """What the page draws: every component of every field, and the magnitude of vectors.

    Args:
        mesh: A plane mesh.
        fields: By name, [points] or [points, 2].
        limits: Of the colours, by the name of a component such as "|u|"; by default each field's own.
    """
    shown: dict[str, np.ndarray] = {}
    velocity = None
    for name, values in fields.items():
        array = values.detach().cpu().numpy().astype(np.float32)
        if array.ndim == 1:
            shown[name] = array
            continue
        shown[f"|{name}|"] = np.linalg.norm(array, axis=1)
        parts = {f"{name}_{axis}": array[:, k] for k, axis in enumerate("xy")}
        shown |= parts
        velocity = velocity or list(parts)
    return {
        "points": _packed(mesh.points.numpy(), np.float32),
        "triangles": _packed(triangles(mesh), np.uint32),
        "edges": _packed(_cell_edges(mesh), np.uint32),
        "fields": {
            name: {
                "values": _packed(values, np.float32),
                "colours": _colours_of(name),
                "limits": list((limits or {}).get(name) or _limits(name, values)),
            }
            for name, values in shown.items()
        },
        "velocity": velocity,
        "colours": {name: _colour_table(name) for name in (SEQUENTIAL, DIVERGING, ERROR)},
    }


def write_page(
    path: Path | str, record: Mapping[str, Any], title: str, subtitle: str, certificate: Sequence[str]
) -> None:
    """One HTML file with the fields inside, to look at, to zoom, to probe; it loads nothing from anywhere."""
    page = Template((_HERE / "page.html").read_text(encoding="utf-8"))
    # "</" inside a script would end it.
    text = page.substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        certificate=html.escape("\n".join(line.strip() for line in certificate)),
        script=SCRIPT.read_text(encoding="utf-8"),
        record=json.dumps(record).replace("</", "<\\/"),
    )
    Path(path).write_text(text, encoding="utf-8")


def _packed(values: np.ndarray, kind: type) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<")).tobytes()).decode()


def _colours_of(name: str) -> str:
    if "error" in name:
        return ERROR
    return SEQUENTIAL if name.startswith("|") else DIVERGING


def _limits(name: str, values: np.ndarray) -> tuple[float, float]:
    if _colours_of(name) != DIVERGING:
        return float(values.min()), float(values.max())
    # A percentile, because pressure peaks at re-entrant corners and would bleach the rest.
    largest = float(np.percentile(np.abs(values), 99.5)) or 1.0
    return -largest, largest


def _cell_edges(mesh: Mesh) -> np.ndarray:
    ends = mesh.offsets[1:]
    following = np.arange(1, len(mesh.connectivity) + 1)
    following[ends - 1] = mesh.offsets[:-1]
    edges = np.sort(np.stack([mesh.connectivity, mesh.connectivity[following]], axis=1), axis=1)
    return np.unique(edges, axis=0)


def _colour_table(name: str) -> str:
    from matplotlib import colormaps

    return _packed((255 * colormaps[name](np.linspace(0, 1, 256))[:, :3]).round(), np.uint8)
