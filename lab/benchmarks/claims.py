"""Every row against the full PENN, on test cases without relatives in training, by Welch's test over seeds.

    python lab/benchmarks/claims.py        # writes lab/benchmarks/results/claims.json and the table in docs/results.md

Errors are pooled mean squares, of u and p together in flow and of T in advection-diffusion, compared by their
logarithms: seeds of a row differ by factors. Flow is judged on the 16 test cases without mirror image in training,
advection-diffusion on 36 cases off the training lattice; its 120 test cases are multiples of training cases and are
shown, those without diffusion apart, but decide nothing. "better" and "worse" need p < 0.05. A row or a PENN with a
single seed is taken to scatter as much as the row that scatters most (two degrees of freedom): what is decided so is
not close. Series of rows, such as fewer and fewer iterations, are judged by the logarithms of their steps. A row that
is short decides nothing.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import t as student
from scipy.stats import ttest_1samp, ttest_ind

from pennlab.paper.tables import markdown_table, write_within
from pennpde.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "lab" / "records"
RESULT = Path(__file__).parent / "results" / "claims.json"
PAGE = ROOT / "docs" / "results.md"
LIMIT = 0.05

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Problem:
    """Rows of one problem, and the sets that they are judged on.

    Attributes:
        folder: of the records.
        unknowns: whose errors count together.
        steps: of a whole training.
        judged: the file of a record on the cases without relatives, after the seed.
        rows: those of the paper's ablations and sizes, and what else is compared with PENN.
    """

    folder: str
    unknowns: tuple[str, ...]
    steps: int
    judged: str
    rows: tuple[str, ...]


MP_PDE = ("mp_pde_20_128", "mp_pde_20_64", "mp_pde_10_128", "mp_pde_10_64", "mp_pde_4_128", "mp_pde_2_32")
PROBLEMS = (
    Problem(
        "flow",
        ("u", "p"),
        20_000,
        "unrelated",
        (*"ABCDEFG", "w0", "n16_r4", "n8_r8", "n8_r4", "n4_r8", "n4_r4", *MP_PDE),
    ),
    Problem("advection_diffusion", ("T",), 12_000, "off_lattice", ("A", "B", "C", "D", "E", "F", "G")),
)


SERIES: Mapping[str, Sequence[tuple[str, str]]] = {
    "fewer iterations": (("penn", "n16_r4"), ("n8_r8", "n8_r4"), ("n4_r8", "n4_r4")),
    "fewer channels": (("penn", "n8_r8"), ("n8_r8", "n4_r8"), ("n16_r4", "n8_r4"), ("n8_r4", "n4_r4")),
    "shorter windows of MP-PDE": (
        ("mp_pde_20_128", "mp_pde_10_128"),
        ("mp_pde_10_128", "mp_pde_4_128"),
        ("mp_pde_20_64", "mp_pde_10_64"),
    ),
}
"""Pairs of rows, the one that should be better first."""


def read(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))


def seeds(problem: Problem, row: str, suffix: str) -> list[Record]:
    """The whole trainings of a row that were evaluated on a set: "" for the test set, else the name of another."""
    folder = RECORDS / problem.folder / row
    found = [read(path) for path in sorted(folder.glob(f"[0-9]{suffix and '.' + suffix}.json"))]
    return [record for record in found if record.get("training", {}).get("steps", 0) >= problem.steps]


def pooled(record: Record, problem: Problem) -> float:
    return sum(record["pooled"]["domain"][name]["mse"] for name in problem.unknowns)


def without_diffusion(record: Record) -> bool:
    """Of a case of advection-diffusion, by its name, such as u0.50_d0.00_t0.30."""
    return "_d0.00_" in record["name"]


def mean_over(cases: Iterable[Record], wanted: Callable[[Record], bool]) -> float:
    chosen = [case["T"] for case in cases if wanted(case)]
    return statistics.fmean(chosen) if chosen else math.nan


def welch(one: Sequence[float], other: Sequence[float], widest: float) -> float:
    """P of equal means of the logarithms, single seeds with the widest scatter that any row has."""
    first, second = ([math.log(value) for value in values] for values in (one, other))
    if min(len(one), len(other)) > 1:
        return float(ttest_ind(first, second, equal_var=False)[1])  # pyright: ignore[reportArgumentType]
    apart = abs(statistics.fmean(first) - statistics.fmean(second))
    return float(2 * student.sf(apart / (widest * math.sqrt(1 / len(one) + 1 / len(other))), 2))


def widest_scatter() -> float:
    """The largest standard deviation of the logarithms of a row with three seeds."""
    scatters = []
    for problem in PROBLEMS:
        for row in ("penn", *problem.rows):
            values = [math.log(pooled(record, problem)) for record in seeds(problem, row, problem.judged)]
            scatters += [statistics.stdev(values)] if len(values) > 2 else []
    return max(scatters)


def series(errors: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's statements on sizes: by how much the error grows from step to step of several series."""
    found = {}
    for name, rows in SERIES.items():
        steps = [math.log(errors[worse]["mean"] / errors[better]["mean"]) for better, worse in rows]
        p = float(ttest_1samp(steps, 0.0)[1])  # pyright: ignore[reportArgumentType]
        ratio = math.exp(statistics.fmean(steps))
        found[name] = {"steps": len(steps), "over": ratio, "p": p, "verdict": verdict(ratio, p)}
    return found


