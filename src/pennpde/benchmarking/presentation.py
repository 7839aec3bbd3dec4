"""The trade-off for readers: a table, what it says in words, and the paper's figure of error against seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pennpde.benchmarking.tradeoff import LONG, Contender, Defeat, contenders, defeat, front, losses
from pennpde.budgets import taken

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Record = Mapping[str, Any]

_NETWORK_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_OPENFOAM_COLOUR = "#555555"
_ABLATIONS = "PENN without one of its parts"
_NAMED = 3
_BLOWN_UP = 0.05
"""A solver's error from which on its flow has nothing to do with the truth; it would only stretch the figure."""
DISTURBED = 1.15
"""Times on the wall that exceed those of the processor by more are not worth comparing."""


# Words and table


def markdown(record: Record) -> str:
    """Where the networks lose, then all rows."""
    parts = [
        "# Speed and accuracy: networks and OpenFOAM",
        _legend(record),
        "## Where the networks lose",
        *_verdict(record),
        "## All rows",
        _table(record),
        "## Diverged",
        _divergence(record),
    ]
    return "\n\n".join(parts) + "\n"


def _legend(record: Record) -> str:
    sweep = record["openfoam"]
    here = record["machine"]["cpu"]
    there = sorted({each["cpu"] for each in sweep["machines"]})
    limited = [row for row in sweep["rows"] if row["cases"] < row["of"]]
    text = (
        f"{len(record['cases'])} test cases of dataset {record['dataset'].get('hash', '')}, one core of {here}. Errors "
        "are mean squares over all points of the cases, u over three components, against the dataset's truth at the "
        "points of its coarse meshes; ± is the standard deviation over cases. Networks: "
        f"{record['precision']}, one thread, median of {record['repeats']} forward calls after one that is not "
        f"counted, or that one alone where it takes more than {LONG:g} s; {sweep['solver']}: wall time of its whole "
        "process, on one core. *Before* is what has to be done first: distances, potential flow and operators, or "
        "mesh and potential flow. OpenFOAM was not run on moved shapes, which are the same to it."
    )
    if limited:
        text += (
            f" {len(limited)} of {len(sweep['rows'])} settings were measured on fewer cases; a row is compared with "
            "others on the cases that both have."
        )
    truth = sweep.get("truth") or {}
    if truth:
        text += (
            f" The truth itself comes from {truth['cells']:g} cells per unit length and Δt = {truth['time_step']:g}: "
            "rows on its own mesh (†) share its discretisation error, so theirs is understated."
        )
    if there != [here]:
        text += f" **The times do not compare: OpenFOAM was timed on {', '.join(there)}.**"
    for who, busy in (("OpenFOAM", disturbance(sweep["rows"])), ("The networks", disturbance(record["networks"]))):
        if busy > DISTURBED:
            text += (
                f" **The machine was busy: {who} took {busy:.2g} times as long on the wall as the processor worked.**"
            )
    return text


def disturbance(rows: Sequence[Mapping[str, Any]]) -> float:
    """Wall time over processor time of all runs: 1 on an idle machine."""
    ended = [each["seconds"] for row in rows for each in row["records"] if each["outcome"] == "finished"]
    worked = sum(seconds["solve_cpu"] for seconds in ended)
    return sum(seconds["solve"] for seconds in ended) / worked if worked else 1.0


def _verdict(record: Record) -> list[str]:
    parts = []
    for prepared in (True, False):
        found = losses(record, prepared)
        what = "by the time of the forward call and of the solver" if prepared else "with the time of what comes before"
        if not found:
            parts.append(f"Judged {what}: no setting of OpenFOAM that was measured is both faster and more accurate.")
            continue
        of_loser = groupby(found, key=lambda each: (each.loser.name, each.loser.transformed))
        lines = [f"Judged {what}:", "", *(f"- {_sentence(*defeats)}" for _, defeats in of_loser)]
        parts.append("\n".join(lines))
    parts.append(_more_accurate(record))
    return parts


