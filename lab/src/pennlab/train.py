"""`python -m pennlab.train`: training where the dependencies of the command `penn` are missing, as on rented GPUs."""

from __future__ import annotations

import argparse
import logging
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pennlab.plugin  # noqa: F401  (its networks are registered, also where the package is not installed)
from pennpde.train import Start, for_dataset, read_row, run


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m pennlab.train", description="Train a network.")
    parser.add_argument("file", help="TOML file of an experiment, or folder of a dataset")
    parser.add_argument("--row", default="penn")
    parser.add_argument("--data", help="folder of the dataset, where a TOML file is given")
    parser.add_argument("--also", help="folder of a dataset whose training cases are added")
    parser.add_argument("--out", required=True, help="folder for network, state and log")
    parser.add_argument("--from", dest="start", help="network to begin with")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--pause-after", type=float, metavar="MINUTES")
    parser.add_argument("--device")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, in TOML")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    changes = tomllib.loads("\n".join(given.set))
    start = None if given.start is None else Start.of(given.start)
    if Path(given.file).is_dir():
        experiment, data = for_dataset(given.file, start=start, changes=changes, device=given.device), given.file
    else:
        experiment, data = read_row(given.file, given.row, changes), given.data
        if data is None:
            parser.error("--data is needed with a TOML file")
    run(
        experiment,
        data,
        given.out,
        also=given.also,
        start=start,
        resume=given.resume,
        pause_after=given.pause_after,
        device=given.device,
    )


if __name__ == "__main__":
    main()