def verdict(ratio: float, p: float) -> str:
    if p >= LIMIT:
        return "not decided"
    return "worse" if ratio > 1 else "better"


def judged(problem: Problem, widest: float) -> dict[str, Any]:
    """By row its errors on the judged set, the ratio to PENN's, Welch's p and what follows."""
    full = [pooled(record, problem) for record in seeds(problem, "penn", problem.judged)]
    found: dict[str, Any] = {}
    for row in ("penn", *problem.rows):
        values = [pooled(record, problem) for record in seeds(problem, row, problem.judged)]
        tested = seeds(problem, row, "")
        if not values:
            continue
        told: dict[str, Any] = {"seeds": len(values), "errors": values, "mean": statistics.fmean(values)}
        told["test_set"] = statistics.fmean(pooled(record, problem) for record in tested)
        if problem.folder == "advection_diffusion":
            for name, without in (("with_diffusion", False), ("without_diffusion", True)):
                told[name] = statistics.fmean(
                    mean_over(record["records"], lambda case, w=without: without_diffusion(case) == w)
                    for record in tested
                )
        if row != "penn":
            ratio = math.exp(statistics.fmean(map(math.log, values)) - statistics.fmean(map(math.log, full)))
            p = welch(values, full, widest)
            told |= {"over_penn": ratio, "p": p, "verdict": verdict(ratio, p)}
        found[row] = told
    return found


def authors() -> dict[str, Any]:
    """The authors' weights on our cases of advection-diffusion."""
    problem, found = PROBLEMS[1], {}
    for folder in sorted((RECORDS / problem.folder).glob("authors*")):
        row = folder.name.partition("_")[2] or "penn"
        sets = {"test_set": "0.json", "off_lattice": f"0.{problem.judged}.json"}
        found[row] = {name: pooled(read(folder / file), problem) for name, file in sets.items()}
    for row, told in found.items():
        if row != "penn":
            told |= {f"{name}_over_penn": told[name] / found["penn"][name] for name in ("test_set", "off_lattice")}
    return found


def table(result: Mapping[str, Any]) -> str:
    parts = []
    for problem in PROBLEMS:
        rows = []
        for row, told in result[problem.folder].items():
            spread = ""
            if told["seeds"] > 1:
                spread = f" ± {statistics.stdev(told['errors']):.1e}"
            p = told.get("p")
            cells = [row, str(told["seeds"]), f"{told['mean']:.2e}{spread}", f"{told['test_set']:.2e}"]
            if problem.folder == "advection_diffusion":
                cells += [f"{told['without_diffusion']:.2e}"]
            ratio = told.get("over_penn")
            cells += ["" if ratio is None else f"{ratio:.3g}", "" if p is None else f"{p:.2g}", told.get("verdict", "")]
            rows.append(cells)
        headings = ["row", "seeds", f"judged ({problem.judged})", "test set"]
        headings += ["of it D = 0"] if problem.folder == "advection_diffusion" else []
        headings += ["over PENN", "Welch's p", "verdict"]
        parts += [f"**{problem.folder.replace('_', '-')}**", markdown_table(headings, rows)]
    rows = [
        [name, str(told["steps"]), f"{told['over']:.3g}", f"{told['p']:.2g}", told["verdict"]]
        for name, told in result["series"].items()
    ]
    parts.append(markdown_table(["series", "steps", "error over that before", "p", "verdict"], rows))
    rows = [
        [row, *(f"{told[name]:.2e}" for name in ("test_set", "off_lattice"))]
        + [f"{told[name]:.2g}" if name in told else "" for name in ("test_set_over_penn", "off_lattice_over_penn")]
        for row, told in result["authors"].items()
    ]
    headings = ["authors' weights", "120 test cases", "off the lattice", "over their PENN", "the same, off the lattice"]
    return "\n\n".join([*parts, markdown_table(headings, rows)])


def main() -> None:
    widest = widest_scatter()
    result = {problem.folder: judged(problem, widest) for problem in PROBLEMS}
    result |= {"series": series(result["flow"]), "authors": authors(), "widest_scatter": widest}
    write_json(RESULT, result)
    write_within(PAGE, "\n" + table(result) + "\n", "claims")
    print(table(result))


if __name__ == "__main__":
    main()
