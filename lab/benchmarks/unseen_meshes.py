"""A flow network on meshes of other kinds than its training meshes: the same test cases, remeshed from their runs.

    python lab/benchmarks/unseen_meshes.py --runs FOLDER [--model flow] [--cases 10] [--page docs/unseen_meshes.md]

Prints a table, and writes `lab/benchmarks/results/unseen_meshes.json` and the page of the documentation. Run files
of the
standard profile are taken from the folder (`penn generate flow --runs FOLDER` keeps them there). Where it has none of a
test case, one test case of each type is solved with OpenFOAM, in one to two minutes each. The authors' sample is in
`lab/reference`.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from authors_sample import plane_mesh

import pennpde
from pennlab.datasets.flow import cases as flow
from pennlab.datasets.flow.triangles import smallest_angles, triangle_mesh
from pennlab.datasets.flow.truth import Run
from pennlab.datasets.split_quads import triangulated
from pennlab.errors import Estimate, domain_errors
from pennlab.paper.tables import write_within
from pennpde import testing as rigid_motion
from pennpde.case import Case
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.files import write_json
from pennpde.mesh import Mesh
from pennpde.penn import PENN
from pennpde.prediction import Resolution, predict

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "lab" / "reference"
RESULT = Path(__file__).parent / "results" / "unseen_meshes.json"
PAGE = ROOT / "docs" / "unseen_meshes.md"
RESULTS_PAGE = ROOT / "docs" / "results.md"
"""Has the table once more, between its marks."""
SAMPLED = "a_1.00"
OWN = "the dataset's quads"


def _quads(factor: float) -> Callable[[str], Mesh]:
    return lambda name: flow.coarse_mesh(name, cells_per_length=factor * flow.CELLS_PER_LENGTH)


KINDS: Mapping[str, Callable[[str], Mesh]] = {
    OWN: flow.coarse_mesh,
    "quads without jitter": lambda name: flow.coarse_mesh(name, jitter=0.0),
    "half of the quads split": lambda name: triangulated(flow.coarse_mesh(name), 0.5),
    "all quads split": lambda name: triangulated(flow.coarse_mesh(name)),
    "unstructured triangles": lambda name: triangle_mesh(name, flow.CELLS_PER_LENGTH),
    "quads 1.3 times coarser": _quads(1 / 1.3),
    "quads 1.5 times finer": _quads(1.5),
    "quads twice finer": _quads(2.0),
}
COMPANIONS = ("quads 1.5 times finer", "quads twice finer")
"""Meshes on which the network is judged a second time, as `penn predict` does by default: on a companion."""
MOVED = "the dataset's quads, turned or reflected, and shifted"


def _on_companion(kind: str) -> str:
    return f"{kind}, companion"


ROWS = (*(row for kind in KINDS for row in ((kind, _on_companion(kind)) if kind in COMPANIONS else (kind,))), MOVED)


@dataclass(frozen=True)
class Outcome:
    """What the network did on one case on one mesh."""

    name: str
    mesh: Mesh
    errors: Mapping[str, Estimate]
    growth: float
    diverged: bool
    warnings: tuple[str, ...]
    seconds: Mapping[str, float]


def main() -> None:
    """Measure, print and write the record and the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=ROOT / "data" / "flow" / "runs")
    parser.add_argument("--model", default="ducts")
    parser.add_argument("--cases", type=int, default=10, help="at most so many test cases, of all types")
    parser.add_argument("--sample", type=Path, default=REFERENCE / "samples" / "flow_a1_1.00.npz")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    network = load_pretrained(arguments.model)
    assert isinstance(network, PENN)
    outcomes: dict[str, list[Outcome]] = {kind: [] for kind in ROWS}
    with tempfile.TemporaryDirectory() as scratch:
        for path in run_files(arguments.runs, arguments.cases, Path(scratch)):
            run = flow.read_run(path)
            if not outcomes[OWN]:  # a first prediction loads parts of the libraries, which is no part of its time
                judge(network, flow.case_on_mesh(run, flow.coarse_mesh(str(run.facts["name"]))))
            for kind, mesh in KINDS.items():
                case = flow.case_on_mesh(run, mesh(str(run.facts["name"])))
                outcomes[kind].append(judge(network, case))
                if kind in COMPANIONS:
                    outcomes[_on_companion(kind)].append(judge(network, case, "network"))
            own = flow.case_on_mesh(run, flow.coarse_mesh(str(run.facts["name"])))
            outcomes[MOVED].append(judge(network, rigid_motion.moved([own])[0]))
            print(f"{own.name} measured on {len(outcomes)} meshes")
    config = config_of(network)
    assert config is not None
    record: dict[str, Any] = {
        "model": arguments.model,
        "title": config.title,
        "parameters": config.parameters,
        "trained on": config.dataset,
        "version": pennpde.__version__,
        "machine": f"{platform.processor() or platform.machine()}, 1 thread",
        "errors": "mean squares over all points of all cases in physical units, u over three components, with the "
        "standard error of the mean over points as in the paper",
        "cases": [outcome.name for outcome in outcomes[OWN]],
        "test cases in all": len(flow.splits()["test"]),
        "kinds": {kind: summary(found) for kind, found in outcomes.items()},
    }
    sampled = arguments.runs / f"{SAMPLED}.h5"
    if arguments.sample.exists():
        record["the authors' sample"] = authors(network, arguments.sample, sampled)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output, record)
    arguments.page.write_text(page(record), encoding="utf-8")
    if arguments.page == PAGE:
        write_within(RESULTS_PAGE, tables(record), "unseen meshes")
    print(table(record))


