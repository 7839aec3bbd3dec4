"""The truth of the trials: one change at a time on the step of `penn demo`, each computed by OpenFOAM.

    python lab/benchmarks/trials_truth.py                      make what is missing of data/trials
    python lab/benchmarks/trials_truth.py --only tee square    some of them

A trial takes about a minute of one core. What is there is kept, so the script can be stopped and started again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pennlab.datasets.generate import generate
from pennlab.datasets.plane_flow.trials import TrialsRecipe
from pennpde.data.workers import Status

FOLDER = Path(__file__).resolve().parents[2] / "data" / "trials"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=(), help="names of trials")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the dataset")
    arguments = parser.parse_args()
    finished = -1

    def tell(status: Status) -> None:
        nonlocal finished
        if status.done != finished:
            finished = status.done
            print(f"{status.done} of {status.total} done, {status.failed} failed", flush=True)

    outcome = generate(TrialsRecipe(), arguments.out, only=arguments.only, workers=0, on_progress=tell)
    for name, why in outcome.failed.items():
        print(f"{name}: {why}")


if __name__ == "__main__":
    main()
