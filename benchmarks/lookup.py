"""Errors of look-ups without any network: the floors that trained networks are to be compared with.

    python benchmarks/lookup.py data/flow
    python benchmarks/lookup.py data/advection_diffusion [--data data/advection_diffusion_off_lattice]

Writes benchmarks/results/lookup_DATASET.json; `pennpde.paper.lookup` says what each row is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from pennpde.paper.lookup import measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path, help="dataset whose training cases are looked up")
    parser.add_argument("--data", type=Path, help="dataset whose test cases are wanted, by default the same")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    records = measure(arguments.train, arguments.data)
    for record in records:
        errors = "  ".join(f"{name} {each['mse']:.3e}" for name, each in record["pooled"]["domain"].items())
        print(f"{record['title']:<34} {errors}")
    name = (arguments.data or arguments.train).name
    output = arguments.output or Path(__file__).parent / "results" / f"lookup_{name}.json"
    output.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
