"""Sweep and trade-off for readers: tables, and what they say in words."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from pennlab.paper.budgets import taken
from pennlab.paper.openfoam_sweep.settings import read
from pennlab.paper.openfoam_sweep.sweep import BLOWN_UP, blown_up, printed_row
from pennlab.paper.tables import markdown_table
from pennlab.paper.tradeoff.measure import LONG, Contender, Defeat, contenders, defeat, losses

Record = Mapping[str, Any]

_NAMED = 3
_FEWEST_CASES = 5
"""What a setting with 45 cells per unit length is to be run on at least."""
DISTURBED = 1.15
"""Times on the wall that exceed those of the processor by more are not worth comparing."""


# The sweep


def sweep_markdown(sweep: Record) -> str:
    """All settings of OpenFOAM, next to the paper's numbers where it has them; what failed, and what was never run."""
    headings = ["Setting", "Cases", "u (×10⁻⁴)", "p (×10⁻⁴)", "u + p (×10⁻⁴)", "paper", "s per case"]
    headings += ["paper, total time", "mesh, s", "potential flow, s"]
    lines = [_sweep_line(row) for row in sweep["rows"]]
    truth = sweep.get("truth") or {}
    text = (
        f"{sweep['solver']} on {len(sweep['cases'])} test cases, one core of "
        f"{', '.join(sorted({each['cpu'] for each in sweep['machines']}))}. A setting is FAMILY-CELLS-STEP: "
        "solver family, cells per unit length, time step. Errors are mean squared errors at the points of the "
        "dataset's coarse meshes; ± is the standard error of the mean over points, as in the paper. Times are "
        "processor times of the solver; ± is the standard error of the mean over cases. Settings that were run on "
        "fewer than all cases say so. A run *blew up* if it ended with an error of u and p together above "
        f"{BLOWN_UP:g}, which is what the start field has. Errors and times are those of the cases that neither "
        "diverged nor blew up."
    )
    if truth:
        text += (
            f" † on the mesh of the reference ({truth['cells']:g} cells, Δt = {truth['time_step']:g}), whose "
            "discretisation error it shares: the error is understated."
        )
    if any(_is_disturbed(row) for row in sweep["rows"]):
        text += " ‡ measured while other programs ran; processor times are then up to a quarter longer: an upper bound."
    heading = f"# OpenFOAM in {len(sweep['rows'])} settings (the paper's Table 7)"
    return "\n\n".join([heading, text, markdown_table(headings, lines), *_failures(sweep), *_left(sweep)]) + "\n"


def _sweep_line(row: Mapping[str, Any]) -> list[str]:
    printed = [_of_paper(row, "total", 1e-4, with_error=True), _of_paper(row, "seconds", 1.0, with_error=True)]
    number = f"{row['cases']}" if row["cases"] == row["of"] else f"{row['cases']} of {row['of']}"
    failed = [(row["diverged"], "diverged"), (row.get("blown_up", []), "blew up")]
    cells = [_setting(row), ", ".join([number, *(f"{len(cases)} {what}" for cases, what in failed if cases)])]
    if row["errors"] is None:
        return [*cells, *["diverged"] * 3, printed[0], "", printed[1], "", ""]
    errors = [_with_error(row["errors"][part]) for part in ("u", "p", "total")]
    number_of_runs = row["cases"] - sum(len(cases) for cases, _ in failed)
    solve = row["seconds"]["solve_cpu"]
    spread = f" ± {solve['spread'] / number_of_runs**0.5:.2g}" if number_of_runs > 1 else ""
    seconds = _seconds(solve["mean"]) + spread + (" ‡" if _is_disturbed(row) else "")
    before = [_seconds(row["seconds"][part]["mean"]) for part in ("mesh", "potential_flow")]
    return [
        *cells,
        *errors,
        printed[0],
        seconds,
        printed[1],
        *before,
    ]


def _is_disturbed(row: Mapping[str, Any]) -> bool:
    return row["errors"] is not None and disturbance([row]) > DISTURBED


def _failures(sweep: Record) -> list[str]:
    """Runs that blew up, one line for each setting."""
    lines = []
    for row in sweep["rows"]:
        runs = [each for each in row["records"] if each["case"] in row.get("blown_up", [])]
        worst = [
            f"{each['case']} (u {each['errors']['u']['mse']:.2g}, p {each['errors']['p']['mse']:.2g})" for each in runs
        ]
        if runs:
            lines.append(f"- `{row['setting']}`: {', '.join(worst)}")
    return ["Runs that blew up:\n\n" + "\n".join(lines)] if lines else []


