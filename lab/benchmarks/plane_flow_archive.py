"""Put finished plane flows into archives, for the repository.

    python lab/benchmarks/plane_flow_archive.py OUT data/plane_flow/finished

OUT is a folder of `penn generate plane-flow`, complete or not. Flows that the archives lack go into new ones; those
that are there are not touched.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pennlab.datasets.plane_flow import finished


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("archives", type=Path)
    given = parser.parse_args()
    for path in finished.add(given.dataset, given.archives):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")
    print(f"{len(finished.names(given.archives))} flows, {len(finished.failures(given.archives))} failures")


if __name__ == "__main__":
    main()
