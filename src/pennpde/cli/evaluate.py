"""`penn evaluate`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli.conventions import Output
from pennpde.cli.devices import check_device

if TYPE_CHECKING:
    from torch import nn

    from pennpde.case import Case
    from pennpde.data.vtkhdf import CaseFile

EXAMPLES = [
    "penn evaluate ducts data/flow",
    "penn evaluate nets/mine data/mine --json",
    "penn evaluate runs/flow data/flow --transformed --json",
    "penn evaluate ducts data/flow --precision float64 --pictures pictures",
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
    """Measure a network on a test set: errors as the paper defines them, errors on the conditions, time per case.

    Cases are brought to the network's units as in prediction. A network that takes any time is measured at every
    moment of every case and in its steady state, by relative L2 errors.
    """
    import torch

    from pennpde.case.moments import moments
    from pennpde.data import storage
    from pennpde.data.content import second_test_set, unrelated_names
    from pennpde.penn.inputs import check_unknowns

    check_device(device)
    network = _network(model, getattr(torch, precision), device)
    manifest = storage.read_manifest(dataset)
    files = list(storage.read_files(dataset, split))
    if unrelated:
        names = set(unrelated_names(manifest, split))
        files = [file for file in files if file.case.name in names]
        if not files:
            raise typer.BadParameter(
                f"--unrelated leaves no case: every case of split {split!r} is related to a training case."
            )
    files = files[:limit]
    if not files:
        raise ValueError(f"Split {split!r} of {dataset} has no cases.")
    check_unknowns(network, files[0].case)
    about = _about(network, model, dataset, split, second_test_set(manifest, unrelated=unrelated))
    fields = {}
    keep = (lambda case, predicted: fields.update({case.name: (case, predicted)})) if pictures else None
    where = f"{dataset} ({split}{', moved' if transformed else ''})"
    if getattr(network, "takes_times", False) and any(len(moments(file.case, file.times)) > 1 for file in files):
        if transformed:
            raise typer.BadParameter("--transformed is for cases with a single moment.")
        groups = {name: str(entry.facts.get("family", "")) for name, entry in manifest.cases.items()}
        record = _at_moments(output, network, files, groups, threads, about, keep)
        lines = [f"{model} on {len(files)} cases of {where}, relative L2 errors:", *_lines_at_moments(record)]
        named = [(_mean_error(each), each["name"]) for each in record["records"]]
    else:
        cases = _cases_at_own_time(output, network, model, files, manifest.has_frames)
        record = _at_own_time(output, network, cases, transformed, threads, repeats, about, keep)
        lines = [f"{model} on {len(cases)} cases of {where}, mean squared errors:", *_lines(record)]
        first = next(iter(record["pooled"]["domain"]))
        named = [(each[first], each["name"]) for each in record["records"]]
    written = _draw(sorted(named), fields, pictures) if pictures else []
    output.say(*lines, *(f"Picture: {path}" for path in written))
    return record


def _cases_at_own_time(
    output: Output, network: Any, model: str, files: "Sequence[CaseFile]", frames: bool
) -> "list[Case]":
    """The cases with the targets that a network of fixed output times predicts."""
    from pennpde.train.examples import judged, known_times

    cases = [case for file in files if (case := judged(network, file, frames=frames)) is not None]
    if not cases:
        own = ", ".join(f"{time:g}" for time in network.output_times)
        known = known_times(network, files)
        shown = ", ".join(f"{time:g}" for time in known[:8]) + (" ..." if len(known) > 8 else "")
        raise ValueError(
            f"{model} predicts t = {own} in its own units (of a flow L/U), but no case has a target then; in these "
            f"units they have t = {shown or 'none'}. Take a network for any time."
        )
    if left_out := len(files) - len(cases):
        output.warn(f"{left_out} of {len(files)} cases have no target at the time that {model} predicts: left out")
    return cases


def _at_own_time(
    output: Output,
    network: Any,
    cases: "Sequence[Case]",
    transformed: bool,
    threads: int,
    repeats: int,
    about: dict[str, Any],
    keep: Any,
) -> dict[str, Any]:
    from pennpde.train import evaluate

    return evaluate(
        network,
        cases,
        transformed=transformed,
        threads=threads,
        repeats=repeats,
        about=about,
        watch=lambda them: output.progress(them, "measuring", total=len(them)),
        keep=keep,
    ).to_plain()


def _at_moments(
    output: Output,
    network: Any,
    files: "Sequence[CaseFile]",
    groups: dict[str, str],
    threads: int,
    about: dict[str, Any],
    keep: Any,
) -> dict[str, Any]:
    from pennpde.train import evaluate_moments

    return evaluate_moments(
        network,
        [(file.case, file.times) for file in files],
        groups=groups,
        threads=threads,
        about=about,
        watch=lambda them: output.progress(them, "measuring", total=len(them)),
        keep=keep,
    ).to_plain()


def _about(network: "nn.Module", model: str, dataset: Path, split: str, test_set: str) -> dict[str, Any]:
    """Origin of network and cases, for the record."""
    from pennpde.checkpoints import config_of
    from pennpde.data import storage
    from pennpde.train import dataset_hash

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
        from pennpde.released.weights import load

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


def _lines_at_moments(record: dict[str, Any]) -> list[str]:
    lines = []
    for group, found in {"": record["relative_l2"], **record["groups"]}.items():
        label = f"{group} ({found['cases']} cases)" if group else "all"
        parts = [f"{name} {_percent(each['mean'])}" for name, each in found["moments"].items()]
        steady = [f"{name} {_percent(value)}" for name, value in found["steady"].items() if name != "cases"]
        parts += [f"steady state ({found['steady']['cases']} cases) {'  '.join(steady)}"] if steady else []
        parts += [f"{found['not_finite']} not finite"] if found["not_finite"] else []
        lines.append(f"  {label:24}{'  '.join(parts)}")
    for each in record["relative_l2"]["by_moment"]:
        errors = "  ".join(f"{n} {_percent(v)}" for n, v in each.items() if n not in ("moment", "cases"))
        lines.append(f"  moment {each['moment']:<3} ({each['cases']} cases)  {errors}")
    seconds = record["seconds"]
    lines.append(
        f"  {seconds['mean']:.3f} s per case on {record['device']} with {record['threads']} threads; preparation "
        f"{seconds['preparation']:.3f} s"
    )
    return lines


def _percent(error: float | None) -> str:
    return "none" if error is None else f"{error:.2%}"


def _mean_error(record: dict[str, Any]) -> float:
    """Over moments and unknowns; what is not a number comes last."""
    series = [value for name, value in record.items() if isinstance(value, list) and name != "times"]
    errors = [error for value in series for error in value] + list(record["steady"].values())
    finite = [error for error in errors if error is not None]
    return sum(finite) / len(finite) if len(finite) == len(errors) and finite else math.inf


def _draw(ordered: "Sequence[tuple[float, str]]", fields: dict[str, Any], folder: Path) -> list[str]:
    """The cases with the smallest, the median and the largest error."""
    from pennpde.error_pictures import draw_case

    chosen = {"smallest": ordered[0], "median": ordered[len(ordered) // 2], "largest": ordered[-1]}
    written = []
    for label, (_, name) in chosen.items():
        path = folder / f"{label}_error_{name}.png"
        case, predicted = fields[name]
        draw_case(case, predicted, path)
        written.append(str(path))
    return written