def _left(sweep: Record) -> list[str]:
    """The paper's settings that lack cases, with an estimate of the seconds that they would take."""
    number = len(sweep["cases"])
    rows = {row["setting"]: row for row in sweep["rows"]}
    never, parts, whole, least = [], [], 0.0, 0.0
    for planned in read(["paper"]):
        setting = planned.setting
        row, printed = rows.get(setting.name), printed_row(setting)
        if printed is None or (row is not None and row["cases"] >= number):
            continue
        missing = number - (row["cases"] if row else 0)
        one = _seconds_of_one(row, printed, sweep)
        whole += missing * (one or 0.0)
        wanted = {22.5: number, 45.0: min(_FEWEST_CASES, number)}.get(setting.cells, 0)
        least += max(0, wanted - (row["cases"] if row else 0)) * (one or 0.0)
        parts.append(f"`{setting.name}` {missing}" + (f" ({missing * one:,.0f} s)" if one else ""))
        if row is None:
            never.append(f"`{setting.name}`")
    found = []
    if never:
        found.append(f"Rows of the paper's table that were never run: {', '.join(never)}.")
    if parts:
        found.append(
            f"Cases that the paper's rows still lack, with an estimate of the processor time: {', '.join(parts)}; "
            f"together about {whole:,.0f} s, and {least:,.0f} s for all cases with 22.5 cells and {_FEWEST_CASES} with "
            f"45. `penn bench openfoam --data data/flow --out bench --settings paper "
            "--known lab/benchmarks/results/openfoam_sweep.json` runs only these."
        )
    return found


def _seconds_of_one(row: Mapping[str, Any] | None, printed: Mapping[str, Any], sweep: Record) -> float | None:
    """Of a case in a setting: measured, or the paper's time by the ratio that other settings have; None: neither."""
    if row is not None and row["seconds"] is not None:
        return row["seconds"]["solve_cpu"]["mean"]
    if printed["seconds"] is None:
        return None
    ratios = [
        each["seconds"]["solve_cpu"]["mean"] / each["paper"]["seconds"][0]
        for each in sweep["rows"]
        if each["seconds"] and each["paper"] and each["paper"]["seconds"]
    ]
    return printed["seconds"][0] * statistics.median(ratios) if ratios else None


def _of_paper(row: Mapping[str, Any], part: str, unit: float, *, with_error: bool = False) -> str:
    """What the paper has for a network or a setting; nothing where it has no such row."""
    paper = row.get("paper")
    if not paper:
        return ""
    if paper[part] is None:
        return "divergent"
    text = f"{paper[part][0] / unit:.3g}"
    return f"{text} ± {paper[part][1] / unit:.2g}" if with_error and len(paper[part]) > 1 else text


def _setting(row: Mapping[str, Any]) -> str:
    return f"`{row['setting']}`" + (" †" if row.get("mesh_of_the_truth") else "")


# Words and table of the trade-off


def markdown(record: Record) -> str:
    """Where the networks lose, then all rows."""
    parts = [
        "# Speed and accuracy: networks and OpenFOAM",
        _legend(record),
        "## Where the networks lose",
        *_verdict(record),
        "## All rows",
        _table(record),
        "## Diverged or blown up",
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
        "are mean squared errors over all points of the cases, u over three components, against the dataset's "
        "reference solution at the points of its coarse meshes; ± is the standard deviation over cases. Times of "
        f"networks: {record['precision']}, one thread, median of {record['repeats']} forward calls after a warm-up "
        f"call, or one call if it takes more than {LONG:g} s. Times of {sweep['solver']}: its whole process, on one "
        "core. All are processor times; ± is the standard error of the mean over cases. *Preparation* is distances, "
        "potential flow and operators for networks, mesh and potential flow for OpenFOAM. OpenFOAM was not run on "
        "moved shapes, where its errors would be the same."
    )
    if limited:
        text += (
            f" {len(limited)} of {len(sweep['rows'])} settings were measured on fewer cases; a row is compared with "
            "others on the cases that both have."
        )
    truth = sweep.get("truth") or {}
    if truth:
        text += (
            f" The reference has {truth['cells']:g} cells per unit length and Δt = {truth['time_step']:g}. Rows on the "
            "same mesh (†) share its discretisation error, so their errors are understated."
        )
    if any("machine" in row for row in record["networks"]):
        text += (
            " Networks that were trained further were measured again; of two measurements of one architecture the "
            "shorter time counts for each case, because other programs on the machine only lengthen it."
        )
    if there != [here]:
        text += f" **The times do not compare: OpenFOAM was timed on {', '.join(there)}.**"
    for who, busy in (("OpenFOAM", disturbance(sweep["rows"])), ("the networks", disturbance(record["networks"]))):
        if busy > DISTURBED:
            text += f" **The machine was busy: for {who}, wall time is {busy:.2g} times the processor time.**"
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
        what = "without preparation" if prepared else "with preparation"
        if not found:
            parts.append(f"Times {what}: no measured setting of OpenFOAM is both faster and more accurate.")
            continue
        of_loser = groupby(found, key=lambda each: (each.loser.name, each.loser.transformed))
        lines = [f"Times {what}:", "", *(f"- {_sentence(*defeats)}" for _, defeats in of_loser)]
        parts.append("\n".join(lines))
    parts.append(_more_accurate(record))
    return parts


