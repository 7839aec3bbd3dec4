"""`penn calibrate`."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli.conventions import Output

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
    model: Annotated[str, typer.Argument(help="Name of a shipped network, or folder of your own.", show_default=False)],
    datasets: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATASET...",
            help="Datasets with truth. Cases that the network was not trained on.",
            show_default=False,
        ),
    ],
    split: Annotated[
        list[str] | None,
        typer.Option(help="Split of the datasets; may be given several times. By default all but train."),
    ] = None,
    every: Annotated[int, typer.Option(min=1, help="Take only every so many-th case.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for expected_error.json; by default that of the network.", show_default=False),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(help=f"File for measured cases, to resume; by default {CACHE} in --out.", show_default=False),
    ] = None,
    resolution: Annotated[
        Literal["auto", "own", "network"], typer.Option(help="Mesh to predict on, as for penn predict.")
    ] = "auto",
    plugin: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py", help="Python file or module that registers your own networks.", show_default=False
        ),
    ] = None,
) -> dict[str, Any]:
    """Learn how wrong a network is, so that its predictions come with an expected error and a grade.

    Predicts cases whose solution is known and records how the error shows in what can be measured without it:
    residuals, roughness, resolution, distance from the training range. Writes expected_error.json next to the weights.
    Prints how often the 90 % bound holds for families of cases that were left out. Resumes an interrupted run.
    """
    for folder in datasets:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no dataset {folder}")

    from pennpde.checkpoints import folder_of, load_pretrained
    from pennpde.penn import Predictor
    from pennpde.registry import load_plugin
    from pennpde.train import calibrate as calibrating

    if plugin is not None:
        load_plugin(plugin)
    network = load_pretrained(model)
    if not isinstance(network, Predictor):
        raise ValueError(f"{model} is a {type(network).__name__}, which is no Predictor; only those can be calibrated")
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
            cache=cache or target / CACHE,
            resolution=resolution,
            on_case=hear,
        )
    except ValueError:
        for name, why in left_out.items():  # they may be the reason
            output.warn(f"{name} is left out: {why}")
        raise
    found = calibrating.coverage_by_family(measured)
    about = {
        "network": model,
        "datasets": [folder.name for folder in datasets],
        "splits": split or "all but train",
        "every": every,
        "coverage": {family: {"cases": each.cases, **each.covered} for family, each in found.items()},
    }
    path = calibrating.save(target, network, calibration, about)
    for name, why in left_out.items():
        output.warn(f"{name} is left out: {why}")
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
