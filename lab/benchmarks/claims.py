"""Errors of all rows in one number, the numbers behind the paper's claims in `docs/results.md`.

    python lab/benchmarks/claims.py

For flow u and p together, mean and standard deviation over seeds of equal steps; their ratio to PENN's.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from pennlab.paper.tables import markdown_table, read_records

ROOT = Path(__file__).resolve().parents[2]
UNKNOWNS = {"flow": ("u", "p"), "advection-diffusion": ("T",)}
REFERENCE = {"flow": "PENN n = 16, r = 8, 20000 steps", "advection-diffusion": "PENN, 12000 steps"}


def totals(kind: str) -> dict[str, list[float]]:
    """By title and steps, the total error of each seed on the test set as it is."""
    found: dict[str, list[float]] = {}
    for record in read_records([ROOT / "lab" / "records"]):
        if record["dataset"]["kind"] != kind or record["transformed"] or record.get("test_set"):
            continue
        steps = record.get("training", {}).get("steps")
        title = f"{record['title']}, {steps} steps" if steps else record["title"]
        total = sum(record["pooled"]["domain"][name]["mse"] for name in UNKNOWNS[kind])
        found.setdefault(title, []).append(total)
    return found


def main() -> None:
    for kind in UNKNOWNS:
        found = totals(kind)
        whole = statistics.fmean(found[REFERENCE[kind]])
        rows = []
        for title, values in sorted(found.items()):
            spread = f" ± {statistics.stdev(values):.1e}" if len(values) > 1 else ""
            mean = statistics.fmean(values)
            rows.append([title, str(len(values)), f"{mean:.2e}{spread}", f"{mean / whole:.3g}"])
        print(f"{kind}\n\n{markdown_table(['row', 'seeds', 'error', 'over PENN'], rows)}\n")


if __name__ == "__main__":
    main()
