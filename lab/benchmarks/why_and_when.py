"""The table of docs/why_and_when.md: flow by flow, how many times as long OpenFOAM takes for the same error.

    python lab/benchmarks/why_and_when.py

It reads what `equal_error.py` has measured (`lab/benchmarks/results/equal_error.json`).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from equal_error import OUTPUT, ROOT, pareto, seconds_at, speed_up

from pennlab.paper.tables import markdown_table, write_within

PAGE = ROOT / "docs" / "why_and_when.md"
LEVELS = ("`flow`, fast", "`flow`, standard", "`flow`, fine")
WORTH = 1.1
"""Times as long from which on a difference is one."""


def times_as_long(flow: dict[str, Any], level: str, unknown: str = "u") -> tuple[float, str]:
    """OpenFOAM's seconds for the error of a level over the level's, within what was run: no curve is continued.

    Where no setting is as accurate as the level, the slowest one is a lower limit, marked by ">"; where all are more
    accurate, the fastest one an upper limit, marked by "<".
    """
    row, curve = flow["levels"][level], pareto(flow["openfoam"].values(), unknown)
    (fastest, largest), (slowest, smallest) = curve[0], curve[-1]
    if row[unknown] < smallest:
        return slowest / row["seconds"], ">"
    if row[unknown] > largest:
        return fastest / row["seconds"], "<"
    return seconds_at(curve, row[unknown]) / row["seconds"], ""


def table(flows: dict[str, Any]) -> str:
    """A row for each flow, those first where the network wins most."""
    rows = []
    for flow in flows.values():
        standard = flow["levels"][LEVELS[1]]
        found = [*(times_as_long(flow, level) for level in LEVELS[:2]), times_as_long(flow, LEVELS[1], "p")]
        shown = [f"{mark} {value:.1f}".strip() for value, mark in found]
        cells = [flow["family"], f"{flow['reynolds']:,}", f"{flow['points']:,}", f"{100 * standard['u']:.1f} %"]
        rows.append((found[0][0], [*cells, f"{standard['seconds']:.1f}", *shown]))
    head = ("shape", "Re", "points", "error of u", "seconds", "fast", "standard", "standard, equal p")
    return markdown_table(head, [cells for _, cells in sorted(rows, key=lambda row: -row[0])])


def sentence(flows: dict[str, Any]) -> str:
    """How often the network wins, by level."""
    parts = []
    for level in LEVELS:
        found = [times_as_long(flow, level) for flow in flows.values()]
        wins = sum(value > WORTH and mark != "<" for value, mark in found)
        losses = sum(value < 1 / WORTH and mark != ">" for value, mark in found)
        beyond = sum(value <= WORTH and mark == ">" for value, mark in found)
        usual = median(speed_up(flow, level) or 0.0 for flow in flows.values())
        name = level.removeprefix("`flow`, ")
        unknown = f"; in {beyond} not known: no setting of OpenFOAM that was run is as accurate" if beyond else ""
        parts.append(
            f"*{name}*: faster in {wins} of {len(found)} flows, slower in {losses}{unknown}. The median is "
            f"{usual:.1f} times as long, with OpenFOAM's most accurate setting where none is as accurate."
        )
    return "At equal error of the velocity:\n\n" + "\n".join(f"- {each}" for each in parts)


def main() -> None:
    """Write table and sentence."""
    flows = json.loads(Path(OUTPUT).read_text(encoding="utf-8"))["flows"]
    made = f"{sentence(flows)}\n\n{table(flows)}"
    print(made)
    write_within(PAGE, made, "flow by flow")


if __name__ == "__main__":
    main()