def run_files(folder: Path, number: int, scratch: Path) -> list[Path]:
    """Run files of test cases, of all types in turn; solved again where there are none."""
    names = flow.splits()["test"]
    there = {kind: [name for name in names if name[0] == kind and (folder / f"{name}.h5").exists()] for kind in "abc"}
    if any(there.values()):
        # The first of each type, then the second, and so on; within a type spread over its cases.
        spread = {kind: _spread(of_kind) for kind, of_kind in there.items()}
        longest = max(map(len, spread.values()))
        turns = [of_kind[turn] for turn in range(longest) for of_kind in spread.values() if turn < len(of_kind)]
        return [folder / f"{name}.h5" for name in sorted(turns[:number])]
    solved = []
    for name in [next(name for name in names if name[0] == kind) for kind in "abc"]:
        print(f"{folder} has no run of a test case; solving {name}.")
        flow.solve(name, flow.PROFILES["standard"], scratch / f"{name}.h5")
        solved.append(scratch / f"{name}.h5")
    return solved


def _spread(names: list[str]) -> list[str]:
    """The same names in an order of which every beginning is spread over all of them."""
    golden = (5**0.5 - 1) / 2
    return [names[place] for place in np.argsort([(place * golden) % 1 for place in range(len(names))])]


def judge(network: PENN, case: Case, resolution: Resolution = "own") -> Outcome:
    """Predict as a user does, who has the mesh and the conditions alone, and compare."""
    bare = {name: torch.zeros_like(values) for name, values in case.initial.items()}
    outcome = predict(network, replace(case, initial=bare, features={}, targets={}), resolution=resolution)
    certificate = outcome.certificate
    grown = certificate.behaviour.get("growth of the solver's residual", float("nan"))
    return Outcome(
        case.name,
        case.mesh,
        domain_errors(outcome.fields, case),
        grown,
        certificate.diverged,
        certificate.warnings,
        outcome.seconds,
    )


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """All cases on one kind of mesh."""
    errors = {
        unknown: Estimate.pooled(outcome.errors[unknown] for outcome in outcomes) for unknown in outcomes[0].errors
    }
    triangles = [outcome.mesh for outcome in outcomes if (np.diff(outcome.mesh.offsets) == 3).all()]
    found: dict[str, Any] = {
        "cases": len(outcomes),
        "mean number of points": round(statistics.mean(outcome.mesh.number_of_points for outcome in outcomes)),
        "typical number of neighbours": float(
            np.median(np.concatenate([np.bincount(outcome.mesh.edges[0]) for outcome in outcomes]))
        ),
    }
    if triangles:
        found["smallest angle"] = round(float(min(smallest_angles(mesh).min() for mesh in triangles)), 1)
    return found | {
        "mse": {unknown: estimate.mean for unknown, estimate in errors.items()},
        "standard error": {unknown: estimate.standard_error for unknown, estimate in errors.items()},
        "largest of a case": {unknown: max(outcome.errors[unknown].mean for outcome in outcomes) for unknown in errors},
        "largest growth of the residual": max(outcome.growth for outcome in outcomes),
        "diverged": [outcome.name for outcome in outcomes if outcome.diverged],
        "cases with a warning": [outcome.name for outcome in outcomes if outcome.warnings],
        "warnings of the first of them": next((list(each.warnings) for each in outcomes if each.warnings), []),
        "seconds per case": {
            what: round(statistics.mean(outcome.seconds[what] for outcome in outcomes), 4)
            for what in outcomes[0].seconds
        },
        "records": {
            outcome.name: {
                **{unknown: estimate.mean for unknown, estimate in outcome.errors.items()},
                "growth": outcome.growth,
                "warned": bool(outcome.warnings),
            }
            for outcome in outcomes
        },
    }


