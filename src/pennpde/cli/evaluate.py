"""`penn evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from torch import nn

EXAMPLES = [
    "penn evaluate flow data/flow",
    "penn evaluate runs/flow data/flow --transformed --json",
    "penn evaluate flow data/flow --precision float64 --pictures pictures",
]


def run(
    output: Output,
    model: Annotated[
        str,
        typer.Argument(
            help="Name of a shipped network, folder of your own, or weight file of the paper's authors.",
            show_default=False,
        ),
    ],
    dataset: Annotated[Path, typer.Argument(help="Folder of a dataset.", show_default=False)],
    split: Annotated[str, typer.Option(help="Split of the dataset.")] = "test",
    unrelated: Annotated[
        bool,
        typer.Option(
            "--unrelated",
            help="Leave out cases that are a mirror image or a multiple of a training or validation case.",
        ),
    ] = False,
    transformed: Annotated[
        bool, typer.Option("--transformed", help="First apply a random rigid motion to every case.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads; the paper uses 1.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Forward calls per case; the fastest counts.")] = 1,
    precision: Annotated[Literal["float32", "float64"], typer.Option(help="Precision of the network.")] = "float32",
    device: Annotated[str, typer.Option(help="Device, such as cpu or cuda.")] = "cpu",
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first cases.", show_default=False)] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Folder for pictures of the cases with smallest, median and largest error."),
    ] = None,
) -> dict[str, Any]:
    """Measure a network on a test set: errors as the paper defines them, errors on the conditions, time per case."""
    import torch

    from pennpde.datasets import storage
    from pennpde.datasets.relatives import second_test_set, unrelated_names
    from pennpde.evaluation import evaluate

    network = _network(model, getattr(torch, precision), device)
    manifest = storage.read_manifest(dataset)
    cases = storage.read(dataset, split, frames=False)
    if unrelated:
        names = set(unrelated_names(manifest, split))
        cases = [case for case in cases if case.name in names]
        if not cases:
            raise typer.BadParameter(
                f"--unrelated leaves no case: every case of split {split!r} is related to a training case."
            )
    cases = cases[:limit]
    fields = {}
    found = evaluate(
        network,
        cases,
        transformed=transformed,
        threads=threads,
        repeats=repeats,
        about=_about(network, model, dataset, split, second_test_set(manifest, unrelated=unrelated)),
        watch=lambda them: output.progress(them, "measuring", total=len(them)),
        keep=(lambda case, predicted: fields.update({case.name: (case, predicted)})) if pictures else None,
    )
    record = found.to_plain()
    written = _draw(record, fields, pictures) if pictures else []
    output.say(
        f"{model} on {len(cases)} cases of {dataset} ({split}{', moved' if transformed else ''}), mean squared errors:",
        *_lines(record),
        *(f"Picture: {path}" for path in written),
    )
    return record


def _about(network: "nn.Module", model: str, dataset: Path, split: str, test_set: str) -> dict[str, Any]:
    """Origin of network and cases, for the record."""
    from pennpde.checkpoints import config_of
    from pennpde.datasets import storage
    from pennpde.experiments import dataset_hash

    config = config_of(network)
    assert config is not None
    return {
        "model": Path(model).name if Path(model).is_file() else model,
        "row": config.row,
        "title": config.title,
        "paper": config.paper,
        "seed": config.seed,
        "dataset": {
            "kind": storage.read_manifest(dataset).dataset,
            "hash": dataset_hash(dataset),
            "folder": str(dataset),
        },
        "split": split,
        "test_set": test_set,
        "training": config.training_in_short,
    }


def _network(name: str, dtype: Any, device: str) -> Any:
    from pennpde.checkpoints import CONFIG, WEIGHTS, load_pretrained
    from pennpde.packed import is_packed

    path = Path(name)
    if path.is_file() and path.name not in (CONFIG, WEIGHTS) and not is_packed(path):
        from pennpde.paper.released.weights import load

        return load(path).to(device=device, dtype=dtype).eval()
    return load_pretrained(name, dtype=dtype, device=device)


def _lines(record: dict[str, Any]) -> list[str]:
    lines = []
    for name, error in record["pooled"]["domain"].items():
        relative = record["pooled"]["relative_l2"][name]
        by_type = "  ".join(f"{kind} {each['domain'][name]['mse']:.2e}" for kind, each in record["types"].items())
        pooled = f"{error['mse']:.3e} ± {error['standard_error']:.1e}"
        lines.append(f"  {name:5}{pooled}   relative L2 {relative:.2%}   {by_type}".rstrip())
    for what in ("dirichlet", "neumann"):
        for name, error in record["pooled"][what].items():
            lines.append(f"  {name:5}{error['mse']:.3e} ± {error['standard_error']:.1e}   on the {what} boundary")
    seconds = record["seconds"]
    lines.append(
        f"  {seconds['mean']:.4f} s per case on {record['device']} with {record['threads']} threads; operators "
        f"{seconds['preparation']:.4f} s"
    )
    return lines


def _draw(record: dict[str, Any], fields: dict[str, Any], folder: Path) -> list[str]:
    from pennpde.paper.tables import draw_case

    name = next(iter(record["pooled"]["domain"]))
    ordered = sorted(record["records"], key=lambda each: each[name])
    chosen = {"smallest": ordered[0], "median": ordered[len(ordered) // 2], "largest": ordered[-1]}
    written = []
    for label, each in chosen.items():
        path = folder / f"{label}_error_{each['name']}.png"
        case, predicted = fields[each["name"]]
        draw_case(case, predicted, path)
        written.append(str(path))
    return written