def _sentence(lost: Defeat, *others: Defeat) -> str:
    moved = ", moved," if lost.loser.transformed else ""
    sentence = (
        f"**{lost.loser.name}**{moved} loses to OpenFOAM `{lost.winner.name}`{_dagger(lost.winner)}: "
        f"{_seconds(lost.seconds[0])} s against {_seconds(lost.seconds[1])} s, total error {lost.totals[0]:.2e} "
        f"against {lost.totals[1]:.2e} ({lost.cases} cases"
    )
    sentence += f"; it diverged in {lost.diverged} others)." if lost.diverged else ")."
    if not others:
        return sentence
    if len(others) <= _NAMED:
        return sentence + f" Also to {', '.join(f'`{each.winner.name}`{_dagger(each.winner)}' for each in others)}."
    quickest = min(others, key=lambda each: each.seconds[1] / each.seconds[0])
    return sentence + (
        f" Also to {len(others)} others; the quickest, `{quickest.winner.name}`{_dagger(quickest.winner)}, takes "
        f"{_seconds(quickest.seconds[1])} s for {quickest.totals[1]:.2e}."
    )


def _more_accurate(record: Record) -> str:
    """Those who lose in speed but win in accuracy against the best network."""
    found = contenders(record)
    networks = [each for each in found if each.is_network and each.cases and not each.transformed and not each.diverged]
    if not networks:
        return "No network gave a result in every case."
    best = min(networks, key=lambda each: each.total(each.cases))
    better = [
        each
        for each in found
        if not each.is_network and each.cases and each.total(each.cases) < best.total(each.cases) and not each.diverged
    ]
    if not better:
        return f"No setting of OpenFOAM that was measured is more accurate than {best.name}."
    quickest = min(better, key=lambda each: each.time(each.cases) / best.time(each.cases))
    factor = quickest.time(quickest.cases) / best.time(quickest.cases)
    names = ", ".join(f"`{each.name}`{_dagger(each)}" for each in better)
    speed = f"takes {_times(factor)} times as long" if factor >= 1 else f"takes {factor:.2g} of its time"
    return (
        f"More accurate than the best network, {best.name}: {names}. The quickest of them, relative to the network, is "
        f"`{quickest.name}`, which {speed}."
    )


