"""`penn evaluate`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, BadParameter, Option

from pennpde.cli.conventions import Output, check_device

if TYPE_CHECKING:
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
        str, Argument(help="Name of a shipped network, folder of your own, or weight file of the paper's authors.")
    ],
    dataset: Annotated[Path, Argument(help="Folder of a dataset.")],
    split: Annotated[str, Option(help="Split of the dataset.")] = "test",
    unrelated: Annotated[
        bool,
        Option(
            "--unrelated",
            help="Leave out cases that are a mirror image or a multiple of a training or validation case.",
        ),
    ] = False,
    transformed: Annotated[
        bool, Option("--transformed", help="First apply a random rigid motion to every case.")
    ] = False,
    threads: Annotated[int, Option(min=1, help="CPU threads; the paper uses 1.")] = 1,
    repeats: Annotated[int, Option(min=1, help="Forward calls per case; the fastest counts.")] = 1,
    precision: Annotated[Literal["float32", "float64"], Option(help="Precision of the network.")] = "float32",
    device: Annotated[str, Option(help="Device, such as cpu or cuda.")] = "cpu",
    limit: Annotated[int | None, Option(min=1, help="Use only the first cases.")] = None,
    pictures: Annotated[
        Path | None, Option(help="Folder for pictures of the cases with smallest, median and largest error.")
    ] = None,
) -> dict[str, Any]:
    """Measure a network on a test set: errors as the paper defines them, errors on the conditions, time per case.

    Cases are brought to the network's units as in prediction. A network that takes any time is measured at every
    moment of every case and in its steady state, by relative L2 errors.
    """
    import torch

    from pennlab.evaluation import evaluate, evaluate_moments
    from pennlab.relatives import second_test_set, unrelated_names
    from pennpde.case.moments import moments
    from pennpde.data import storage
    from pennpde.penn.predictor import check_unknowns

    check_device(device)
    network = _network(model, getattr(torch, precision), device)
    manifest = storage.read_manifest(dataset)
    files = list(storage.read_files(dataset, split))
    if unrelated:
        names = set(unrelated_names(manifest, split))
        files = [file for file in files if file.case.name in names]
        if not files:
            raise BadParameter(
                f"--unrelated leaves no case: every case of split {split!r} is related to a training case."
            )
    files = files[:limit]
    if not files:
        raise ValueError(f"Split {split!r} of {dataset} has no cases.")
    check_unknowns(network, files[0].case)
    about = _about(network, model, dataset, split) | {"test_set": second_test_set(manifest, unrelated=unrelated)}
    fields = {}
    how: dict[str, Any] = {
        "threads": threads,
        "about": about,
        "watch": lambda them: output.progress(them, "measuring", total=len(them)),
        "keep": (lambda case, predicted: fields.update({case.name: (case, predicted)})) if pictures else None,
    }
    where = f"{dataset} ({split}{', moved' if transformed else ''})"
    if getattr(network, "takes_times", False) and any(len(moments(file.case, file.times)) > 1 for file in files):
        if transformed:
            raise BadParameter("--transformed is for cases with a single moment.")
        groups = {name: str(entry.facts.get("family", "")) for name, entry in manifest.cases.items()}
        cases = [(file.case, file.times) for file in files]
        record = evaluate_moments(network, cases, groups=groups, **how).to_plain()
        lines = [f"{model} on {len(files)} cases of {where}, relative L2 errors:", *_lines_at_moments(record)]
        named = [(_mean_error(each), each["name"]) for each in record["records"]]
    else:
        cases = _cases_at_own_time(output, network, model, files, manifest.has_frames)
        record = evaluate(network, cases, transformed=transformed, repeats=repeats, **how).to_plain()
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
    from pennlab.targets import judged, known_times

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


def _about(network: Any, model: str, dataset: Path, split: str) -> dict[str, Any]:
    """Origin of network and cases, for the record."""
    from pennlab.paper.budgets import training_in_short
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
        "training": training_in_short(config),
    }


def _network(name: str, dtype: Any, device: str) -> Any:
    from pennpde.checkpoints import CONFIG, WEIGHTS, load_pretrained

    path = Path(name)
    if path.is_file() and path.name not in (CONFIG, WEIGHTS) and path.suffix != ".zip":
        from pennlab.released.weights import load

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
    return [*lines, _seconds(record, "operators", digits=4)]


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
    return [*lines, _seconds(record, "preparation", digits=3)]


def _seconds(record: dict[str, Any], before: str, digits: int) -> str:
    mean, preparing = (f"{record['seconds'][name]:.{digits}f} s" for name in ("mean", "preparation"))
    return f"  {mean} per case on {record['device']} with {record['threads']} threads; {before} {preparing}"


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
    from pennpde.pictures import draw_case

    chosen = {"smallest": ordered[0], "median": ordered[len(ordered) // 2], "largest": ordered[-1]}
    written = []
    for label, (_, name) in chosen.items():
        path = folder / f"{label}_error_{name}.png"
        case, predicted = fields[name]
        draw_case(case, predicted, path)
        written.append(str(path))
    return written