def authors(network: PENN, path: Path, run_file: Path) -> dict[str, Any]:
    """The authors' own mesh of a_1.00, against their solution, and against ours at their points."""
    sample = np.load(path)
    mesh = plane_mesh(sample)
    layer = mesh.layer
    assert layer is not None
    theirs = {
        "u": torch.from_numpy(sample["u"][-1][layer, :2]).double(),
        "p": torch.from_numpy(sample["p"][-1][layer]).double(),
    }
    found: dict[str, Any] = {
        "sample": path.name,
        "split of its duct": next(split for split, names in flow.splits().items() if SAMPLED in names),
        "their mesh, against their solution": summary([judge(network, flow.flow_case(mesh, SAMPLED, theirs))]),
    }
    if run_file.exists():
        run = flow.read_run(run_file)
        found["their mesh, against our solution"] = summary([judge(network, _on_their_points(run, mesh))])
        found["our mesh, against our solution"] = summary(
            [judge(network, flow.case_on_mesh(run, flow.coarse_mesh(SAMPLED)))]
        )
    return found


def _on_their_points(run: Run, mesh: Mesh) -> Case:
    return flow.case_on_mesh(run, replace(mesh, layer=None))


# The page


def page(record: Mapping[str, Any]) -> str:
    """The record for people."""
    cases = record["cases"]
    lines = [
        "# Meshes that the network has not seen",
        _wrapped(
            f"The network `{record['model']}` ({record['title']}, "
            f"{record['parameters']:,} parameters) on {len(cases)} "
            f"of the {record['test cases in all']} test cases ({', '.join(cases)}), each remeshed in several ways, "
            "with the reference interpolated from the same OpenFOAM run. Errors are mean squared errors over all "
            "points, u over three components, as in the [results](results.md)."
        ),
        table(record),
        _wrapped(
            "Warned: number of cases with a warning in the certificate, which does not know the reference. Growth: "
            "last residual of the neural solver over its first, the largest of all cases. s: seconds per case of the "
            "network; s before: seconds for distances, potential flow, operators and companion mesh. Measured on "
            f"{record['machine']}."
        ),
        _wrapped(
            "Companion: the network ran on triangles of its own cell size that fill the same duct, and its fields were "
            "interpolated to the finer mesh. `penn predict` does so by default if a mesh is unlike the training "
            "meshes. In all other rows the network ran on the mesh itself (`--resolution own`). More in the "
            "[tutorial](tutorial.md)."
        ),
        _wrapped(
            "`pennlab.datasets.split_quads` splits each quad along one of its diagonals, chosen at random. The "
            "unstructured triangles (`pennlab.datasets.flow.triangles`) have random points at the spacing of the "
            "quads, a Delaunay triangulation, and smoothing; their smallest angle is "
            f"{record['kinds']['unstructured triangles']['smallest angle']:.0f} degrees."
        ),
        *_warnings(record),
        *(_sample(record["the authors' sample"]) if "the authors' sample" in record else []),
        "This command makes `lab/benchmarks/results/unseen_meshes.json` and this page from the runs of the dataset:",
        "```sh\npython lab/benchmarks/unseen_meshes.py --runs /scratch/flow_runs\n```",
    ]
    return "\n\n".join(lines) + "\n"


