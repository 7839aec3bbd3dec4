"""`penn calibrate`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pennpde.cli.conventions import Output, Plugin, Resolution, predictor

if TYPE_CHECKING:
    from pennpde.train.calibrate import Known, Measured

EXAMPLES = [
    "penn calibrate runs/mine data/mine --split validation",
    "penn calibrate runs/mine data/mine --split validation --split test --json",
    "penn calibrate flow data/plane_flow --split test --every 4 --out calibrated",
]
CACHE = "expected_error.cases.jsonl"


def run(
    output: Output,
    model: Annotated[str, Argument(help="Name of a shipped network, or folder of your own.")],
    datasets: Annotated[
        list[Path],
        Argument(
            metavar="DATASET...",
            help="Datasets with truth. Cases that the network was not trained on.",
        ),
    ],
    split: Annotated[
        list[str] | None, Option(help="Split of the datasets; may be given several times. By default all but train.")
    ] = None,
    every: Annotated[int, Option(min=1, help="Take only every so many-th case.")] = 1,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder for expected_error.json; by default that of the network.")
    ] = None,
    cache: Annotated[
        Path | None, Option(help=f"File for measured cases, to resume; by default {CACHE} in --out.")
    ] = None,
    level: Annotated[
        str | None, Option(help="Of accuracy, for a network that has such: fast, standard or fine.")
    ] = None,
    resolution: Resolution = "auto",
    plugin: Plugin = None,
) -> dict[str, Any]:
    """Learn how wrong a network is, so that its predictions come with an expected error and a grade.

    Predicts cases whose solution is known and records how the error shows in what can be measured without it:
    residuals, roughness, resolution, distance from the training range. Writes expected_error.json next to the weights.
    Prints how often the 90 % bound holds for families of cases that were left out. Resumes an interrupted run.
    """
    for folder in datasets:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no dataset {folder}")

    from pennpde.checkpoints import folder_of
    from pennpde.train import calibrate as calibrating

    network = predictor(model, plugin, "only those can be calibrated")
    if level is not None:
        network.set_level(level)
    target = folder_of(model) if out is None else out
    target.mkdir(parents=True, exist_ok=True)
    left_out: dict[str, str] = {}

    def hear(known: "Known", outcome: "Sequence[Measured] | Exception") -> None:
        if isinstance(outcome, Exception):
            left_out[known.case.name] = str(outcome).splitlines()[0] if str(outcome) else type(outcome).__name__

    try:
        calibration, measured = calibrating.calibrate(
            network,
            output.progress(_cases(datasets, split, every), "predicting"),
            cache=cache or target / (CACHE if level is None else f"{level}_{CACHE}"),
            resolution=resolution,
            on_case=hear,
        )
    finally:  # where nothing could be calibrated, they may be the reason
        for name, why in left_out.items():
            output.warn(f"{name} is left out: {why}")
    found = calibrating.coverage_by_family(measured)
    about = {
        "network": model,
        "datasets": [folder.name for folder in datasets],
        "splits": split or "all but train",
        "every": every,
        "coverage": {family: {"cases": each.cases, **each.covered} for family, each in found.items()},
    }
    path = calibrating.save(target, network, calibration, about)
    output.say(
        f"{model}: {len(measured)} predictions of {len({each.case for each in measured})} cases; each family judged "
        "by the others:",
        *calibrating.table(found),
        calibrating.summary(found),
        f"Written: {path}",
    )
    return {
        "model": model,
        "predictions": len(measured),
        "families": {family: vars(each) for family, each in found.items()},
        "left_out": left_out,
        "written": [str(path)],
    }


def _cases(datasets: Sequence[Path], splits: Sequence[str] | None, every: int) -> "Iterator[Known]":
    from pennpde.data import storage
    from pennpde.train.calibrate import read_dataset

    for folder in datasets:
        for split in splits or [split for split in storage.read_manifest(folder).splits if split != "train"]:
            yield from read_dataset(folder, split, every)
