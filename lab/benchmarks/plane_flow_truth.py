"""How good the truth of the plane flows is: one flow of each family with half the spacing and half the time step.

    python lab/benchmarks/plane_flow_truth.py                        compute what is missing, the cheapest flows first
    python lab/benchmarks/plane_flow_truth.py --only jet_0000        compute some of them, if they are missing
    python lab/benchmarks/plane_flow_truth.py --collect quality.json take over what was computed on another machine
    python lab/benchmarks/plane_flow_truth.py --table                only the table, from what is there

A comparison takes 1 to 30 minutes of one core. Each is kept as soon as it is there, so the script can be stopped and
started again. One that was computed with another coupling in time than the dataset has now is missing, too; it stays in
the table, and is marked there, until it is computed again. Prints a table, and writes it into `docs/plane_flow.md` and
all numbers into `lab/benchmarks/results/plane_flow_truth.json`.

Differences are relative and in L2 over the domain, the largest over the moments of the flow. Where the prescribed
velocity jumps, as between a lid and a wall, the pressure has a pole, and its L2 norm depends on the mesh;
`p_away` leaves out a tenth of a width around such corners. `u_determined` is the largest difference of u over the
moments that twice the spacing changes by no more than 4 % (`lab/benchmarks/plane_flow_sensitivity.py --compared`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pennlab.datasets.plane_flow import sensitivity
from pennlab.datasets.plane_flow.cost import expected_seconds
from pennlab.datasets.plane_flow.flows import draw_flow
from pennlab.datasets.plane_flow.foam import OUTER_CORRECTORS, Resolution
from pennlab.datasets.plane_flow.quality import compare, compared_flows
from pennlab.paper.tables import within

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plane_flow.md"
OUTPUT = Path(__file__).parent / "results" / "plane_flow_truth.json"
ARCHIVES = PAGE.parents[2] / "data" / "plane_flow" / "finished"
LIMIT = 0.02
"""No family may differ by more in u, at its determined moments."""
_COLUMNS = ("u", "p", "p_away", "steady_u", "steady_p", "steady_p_away")


def collected(path: Path) -> dict[str, Any]:
    """Comparisons that were computed elsewhere: by "quality-FLOW", what `compare` returned under "quality"."""
    content = json.loads(path.read_text())
    found = {name.removeprefix("quality-"): entry for name, entry in content.items()}
    return {
        name: entry["quality"] if "quality" in entry else {"error": entry["error"]} for name, entry in found.items()
    }


def without_seconds(result: Mapping[str, Any]) -> dict[str, Any]:
    """Times of runs on several machines under different loads say nothing."""
    return {
        key: {name: each for name, each in value.items() if not name.startswith("seconds")}
        if key in ("coarse", "fine")
        else value
        for key, value in result.items()
    }


def is_current(name: str, result: Mapping[str, Any]) -> bool:
    """Whether a comparison is there, with the outer correctors that the flow has in the dataset."""
    had = result.get("coarse", {}).get("outer_correctors", OUTER_CORRECTORS)
    return "u" in result and had == Resolution.of(draw_flow(name)).outer_correctors


def determined(result: Mapping[str, Any]) -> float | None:
    """The largest difference of u over moments that are determined; None: there are none, or it was not measured."""
    pairs = zip(result["times"], result["u"], strict=True)
    kept = [difference for time, difference in pairs if sensitivity.determined(ARCHIVES, result["name"], time)]
    return max(kept, default=None)


def summary(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By family the largest differences, and over all families the largest and the mean."""
    families: dict[str, Any] = {}
    for result in results.values():
        if "error" not in result and is_current(result["name"], result):
            found = {key: max(result[key]) for key in _COLUMNS if key in result}
            known = determined(result)
            families[result["family"]] = found | ({} if known is None else {"u_determined": known})
    over_all = {
        key: {
            "families": sum(key in found for found in families.values()),
            "mean": round(sum(found[key] for found in families.values() if key in found) / count, 5),
            "largest": max(found[key] for found in families.values() if key in found),
        }
        for key in (*_COLUMNS, "u_determined")
        if (count := sum(key in found for found in families.values()))
    }
    return {"families": families, "over_all": over_all, "above_limit": _above(families)}


def _above(families: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [
        name
        for name, found in families.items()
        if max(found.get("u_determined", found["u"]), found.get("steady_u", 0.0)) > LIMIT
    ]


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """All comparisons, in Markdown; differences in per cent."""
    titles = ("flow", "Re", "cells", "u, determined", "u", "p", "p away from jumps")
    titles += ("steady u", "steady p", "steady p away from jumps")
    rows = [f"| {' | '.join(titles)} |", "| --- |" + " ---: |" * (len(titles) - 1)]
    for name, result in results.items():
        if "error" in result:
            rows.append(f"| `{name}` | {result['error']} |" + " |" * (len(titles) - 2))
            continue
        known = determined(result)
        numbers = ["–" if known is None else f"{100 * known:.2f}"]
        numbers += [f"{100 * max(result[key]):.2f}" if key in result else "–" for key in _COLUMNS]
        cells = f"{result['coarse']['cells']:,} / {result['fine']['cells']:,}"
        old = "" if is_current(name, result) else ", one outer corrector"
        rows.append(f"| `{name}`{old} | {result['reynolds']:g} | {cells} | {' | '.join(numbers)} |")
    return "\n".join(rows)


def words(results: Mapping[str, Mapping[str, Any]], wanted: list[str]) -> str:
    """What the table does not have, and what it has above the limit."""
    missing = [f"`{name}`" for name in wanted if "u" not in results.get(name, {})]
    above = [
        f"`{results[name]['name']}`"
        for name in results
        if results[name].get("family") in summary(results)["above_limit"]
    ]
    said = f"Missing, being expensive: {', '.join(missing)}. " if missing else ""
    return (
        said
        + f"Above {100 * LIMIT:g} % in u at determined moments or in the steady state: {', '.join(above) or 'none'}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--collect", type=Path, help="quality.json of another machine; nothing is computed")
    parser.add_argument("--only", nargs="+", help="flows to compute")
    parser.add_argument("--table", action="store_true", help="compute nothing")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    results: dict[str, Any] = json.loads(given.output.read_text())["flows"] if given.output.exists() else {}
    wanted = compared_flows()
    if given.collect is not None:
        results |= {name: without_seconds(entry) for name, entry in collected(given.collect).items()}
    elif not given.table:
        missing = [name for name in given.only or wanted if not is_current(name, results.get(name, {}))]
        for name in sorted(missing, key=lambda name: expected_seconds(draw_flow(name))):
            with tempfile.TemporaryDirectory(prefix=f"penn-{name}-") as scratch:
                results[name] = without_seconds(compare(draw_flow(name), Path(scratch)))
            _write(given.output, results, wanted)
            print(name, {key: results[name].get(key) for key in _COLUMNS}, flush=True)
    _write(given.output, results, wanted)
    print(table(results))
    if given.output == OUTPUT:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            within(page, f"{table(results)}\n\n{words(results, wanted)}\n", "truth", required=True), encoding="utf-8"
        )
    print(json.dumps(summary(results)["over_all"], indent=1))


def _write(path: Path, results: Mapping[str, Any], wanted: list[str]) -> None:
    places = {name: place for place, name in enumerate(wanted)}
    ordered = dict(sorted(results.items(), key=lambda item: places.get(item[0], len(places))))
    missing = [name for name in wanted if not is_current(name, results.get(name, {}))]
    content = {**summary(results), "missing": missing, "flows": ordered}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
