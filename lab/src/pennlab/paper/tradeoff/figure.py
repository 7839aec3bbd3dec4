"""The paper's figure of the trade-off: error against seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pennlab.charts import COLOURS, chart, save
from pennlab.paper.tradeoff.measure import Contender, contenders, front

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OPENFOAM_COLOUR = "#555555"
_ABLATIONS = "PENN without one of its parts"
_BLOWN_UP = 0.05
"""A solver's error from which on its flow has nothing to do with the truth; it would only stretch the figure."""
_WITHOUT_LENGTH = re.compile(r" ?\([^()]*steps[^()]*\)$")
_AROUND = [
    (x * far, y * far) for far in (1.0, 2.2, 3.6) for x, y in ((6, 4), (-6, -4), (6, -5), (-6, 4), (0, 9), (0, -9))
]
"""Where a name may stand, in points from its mark; the first places are the nearest."""
Name = tuple[float, float, str, str]
"""x, y, words and colour."""


def draw(record: Mapping[str, Any], path: Path | str) -> None:
    """Total error against seconds per case, both logarithmic; filled: original cases, hollow: after a rigid motion."""
    found = [each for each in contenders(record) if each.cases]
    solvers = [each for each in found if not each.is_network]
    shown = [each for each in solvers if not each.row.get("mesh_of_the_truth") and each.total(each.cases) < _BLOWN_UP]
    figure, ((axes,),) = chart(1, 1, 8.6, 6.8)
    axes.set_xscale("log")
    axes.set_yscale("log")
    names = [*_draw_openfoam(axes, shown), *_draw_networks(axes, [each for each in found if each.is_network])]
    axes.set_xlabel(f"seconds per case, one core of {record['machine']['cpu']}")
    axes.set_ylabel("mean squared error of u and p together")
    axes.margins(x=0.12, y=0.08)
    figure.legend(loc="outside lower center", ncols=2)
    legend = "Filled: cases as they are. Hollow: moved rigidly. Small: measured on fewer cases. Lines: Pareto fronts."
    if missing := len(solvers) - len(shown):
        legend += f"\nNot shown: {missing} settings of OpenFOAM that blew up or share the reference's own mesh."
    figure.suptitle(legend, fontsize=9)
    _write(axes, names, [place for each in found for place in zip(*_places([each]), strict=True)])
    save(figure, Path(path), colours=128)


def _draw_openfoam(axes: Axes, settings: Sequence[Contender]) -> list[Name]:
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
    if best:
        axes.plot(*_places(best), color=_OPENFOAM_COLOUR, linewidth=1.0, linestyle="--", zorder=2)
    return _names(best, [each.name for each in best], _OPENFOAM_COLOUR)


def _draw_networks(axes: Axes, networks: Sequence[Contender]) -> list[Name]:
    names = []
    for kind, colour in zip(dict.fromkeys(map(_kind, networks)), cycle(COLOURS[:6]), strict=False):
        unmoved = {each.name: each for each in networks if _kind(each) == kind and not each.transformed}
        if unmoved:
            axes.scatter(*_places(list(unmoved.values())), s=50, color=colour, label=kind, zorder=4)
        for each in (one for one in networks if _kind(one) == kind and one.transformed):
            # A moved network that respects space lies on the unmoved one: a larger ring shows both.
            axes.scatter(*_places([each]), s=130, facecolors="none", edgecolors=colour, linewidths=1.4, zorder=4)
            if each.name in unmoved:
                axes.plot(*_places([unmoved[each.name], each]), color=colour, linewidth=0.6, linestyle=":", zorder=2)
        if kind == _ABLATIONS:
            names += _names(list(unmoved.values()), [name.partition(" ")[0] for name in unmoved], colour)
            continue
        best = front(list(unmoved.values()))
        names += _names(best, [each.name.removeprefix(kind).strip(", ") for each in best], colour)
        if len(best) > 1:
            axes.plot(*_places(best), color=colour, linewidth=1.0, zorder=2)
    return names


def _names(found: Sequence[Contender], labels: Sequence[str], colour: str) -> list[Name]:
    # How long a training was stands in the table; here it would cover the neighbours.
    words = [_WITHOUT_LENGTH.sub("", label) for label in labels]
    return [(x, y, text, colour) for x, y, text in zip(*_places(found), words, strict=True) if text]


def _write(axes: Axes, names: Sequence[Name], marks: Sequence[tuple[float, float]]) -> None:
    """Names next to their marks, where they cover nothing; without room, only the table has it."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    figure: Any = axes.figure
    figure.draw_without_rendering()  # only then it is known where things are
    reach = 4 * figure.dpi / 72
    taken = [Bbox.from_bounds(x - reach, y - reach, 2 * reach, 2 * reach) for x, y in axes.transData.transform(marks)]
    for x, y, words, colour in names:
        for across, up in _AROUND:
            side = "left" if across > 0 else "right" if across < 0 else "center"
            how: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center", "fontsize": 6.5}
            if abs(across) > 6 or abs(up) > 9:
                how["arrowprops"] = {"arrowstyle": "-", "color": colour, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3}
            text = axes.annotate(words, (x, y), (across, up), color=colour, **how)
            text.update_positions(figure.canvas.get_renderer())
            box = Text.get_window_extent(text)  # of the words alone, without the line to them
            inside = axes.bbox.x0 < box.x0 and box.x1 < axes.bbox.x1 and axes.bbox.y0 < box.y0 and box.y1 < axes.bbox.y1
            if inside and not box.count_overlaps(taken):
                taken.append(box)
                break
            text.remove()


def _kind(network: Contender) -> str:
    """What networks of several sizes have in common: "PENN" of "PENN n = 16, r = 8". "(A) ..." is an ablation."""
    if network.name.startswith("("):
        return _ABLATIONS
    return network.name.partition(" n = ")[0].partition(" (short")[0].rstrip(",")


def _places(found: Sequence[Contender]) -> tuple[list[float], list[float]]:
    return [each.time(each.cases) for each in found], [each.total(each.cases) for each in found]