def _sentence(lost: Defeat, *others: Defeat) -> str:
    moved = ", moved," if lost.loser.transformed else ""
    sentence = (
        f"**{lost.loser.name}**{moved} loses to OpenFOAM {_setting(lost.winner.row)}: "
        f"{_seconds(lost.seconds[0])} s against {_seconds(lost.seconds[1])} s, total error {lost.totals[0]:.2e} "
        f"against {lost.totals[1]:.2e} ({lost.cases} cases"
    )
    sentence += f"; it diverged in {lost.diverged} others)." if lost.diverged else ")."
    if not others:
        return sentence
    if len(others) <= _NAMED:
        return sentence + f" Also to {', '.join(_setting(each.winner.row) for each in others)}."
    quickest = min(others, key=lambda each: each.seconds[1] / each.seconds[0])
    return sentence + (
        f" Also to {len(others)} others; the quickest, {_setting(quickest.winner.row)}, takes "
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
    number = len(record["cases"])
    names = ", ".join(
        _setting(each.row) + (f" (on {len(each.cases)} of {number})" if len(each.cases) < number else "")
        for each in better
    )
    speed = f"takes {_times(factor)} times as long" if factor >= 1 else f"takes {factor:.2g} times as long"
    return (
        f"More accurate than the best network, {best.name}, on the cases that they have: {names}. The quickest of "
        f"them, relative to the network, is `{quickest.name}`, which {speed}."
    )


def _table(record: Record) -> str:
    found = contenders(record)
    headings = ["Method", "Trans.", "Cases", "u (×10⁻⁴)", "p (×10⁻⁴)", "u + p (×10⁻⁴)", "s per case", "preparation, s"]
    headings += ["Beaten by", "Paper, u + p (×10⁻⁴)", "Trained for"]
    lines = []
    for each in found:
        name = each.name if each.is_network else f"OpenFOAM {_setting(each.row)}"
        trans = ("yes" if each.transformed else "no") if each.is_network else ""
        number = len(each.cases) + len(each.diverged)
        cases = f"{number}" if not each.diverged else f"{number}, {len(each.diverged)} failed"
        if not each.cases:
            lines.append(
                [name, trans, cases, *["diverged"] * 3, "", "", "", _of_paper(each.row, "total", 1e-4), _trained(each)]
            )
            continue
        errors = each.row["errors"]
        lines.append(
            [
                name,
                trans,
                cases,
                *(_error(errors[part]) for part in ("u", "p", "total")),
                f"{_seconds(each.time(each.cases))} ± {each.time_error:.2g}",
                _seconds(each.time(each.cases, prepared=False) - each.time(each.cases)),
                _winners(each, found),
                _of_paper(each.row, "total", 1e-4),
                _trained(each),
            ]
        )
    return markdown_table(headings, lines)


def _winners(loser: Contender, found: Sequence[Contender]) -> str:
    # A network on moved cases solves the same problems; it beats others as itself, and never itself.
    others = [each for each in found if each.name != loser.name and not each.transformed]
    names = [each.name if each.is_network else f"`{each.name}`" for each in others if defeat(loser, each)]
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


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
        if wild := [each["case"] for each in row["records"] if blown_up(each)]:
            lines.append(f"- `{row['setting']}` blew up in {len(wild)} of {row['cases']} cases, such as {wild[0]}")
    return "\n".join(lines) or "Nothing diverged."


def _error(error: Mapping[str, float]) -> str:
    return f"{error['mse'] / 1e-4:.3g} ± {error['spread'] / 1e-4:.2g}"


def _with_error(error: Mapping[str, float]) -> str:
    return f"{error['mse'] / 1e-4:.3g} ± {error['standard_error'] / 1e-4:.2g}"


def _seconds(value: float) -> str:
    return f"{value:.3g}"


def _times(factor: float) -> str:
    return f"{factor:.3g}" if factor < 1000 else f"{factor:,.0f}"
