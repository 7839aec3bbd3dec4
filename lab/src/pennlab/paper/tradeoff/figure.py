"""The paper's figure of the trade-off: error against seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pennlab.paper.tradeoff.measure import Contender, contenders, front
from pennpde.pictures import save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NETWORK_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_OPENFOAM_COLOUR = "#555555"
_ABLATIONS = "PENN without one of its parts"
_BLOWN_UP = 0.05
"""A solver's error from which on its flow has nothing to do with the truth; it would only stretch the figure."""
_WITHOUT_LENGTH = re.compile(r" ?\([^()]*steps[^()]*\)$")


def draw(record: Mapping[str, Any], path: Path | str) -> None:
    """Total error against seconds per case, both logarithmic; filled: original cases, hollow: after a rigid motion."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = [each for each in contenders(record) if each.cases]
    solvers = [each for each in found if not each.is_network]
    shown = [each for each in solvers if not each.row.get("mesh_of_the_truth") and each.total(each.cases) < _BLOWN_UP]
    figure = Figure(figsize=(8.6, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    _draw_openfoam(axes, shown)
    _draw_networks(axes, [each for each in found if each.is_network])
    axes.set_xlabel(f"seconds per case, one core of {record['machine']['cpu']}")
    axes.set_ylabel("mean squared error of u and p together")
    axes.grid(True, which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.12, y=0.08)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2, frameon=False)
    legend = "Filled: cases as they are. Hollow: moved rigidly. Small: measured on fewer cases. Lines: Pareto fronts."
    if missing := len(solvers) - len(shown):
        legend += f"\nNot shown: {missing} settings of OpenFOAM that blew up or share the truth's own mesh."
    figure.suptitle(legend, fontsize=9)
    save_figure(figure, path, dots_per_inch=150)


def _draw_openfoam(axes: Axes, settings: Sequence[Contender]) -> None:
    kinds = {
        "OpenFOAM, the paper's settings": ("s", [each for each in settings if each.row["paper"] is not None]),
        "OpenFOAM, tuned": ("D", [each for each in settings if each.row["paper"] is None]),
    }
    for label, (marker, group) in kinds.items():
        whole = [each for each in group if not each.diverged]
        partial = [each for each in group if each.diverged]
        for words, shape, shown in ((label, marker, whole), (f"{label}, failed in some cases", "x", partial)):
            if shown:
                sizes = [36 if each.row["cases"] == each.row["of"] else 12 for each in shown]
                axes.scatter(*_places(shown), marker=shape, s=sizes, color=_OPENFOAM_COLOUR, label=words, zorder=3)
    best = front(settings)
    _name(axes, best, [each.name for each in best], _OPENFOAM_COLOUR)
    if best:
        axes.plot(*_places(best), color=_OPENFOAM_COLOUR, linewidth=1.0, linestyle="--", zorder=2)


def _draw_networks(axes: Axes, networks: Sequence[Contender]) -> None:
    for kind, colour in zip(dict.fromkeys(map(_kind, networks)), cycle(_NETWORK_COLOURS), strict=False):
        unmoved = {each.name: each for each in networks if _kind(each) == kind and not each.transformed}
        if unmoved:
            axes.scatter(*_places(list(unmoved.values())), s=50, color=colour, label=kind, zorder=4)
        for each in (one for one in networks if _kind(one) == kind and one.transformed):
            # A moved network that respects space lies on the unmoved one: a larger ring shows both.
            axes.scatter(*_places([each]), s=130, facecolors="none", edgecolors=colour, linewidths=1.4, zorder=4)
            if each.name in unmoved:
                axes.plot(*_places([unmoved[each.name], each]), color=colour, linewidth=0.6, linestyle=":", zorder=2)
        if kind == _ABLATIONS:
            _name(axes, list(unmoved.values()), [name.partition(" ")[0] for name in unmoved], colour)
            continue
        best = front(list(unmoved.values()))
        _name(axes, best, [each.name.removeprefix(kind).strip(", ") for each in best], colour, below=True)
        if len(best) > 1:
            axes.plot(*_places(best), color=colour, linewidth=1.0, zorder=2)


def _name(axes: Axes, found: Sequence[Contender], labels: Sequence[str], colour: str, below: bool = False) -> None:
    """Names next to their marks: above to the right, or below to the left, which is the free side of a front.

    Long ones behind a front would cover each other; the table has them.
    """
    offset, across, along = ((-6, -3), "right", "top") if below else ((5, 4), "left", "baseline")
    style = {"textcoords": "offset points", "ha": across, "va": along, "fontsize": 6, "color": colour}
    for x, y, label in zip(*_places(found), labels, strict=True):
        # How long a training was stands in the table; here it would cover the neighbours.
        axes.annotate(_WITHOUT_LENGTH.sub("", label), (x, y), offset, **style)


def _kind(network: Contender) -> str:
    """What networks of several sizes have in common: "PENN" of "PENN n = 16, r = 8". "(A) ..." is an ablation."""
    if network.name.startswith("("):
        return _ABLATIONS
    return network.name.partition(" n = ")[0].partition(" (short")[0].rstrip(",")


def _places(found: Sequence[Contender]) -> tuple[list[float], list[float]]:
    return [each.time(each.cases) for each in found], [each.total(each.cases) for each in found]
