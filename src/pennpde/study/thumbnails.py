"""Small pictures of predictions, some milliseconds each: Matplotlib would take longer than a prediction."""

from __future__ import annotations

import base64
import struct
import zlib
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from pennpde.mesh import Mesh
from pennpde.mesh.mesh import Geometry
from pennpde.pictures import DIVERGING, SEQUENTIAL, limits_of
from pennpde.prediction import Outcome

_WIDTH, _HEIGHT = 120, 80
_SHADES = 48
_KNOWN: WeakKeyDictionary[Geometry, tuple[np.ndarray, np.ndarray]] = WeakKeyDictionary()


def thumbnail(outcome: Outcome) -> str:
    """A PNG file in base64: the first unknown at the last time, of a vector its length. Empty in space."""
    mesh = outcome.case.mesh
    if mesh.space != 2:
        return ""
    values = next(iter(outcome.last.values())).detach().cpu().numpy()
    colours = DIVERGING if values.ndim == 1 else SEQUENTIAL
    values = values if values.ndim == 1 else np.linalg.norm(values.reshape(len(values), -1), axis=1)
    inside, point = _raster(mesh)
    low, high = limits_of(values, colours)
    shades = np.zeros(inside.shape, np.uint8)
    shades[inside] = 1 + np.clip((values[point] - low) / max(high - low, 1e-300), 0, 1) * (_SHADES - 1)
    return _png(shades, colours)


def _raster(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """Which pixels lie in the mesh, and the nearest point of the mesh of each of these; kept for the next design."""
    if mesh.geometry not in _KNOWN:
        _KNOWN[mesh.geometry] = _rastered(mesh)
    return _KNOWN[mesh.geometry]


def _rastered(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    points = mesh.points.detach().numpy()
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    pixel = max(extent[0] / _WIDTH, extent[1] / _HEIGHT)
    size = np.maximum(np.ceil(extent / pixel - 1e-9), 1).astype(int)
    x = low[0] + pixel * (np.arange(size[0]) + 0.5)
    y = low[1] + pixel * (np.arange(size[1])[::-1] + 0.5)
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    away, nearest = KDTree(points).query(places)
    reach = mesh.point_volumes.numpy().copy()
    reach[mesh.boundary_points] *= 2.0  # points of the boundary have half a cell around them
    inside = np.asarray(away) <= 0.75 * np.sqrt(reach[nearest])
    return inside.reshape(size[1], size[0]), np.asarray(nearest)[inside]


@cache
def _palette(name: str) -> bytes:
    from matplotlib import colormaps

    colours = (255 * colormaps[name](np.linspace(0, 1, _SHADES))[:, :3]).round().astype(np.uint8)
    return b"\xff\xff\xff" + colours.tobytes()


def _png(shades: Float[np.ndarray, "rows columns"], colours: str) -> str:
    """With a palette, whose first colour is transparent."""

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows, columns = shades.shape
    lines = np.hstack([np.zeros((rows, 1), np.uint8), shades]).tobytes()  # each begins with the number of its filter
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0),
        b"PLTE": _palette(colours),
        b"tRNS": b"\0",
        b"IDAT": zlib.compress(lines, 6),
        b"IEND": b"",
    }
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(part(*each) for each in parts.items())).decode()
