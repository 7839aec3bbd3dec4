"""Pictures of reference, predictions and errors: the counterparts of the paper's figures 2, 3, 12 and 16 to 18."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pennlab.motions import moved
from pennlab.paper import budgets
from pennlab.paper.tables import WHOLE_STEPS, Record, title_of
from pennpde.case import Case
from pennpde.checkpoints import WEIGHTS, config_of, load_pretrained
from pennpde.pictures import ERROR, Panel, colours_of, cut_flat, draw, layers_of

Fields = Mapping[str, Tensor]
_DECADES = 3.5
"""How far below the largest error the colours of errors reach."""
_LINE = 32
"""Letters of a title above a panel."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """A network that takes part in a picture.

    Attributes:
        title: Above its column.
        row: Of its experiment, for names of files.
        network: With its weights.
    """

    title: str
    row: str
    network: Callable[[Case], Fields]


def networks_of(records: Iterable[tuple[Path, Record]]) -> tuple[list[Drawn], list[str]]:
    """The networks of records, each once, and the titles of those whose weights are not to be had.

    Weights lie where the record says, or in a folder next to the record: those of `ROW/0.json` in `ROW/0`. What is
    found under another title, as a shipped network that was trained again, is not the record's.
    """
    found: dict[tuple[str, Any], Drawn] = {}
    missing: dict[str, None] = {}
    for path, record in records:
        key = (title_of(record), record.get("seed"))
        if key in found:
            continue
        beside = path.parent / path.name.partition(".")[0]
        network = next(filter(None, (_loaded(place, record) for place in (beside, record["model"]))), None)
        if network is None:
            missing[key[0]] = None
            continue
        row = str(record.get("row") or "")
        title = budgets.marked(key[0], [record.get("training", {})], _whole_steps(record))
        found[key] = Drawn(title, row or Path(record["model"]).name, network)
    return list(found.values()), list(missing)


def _loaded(place: Path | str, record: Record) -> nn.Module | None:
    if isinstance(place, Path) and not (place / WEIGHTS).is_file():
        return None
    try:
        network = load_pretrained(str(place))
    except (OSError, ValueError, KeyError):
        return None
    config = config_of(network)
    return network if config is not None and config.title == record.get("title") else None


def _whole_steps(record: Record) -> int | None:
    return {"flow": WHOLE_STEPS, "gradient": budgets.ENDS_BY_ITSELF}.get(record["dataset"].get("kind"))


def draw_comparison(case: Case, networks: Sequence[Drawn], path: str | Path, *, motion: bool = False) -> None:
    """Truth and predictions of several networks side by side, their errors below; one pair of rows a field and time.

    A vector is drawn as its length, its error as the length of the difference. Colours mean the same along a row.

    Args:
        case: With its truth.
        networks: A column each.
        path: Of the picture.
        motion: Whether the same is drawn for the case after the rigid motion of the transformed test set.
    """
    rows = []
    for name, each in {"": case, "moved": moved([case])[0]}.items():
        if name and not motion:
            continue
        with torch.no_grad():
            predictions = {one.title: _on_the_processor(one.network(each)) for one in networks}
        rows += _rows(each, predictions, f", {name}" if name else "")
    draw(path, rows, title=case.name, panel_width=2.6, bars="rows")


def _rows(case: Case, predictions: Mapping[str, Fields], suffix: str) -> list[list[Panel]]:
    layers = {title: layers_of(case, fields) for title, fields in predictions.items()}
    headings = list(next(iter(layers.values())))
    flat = [values for heading in headings for title in layers for values in (layers[title][heading])]
    mesh, cut, _ = cut_flat(case.mesh, flat)
    rows, place = [], iter(cut)
    for heading in headings:
        shown = {title: (next(place), next(place), next(place)) for title in layers}
        truth = next(iter(shown.values()))[0]
        colours, limits = colours_of([truth])
        panels = [Panel(f"{heading}{suffix}: reference", mesh, truth, colours, limits)]
        panels += [
            Panel("\n".join(wrap(title, _LINE)), mesh, values, colours, limits)
            for title, (_, values, _) in shown.items()
        ]
        logarithms = {title: error.clamp(min=1e-12).log10() for title, (_, _, error) in shown.items()}
        top = max(float(np.percentile(values.numpy(), 99.5)) for values in logarithms.values())
        blank = Panel(f"{heading}{suffix}: size of the error", mesh, torch.full_like(truth, torch.nan), ERROR, (0, 1))
        errors = [
            Panel("", mesh, values, ERROR, (top - _DECADES, top), scale="log₁₀ of the error")
            for values in logarithms.values()
        ]
        rows += [panels, [blank, *errors]]
    return rows


def _on_the_processor(fields: Fields) -> dict[str, Tensor]:
    return {name: values.detach().cpu() for name, values in fields.items()}