def tables(record: Mapping[str, Any]) -> str:
    """The numbers of the page, without its words."""
    sample = _sample(record["the authors' sample"])[1:3] if "the authors' sample" in record else []
    return "\n\n".join([table(record), *sample]) + "\n"


def _wrapped(text: str, hanging: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)


def table(record: Mapping[str, Any]) -> str:
    """One row for each kind of mesh."""
    rows = [
        "| mesh | points | neighbours | u (×10⁻⁴) | p (×10⁻³) | worst case u, p | growth | warned | s | s before |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join(rows + [_row(kind, found) for kind, found in record["kinds"].items()])


def _row(kind: str, found: Mapping[str, Any]) -> str:
    worst, seconds = found["largest of a case"], found["seconds per case"]
    verdict = f"{len(found['cases with a warning'])} of {found['cases']}"
    if found["diverged"]:
        verdict += f", {len(found['diverged'])} diverged"
    cells = [
        kind,
        str(found["mean number of points"]),
        f"{found['typical number of neighbours']:g}",
        f"{found['mse']['u'] / 1e-4:.2f} ± {found['standard error']['u'] / 1e-4:.2f}",
        f"{found['mse']['p'] / 1e-3:.2f} ± {found['standard error']['p'] / 1e-3:.2f}",
        f"{worst['u'] / 1e-4:.2f}, {worst['p'] / 1e-3:.2f}",
        f"{found['largest growth of the residual']:.2g}",
        verdict,
        f"{seconds['network']:.2f}",
        f"{seconds['prepare'] + seconds['operators'] + seconds.get('companion', 0.0):.2f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _warnings(record: Mapping[str, Any]) -> list[str]:
    told = {kind: found["warnings of the first of them"] for kind, found in record["kinds"].items()}
    told = {kind: sentences for kind, sentences in told.items() if sentences}
    if not told:
        return []
    sentences = [_wrapped(f"- {kind}: {' '.join(sentences)}", "  ") for kind, sentences in told.items()]
    quiet = [each for found in record["kinds"].values() for each in found["records"].values() if not each["warned"]]
    trusted = (
        f"On all meshes together, {len(quiet)} predictions have no warning; the largest errors among them are "
        f"{max(each['u'] for each in quiet):.1e} in u and {max(each['p'] for each in quiet):.1e} in p."
        if quiet
        else "Every prediction has a warning."
    )
    return [
        _wrapped(trusted),
        "Warnings of the certificate, for the first case of each row that has one:",
        "\n".join(sentences),
    ]


def _sample(found: Mapping[str, Any]) -> list[str]:
    rows = [
        "| | points | u (×10⁻⁴) | p (×10⁻³) | growth | warned |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, each in found.items():
        if isinstance(each, Mapping):
            growth = each["largest growth of the residual"]
            errors = f"{each['mse']['u'] / 1e-4:.2f} | {each['mse']['p'] / 1e-3:.2f}"
            warned = "yes" if each["cases with a warning"] else "no"
            rows.append(f"| {name} | {each['mean number of points']} | {errors} | {growth:.2g} | {warned} |")
    lines = [
        "## The authors' mesh",
        _wrapped(
            f"The authors' published mesh of {SAMPLED} (a shape of our {found['split of its duct']} set) consists of "
            "hexahedra and wedges, one cell thick. The network runs on its plane layer of quads and triangles."
        ),
        "\n".join(rows),
    ]
    sentences = found["their mesh, against their solution"]["warnings of the first of them"]
    return [*lines, *([_wrapped(f"The certificate says: {' '.join(sentences)}")] if sentences else [])]


if __name__ == "__main__":
    main()
