"""How much of the error of the truth comes from the time step, behind bodies that shed eddies.

    python lab/benchmarks/plane_flow_time_step.py [blunt-bodies_0002 ...]

The cells stay the same. Differences are relative and in L2 over the domain, by moment, from two outer correctors at
Courant number 1. Prints and writes `lab/benchmarks/results/plane_flow_time_step.json`; flows that are there are kept.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from pennlab.datasets.plane_flow.flows import draw_flow
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.quality import relative_differences
from pennlab.datasets.plane_flow.truth import Truth, solve

OUTPUT = Path(__file__).parent / "results" / "plane_flow_time_step.json"
BEST = Resolution(courant=1.0, outer_correctors=2)
COMPARED = {
    "one outer corrector, Courant 2": Resolution(),
    "one outer corrector, Courant 1": Resolution(courant=1.0),
    "one outer corrector, Courant 0.5": Resolution(courant=0.5),
    "two outer correctors, Courant 2 (the dataset)": Resolution(outer_correctors=2),
}


def truth(name: str, resolution: Resolution) -> Truth:
    with tempfile.TemporaryDirectory(prefix=f"penn-{name}-") as scratch:
        return solve(draw_flow(name), Path(scratch) / "case", resolution, steady=False)


def main() -> None:
    results: dict[str, Any] = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for name in sys.argv[1:] or ["blunt-bodies_0002"]:
        if name not in results:
            flow, best = draw_flow(name), truth(name, BEST)
            found: dict[str, Any] = {"reynolds": flow.reynolds, "times": list(flow.moments)}
            for title, resolution in COMPARED.items():
                other = truth(name, resolution)
                differences = relative_differences(flow, other, best)
                found[title] = {"u": differences["u"], "p": differences["p_away"], "steps": other.facts["steps"]}
            results[name] = found
            OUTPUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(results[name], indent=1))


if __name__ == "__main__":
    main()
