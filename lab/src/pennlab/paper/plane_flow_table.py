"""The table of the plane flows' test sets: every rival on the same cases, by time, and where the network loses.

A rival is a mapping from cases to `{"seconds": ..., "errors": {moment: {"u": ..., "p": ...}}}`; moments are called by
their time, or `steady`. Whatever is printed is a mean over cases of the mean over their moments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any

from pennlab.datasets.plane_flow import flows
from pennlab.paper.plane_flow_errors import STEADY
from pennlab.paper.tables import markdown_table

SPLITS = {
    "test": "trained families",
    "test-unseen-families": "unseen families",
    "test-unseen-reynolds": "unseen Reynolds numbers",
}
Cases = Mapping[str, Mapping[str, Any]]


def settings(tuning: Mapping[str, Cases]) -> str:
    """OpenFOAM's settings on validation flows. Means are over the flows that all of them solve.

    The hard flows are those that a coarse setting fails on: without them its mean would look better than others'.
    """
    common = [
        flow for flow in next(iter(tuning.values())) if all("errors" in rows.get(flow, {}) for rows in tuning.values())
    ]
    rows = []
    for setting, of_flows in tuning.items():
        errors = {
            name: mean(
                mean(mean(row[name] for row in moments.values()) for moments in of_flows[flow]["errors"].values())
                for flow in common
            )
            for name in "up"
        }
        seconds = mean(of_flows[flow]["programs"] for flow in common)
        solved = f"{sum('errors' in each for each in of_flows.values())} of {len(of_flows)}"
        rows.append([setting, solved, f"{100 * errors['u']:.2f} / {100 * errors['p']:.1f}", f"{seconds:.1f}"])
    head = ("spacing, in that of the truth", "flows solved", f"u / p, %, on {len(common)} flows", "seconds")
    return markdown_table(head, rows)


@dataclass(frozen=True)
class Group:
    """Moments that a column is about: later than `low`, up to `high`, or steady states; `determined` or not."""

    title: str
    low: float = 0.0
    high: float = math.inf
    steady: bool | None = None
    determined: bool | None = None

    def has(self, moment: str, determined: bool | None) -> bool:
        if self.determined is not None and determined is not self.determined:
            return False
        if moment == STEADY:
            return self.steady is not False
        return self.steady is not True and self.low < float(moment) <= self.high


def groups(*, judged: bool) -> list[Group]:
    """The columns; where moments were judged, those by time are of determined ones only."""
    only = True if judged else None
    by_time = [
        Group("t ≤ 1", 0.0, 1.0, steady=False, determined=only),
        Group("1 < t ≤ 4.5", 1.0, 4.5, steady=False, determined=only),
        Group("t > 4.5", 4.5, math.inf, steady=False, determined=only),
        Group("steady", steady=True, determined=only),
    ]
    if not judged:
        return [Group("all"), *by_time]
    return [Group("all"), Group("determined", determined=True), *by_time, Group("undetermined", determined=False)]


@dataclass(frozen=True)
class Comparison:
    """All rivals on the cases that all of them have.

    Attributes:
        rivals: by title; the network comes last.
        missing: titles of rivals that have no results yet; the table says so.
        sensitivity: what `sensitivity.json` says of flows, and the limit; None: nothing is known.
    """

    rivals: Mapping[str, Cases]
    missing: Sequence[str] = ()
    sensitivity: Mapping[str, Any] | None = None
    _cases: dict[str, list[str]] = field(default_factory=dict)

    @property
    def ours(self) -> str:
        return list(self.rivals)[-1]

    def cases(self, split: str) -> list[str]:
        """Cases of a split that every rival has."""
        if split not in self._cases:
            common = set.intersection(*(set(each) for each in self.rivals.values()))
            self._cases[split] = sorted(name for name in common if flows.split_of(name.partition(".")[0]) == split)
        return self._cases[split]

    def determined(self, case: str, moment: str) -> bool | None:
        """Whether twice the spacing changes the truth's u by little; None: not known."""
        if self.sensitivity is None:
            return None
        known, limit = self.sensitivity["flows"].get(case.partition(".")[0], {}), self.sensitivity["limit"]
        if "error" in known or "times" not in known:
            return None
        if moment == STEADY:
            # With larger cells the flow may not settle at all.
            return known["steady_u"] is not None and known["steady_u"] <= limit if "steady_u" in known else None
        at = [value for time, value in zip(known["times"], known["u"], strict=True) if abs(time - float(moment)) < 1e-6]
        return at[0] <= limit if at else None

    def of_cases(self, rival: str, split: str, group: Group, name: str) -> dict[str, float]:
        """By case that has such moments, the mean error."""
        found = {}
        for case in self.cases(split):
            moments = self.rivals[rival][case]["errors"]
            chosen = [row[name] for when, row in moments.items() if group.has(when, self.determined(case, when))]
            if chosen:
                found[case] = mean(chosen)
        return found

    def seconds(self, rival: str, split: str) -> float:
        return mean(self.rivals[rival][case]["seconds"] for case in self.cases(split))

    @property
    def columns(self) -> list[Group]:
        return groups(judged=self.sensitivity is not None)

    def table(self) -> str:
        """Rows are rivals, in each set of flows; cells are u / p in per cent, the best u and the best p in bold."""
        rows = []
        for split, title in SPLITS.items():
            if not self.cases(split):
                continue
            cells = [self._cells(split, group, mean) for group in self.columns]
            cells.append(self._cells(split, self.columns[0], median))
            for rival in self.rivals:
                seconds = self.seconds(rival, split)
                spent = f"{seconds:.1f}" if seconds >= 0.05 else f"{seconds:.2f}"
                rows.append([title, rival, spent, *(each[rival] for each in cells)])
            rows += [[title, rival, "not yet", *("–" for _ in cells)] for rival in self.missing]
            counts = [len(self.of_cases(self.ours, split, group, "u")) for group in self.columns]
            rows.append([title, "*number of cases*", "", *map(str, counts), str(counts[0])])
        head = ("flows", "", "seconds", *(group.title for group in self.columns), "all, median")
        return markdown_table(head, rows)

    def _cells(self, split: str, group: Group, over: Callable[[Sequence[float]], float]) -> dict[str, str]:
        errors = {
            rival: [over(list(each.values())) for name in "up" if (each := self.of_cases(rival, split, group, name))]
            for rival in self.rivals
        }
        if not all(errors.values()):
            return dict.fromkeys(self.rivals, "–")
        shown = {rival: [f"{100 * each:.1f}" for each in pair] for rival, pair in errors.items()}
        best = [min(float(pair[place]) for pair in shown.values()) for place in range(2)]
        return {
            rival: " / ".join(f"**{each}**" if float(each) == best[place] else each for place, each in enumerate(pair))
            for rival, pair in shown.items()
        }

    def losses(self, worst: int = 8) -> str:
        """Where a rival is better than the network: columns of the table, numbers of cases, and the worst cases."""
        lines = []
        for rival in list(self.rivals)[:-1]:
            better = {
                name: [
                    f"{title} ({', '.join(where)})"
                    for split, title in SPLITS.items()
                    if (where := self._lost(rival, split, name))
                ]
                for name in "up"
            }
            own, other = self._overall(self.ours), self._overall(rival)
            count = sum(other[case] < own[case] for case in own)
            named = "; ".join(f"{name} of {', '.join(each)}" for name, each in better.items() if each)
            lines.append(
                f"- **{rival}** has the smaller error of u in {count} of {len(own)} cases, and on average "
                f"{f'in {named}' if named else 'nowhere'}."
            )
        own = self._overall(self.ours)
        named = sorted(own, key=lambda case: -own[case])[:worst]
        lines.append(
            "- The network's largest errors of u: "
            + ", ".join(f"`{case}` {100 * own[case]:.0f} %" for case in named)
            + "."
        )
        return "\n".join(lines) + "\n"

    def _lost(self, rival: str, split: str, name: str) -> list[str]:
        """Columns in which a rival is better by what the table shows."""
        lost = []
        for group in self.columns:
            mine, theirs = (self.of_cases(each, split, group, name).values() for each in (self.ours, rival))
            if mine and round(100 * mean(theirs), 1) < round(100 * mean(mine), 1):
                lost.append(group.title)
        return lost

    def _overall(self, rival: str) -> dict[str, float]:
        """By case, the error of u over all of its moments."""
        of_splits = [self.of_cases(rival, split, self.columns[0], "u") for split in SPLITS]
        return {case: error for each in of_splits for case, error in each.items()}
