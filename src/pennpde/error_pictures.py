"""Pictures of reference solution, prediction and error, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.pictures import DIVERGING, ERROR, SEQUENTIAL, Panel, draw, limits_of

Fields = Mapping[str, Tensor]

_BOTH_SIGNS = 0.02
"""Share of the largest value from which on negative ones count."""


def draw_case(case: Case, fields: Fields, path: str | Path) -> None:
    """Truth, prediction and error of each predicted field side by side, one row for each field and time.

    A vector is drawn as its length, its error as the length of the difference. A mesh in space is cut in its middle.
    """
    layers = layers_of(case, fields)
    mesh, cut = cut_flat(case.mesh, [values for layer in layers.values() for values in layer])
    # A field has the same colours at all of its times.
    names = [heading.partition(",")[0] for heading in layers]
    looks = {name: colours_of([cut[3 * place] for place, each in enumerate(names) if each == name]) for name in names}
    rows = []
    for number, heading in enumerate(layers):
        flat_truth, flat_prediction, flat_error = cut[3 * number : 3 * number + 3]
        colours, limits = looks[names[number]]
        rows.append(
            [
                Panel(f"{heading}: truth", mesh, flat_truth, colours, limits),
                Panel(f"{heading}: prediction", mesh, flat_prediction, colours, limits),
                Panel(f"{heading}: error", mesh, flat_error, ERROR),
            ]
        )
    draw(path, rows, title=case.name)


def layers_of(case: Case, fields: Fields) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """By heading, one for each field and time: truth, prediction and error as scalars."""
    layers: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for name, values in fields.items():
        if name not in case.targets:
            continue
        truth, predicted = case.targets[name].detach().cpu().double(), values.detach().cpu().double()
        rank = case.initial[name].ndim - 1 if name in case.initial else truth.ndim - 1
        times = truth.shape[1 + rank] if truth.ndim > 1 + rank else 0
        for number in range(max(times, 1)):
            one, other = (each[..., number] if times else each for each in (truth, predicted))
            heading = (f"|{name}|" if rank else name) + (f", time {number + 1} of {times}" if times else "")
            layers[heading] = (_size(one), _size(other), _size(other - one, always_positive=True))
    return layers


def colours_of(fields: Sequence[Tensor]) -> tuple[str, tuple[float, float]]:
    """Colour map and limits: the diverging map where a field has both signs, and not only by round-off."""
    values = torch.cat(list(fields)).numpy()
    colours = DIVERGING if values.min() < -_BOTH_SIGNS * np.abs(values).max() else SEQUENTIAL
    return colours, limits_of(values, colours)


def _size(values: Tensor, always_positive: bool = False) -> Tensor:
    if values.ndim > 1:
        return torch.linalg.vector_norm(values.flatten(1), dim=1)
    return values.abs() if always_positive else values


def cut_flat(mesh: Mesh, fields: Sequence[Tensor]) -> tuple[Mesh, list[Tensor]]:
    """A plane mesh as it is; a cut through the middle of one in space, with the fields on it."""
    if mesh.space == 2:
        return mesh, list(fields)
    named = {f"field {number}": values for number, values in enumerate(fields)}
    solid = mesh.with_fields(named).to_pyvista()
    cut = solid.slice(normal="z", origin=solid.center).triangulate()
    corners = np.asarray(cut.faces).reshape(-1, 4)[:, 1:]
    flat = Mesh.from_arrays(np.asarray(cut.points, dtype=np.float64)[:, :2], corners)
    return flat, [torch.from_numpy(np.asarray(cut.point_data[name], dtype=np.float64)) for name in named]