def _table(record: Record) -> str:
    found = contenders(record)
    headings = ["Method", "Trans.", "Cases", "u (×10⁻⁴)", "p (×10⁻⁴)", "u + p (×10⁻⁴)", "s a case", "before, s"]
    headings += ["Beaten by", "Paper, u + p (×10⁻⁴)", "Trained for"]
    lines = [headings, ["---"] * len(headings)]
    for each in found:
        name = each.name if each.is_network else f"OpenFOAM `{each.name}`{_dagger(each)}"
        trans = ("yes" if each.transformed else "no") if each.is_network else ""
        number = len(each.cases) + len(each.diverged)
        cases = f"{number}" if not each.diverged else f"{number}, {len(each.diverged)} diverged"
        if not each.cases:
            lines.append([name, trans, cases, *["diverged"] * 3, "", "", "", _printed(each), _trained(each)])
            continue
        errors = each.row["errors"]
        lines.append(
            [
                name,
                trans,
                cases,
                *(_error(errors[part]) for part in ("u", "p", "total")),
                _seconds(each.time(each.cases)),
                _seconds(each.time(each.cases, prepared=False) - each.time(each.cases)),
                _winners(each, found),
                _printed(each),
                _trained(each),
            ]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _winners(loser: Contender, found: Sequence[Contender]) -> str:
    # A network on moved cases solves the same problems; it beats others as itself, and never itself.
    others = [each for each in found if each.name != loser.name and not each.transformed]
    names = [each.name if each.is_network else f"`{each.name}`" for each in others if defeat(loser, each)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _printed(each: Contender) -> str:
    paper = each.row.get("paper")
    if not paper:
        return ""
    return "divergent" if paper["total"] is None else f"{paper['total'][0] / 1e-4:.3g}"


def _trained(each: Contender) -> str:
    return taken([each.row.get("training", {})]) if each.is_network else ""


def _divergence(record: Record) -> str:
    lines = [
        f"- {each.name}{', moved,' if each.transformed else ''} in {len(each.diverged)} of {len(record['cases'])} "
        "cases: its fields are not finite"
        for each in contenders(record)
        if each.is_network and each.diverged
    ]
    for row in record["openfoam"]["rows"]:
        reasons = [each for each in row["records"] if each["outcome"] == "diverged"]
        if reasons:
            lines.append(
                f"- `{row['setting']}` in {len(reasons)} of {row['cases']} cases, such as {reasons[0]['case']}: "
                f"{reasons[0]['reason']}"
            )
    return "\n".join(lines) or "Nothing diverged."


def _error(error: Mapping[str, float]) -> str:
    return f"{error['mse'] / 1e-4:.3g} ± {error['spread'] / 1e-4:.2g}"


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _times(factor: float) -> str:
    return f"{factor:.3g}" if factor < 1000 else f"{factor:,.0f}"


def _dagger(each: Contender) -> str:
    return " †" if each.row.get("mesh_of_the_truth") else ""


# Figure


def draw(record: Record, path: Path | str) -> None:
    """Total error against seconds a case, both logarithmic; filled as the cases are, hollow moved rigidly."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = [each for each in contenders(record) if each.cases]
    solvers = [each for each in found if not each.is_network]
    shown = [each for each in solvers if not _dagger(each) and each.total(each.cases) < _BLOWN_UP]
    figure = Figure(figsize=(8.6, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.set_yscale("log")
    _draw_openfoam(axes, shown)
    _draw_networks(axes, [each for each in found if each.is_network])
    axes.set_xlabel(f"seconds a case, one core of {record['machine']['cpu']}")
    axes.set_ylabel("mean squared error of u and p together")
    axes.grid(True, which="major", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.12, y=0.08)
    figure.legend(fontsize=8, loc="outside lower center", ncols=3, frameon=False)
    legend = "Filled: cases as they are. Hollow: moved rigidly. Small: measured on fewer cases. Lines: Pareto fronts."
    if missing := len(solvers) - len(shown):
        legend += f"\nNot shown: {missing} settings of OpenFOAM that blew up or share the truth's own mesh."
    figure.suptitle(legend, fontsize=9)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_openfoam(axes: Axes, settings: Sequence[Contender]) -> None:
    kinds = {
        "OpenFOAM, the paper's settings": ("s", [each for each in settings if each.row["paper"] is not None]),
        "OpenFOAM, tuned": ("D", [each for each in settings if each.row["paper"] is None]),
    }
    for label, (marker, group) in kinds.items():
        whole = [each for each in group if not each.diverged]
        partial = [each for each in group if each.diverged]
        for words, shape, shown in ((label, marker, whole), (f"{label}, diverged in some cases", "x", partial)):
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
        best = front(list(unmoved.values()))
        if kind == _ABLATIONS:
            _name(axes, list(unmoved.values()), [name.partition(" ")[0] for name in unmoved], colour)
            continue
        _name(axes, best, [each.name.removeprefix(kind).strip() for each in best], colour, below=True)
        if len(best) > 1:
            axes.plot(*_places(best), color=colour, linewidth=1.0, zorder=2)


def _name(axes: Axes, found: Sequence[Contender], labels: Sequence[str], colour: str, below: bool = False) -> None:
    """Names beside their marks: above to the right, or below to the left, which is a front's free side.

    Long ones behind a front would cover each other; the table has them.
    """
    offset, across, along = ((-6, -3), "right", "top") if below else ((5, 4), "left", "baseline")
    style = {"textcoords": "offset points", "ha": across, "va": along, "fontsize": 6, "color": colour}
    for x, y, label in zip(*_places(found), labels, strict=True):
        axes.annotate(label, (x, y), offset, **style)


def _kind(network: Contender) -> str:
    """What networks of several sizes have in common: "PENN" of "PENN n = 16, r = 8". "(A) ..." is an ablation."""
    return _ABLATIONS if network.name.startswith("(") else network.name.partition(" n = ")[0]


def _places(found: Sequence[Contender]) -> tuple[list[float], list[float]]:
    return [each.time(each.cases) for each in found], [each.total(each.cases) for each in found]
