"""OpenFOAM in many settings on the test cases of the flow dataset: error and time of each.

Each run leaves one small JSON file, written all at once, and a second start makes what is missing. A run that diverges
is also a result and is kept. The error is that of the networks: at the points of the dataset's coarse mesh,
against its truth, interpolated as the truth was, with the prescribed values where some are prescribed.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennlab import running
from pennlab.datasets.fine_mesh import FineMesh
from pennlab.datasets.flow import truth as flow_truth
from pennlab.datasets.flow.cases import fields_at
from pennlab.errors import Estimate, domain_errors
from pennlab.paper.machine import load, machine
from pennlab.paper.openfoam_sweep.settings import FAMILIES, Planned, Setting
from pennlab.paper.tables import paper_numbers
from pennpde import __version__, openfoam
from pennpde.case import Case
from pennpde.data import storage
from pennpde.files import write_atomically, write_json
from pennpde.models.designs import duct

KIND, RUN_KIND = "openfoam sweep", "openfoam run"
RECORD, TABLE = "openfoam_sweep.json", "openfoam_sweep.md"
MOST_ADAPTIVE_STEPS = 20_000
"""A time step that adapts to a flow that blows up shrinks for ever."""

BLOWN_UP = 0.2
"""Error of u and p together from which on a run that ended is no solution: the start field itself has 0.195."""

QUIET = 2.5
"""Load of the machine up to which times on the wall count; those of the solver are the processor's at any load."""

Result = dict[str, Any]
Measure = Callable[[Case, Setting], Result]


class OtherResultError(ValueError):
    """A stored result belongs to another truth, other settings or another OpenFOAM."""


@dataclass(frozen=True, eq=False)
class TestSet:
    """Cases of a flow dataset, in an order whose beginning is a fair choice from all of them."""

    __test__ = False  # no test of pytest's

    cases: tuple[Case, ...]
    hashes: Mapping[str, str]
    """By case, the SHA-256 of its own file: the truth that errors refer to."""
    truth: Mapping[str, Any]
    """Cells per unit length and time step of the truth, if the dataset records them."""
    seen: tuple[str, ...] = ()
    """Those that are no test cases: networks may have been trained on them."""

    @staticmethod
    def read(folder: Path | str, only: Sequence[str] = (), limit: int | None = None) -> TestSet:
        """The test cases of a dataset, or others that are named."""
        manifest = storage.read_manifest(folder)
        if manifest.dataset != "flow":
            raise ValueError(f"{folder} is a dataset of {manifest.dataset!r}; OpenFOAM is compared on one of 'flow'.")
        if missing := [name for name in only if name not in manifest.cases]:
            raise KeyError(f"{folder} has no case {missing[0]!r}; it has {', '.join(list(manifest.cases)[:5])} ...")
        names = list(only) or manifest.names("test")
        if not only and (waiting := [name for name in manifest.splits["test"] if name not in manifest.cases]):
            raise storage.DatasetError(
                f"{folder} lacks {len(waiting)} of its test cases, the first is {waiting[0]!r}. Start `penn generate` "
                "again, which makes what is missing, or name cases with --only."
            )
        chosen = interleaved(names)[:limit]
        cases = []
        for name in chosen:
            case = storage.read_file(folder, name, manifest).case
            if case.targets["u"].ndim != 2:
                raise ValueError(f"{folder} holds all frames; the comparison takes a dataset without --frames.")
            cases.append(case)
        hashes = {name: manifest.cases[name].sha256 for name in chosen}
        truth = dict(manifest.settings.get("solver", {}).get("profile", {}))
        return TestSet(tuple(cases), hashes, truth, tuple(set(chosen) - set(manifest.splits.get("test", ()))))


def interleaved(names: Iterable[str]) -> list[str]:
    """Names in an order that takes the types of ducts in turn, and those of one type in a random but fixed order."""
    types: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: zlib.crc32(name.encode())):
        types.setdefault(name[0], []).append(name)
    queues = [types[kind] for kind in sorted(types)]
    longest = max(map(len, queues), default=0)
    return [queue[place] for place in range(longest) for queue in queues if place < len(queue)]


def measure(
    case: Case,
    setting: Setting,
    installation: running.Installation | None = None,
    keep: Callable[[dict[str, Tensor]], None] | None = None,
) -> Result:
    """Solve one case in one setting: its error and its times, or that it diverged.

    The solver's time on the wall contains all of its process: reading the mesh, all steps, writing the last one. `keep`
    is given the fields at the case's points.
    """
    found: Result = {"outcome": "finished", "machine": machine(), "load": load()}
    seconds: dict[str, float] = {}
    steps = 0
    programs = ("blockMesh", "potentialFoam", setting.program)
    with running.workplace(programs, installation, prefix="penn-bench-") as place:
        setting.write(place.folder, duct(case.name))

        def count(progress: running.Progress) -> None:
            nonlocal steps
            steps += 1
            if setting.courant is not None and steps > MOST_ADAPTIVE_STEPS:
                raise running.DivergenceError(
                    f"{setting.program} diverged: at time {progress.time:g} it had taken {steps} steps."
                )

        begin = time.perf_counter()
        try:
            place.run("blockMesh")
            seconds["mesh"] = time.perf_counter() - begin
            begin = time.perf_counter()
            mesh = flow_truth.start_from_potential_flow(place.folder, place.installation)
            seconds["potential_flow"] = time.perf_counter() - begin
            begin, begin_cpu = time.perf_counter(), _cpu_seconds()
            progress = place.run(setting.program, on_progress=count)
            seconds["solve"] = time.perf_counter() - begin
            seconds["solve_cpu"] = _cpu_seconds() - begin_cpu
            fields = _fields_on(case, _last_frame(place.folder, mesh))
            if keep is not None:
                keep(fields)
            found["errors"] = errors_of(fields, case)
            found["largest_courant"] = progress.largest_courant
            found["cells"] = mesh.number_of_cells
        except running.DivergenceError as error:
            seconds["until_divergence"] = time.perf_counter() - begin
            # The first sentence; the others are advice, and the folder is gone.
            reason = str(error).splitlines()[0].replace(f" in {place.folder}", "").partition(". ")[0].rstrip(".")
            found |= {"outcome": "diverged", "reason": reason}
    return found | {"steps": steps, "seconds": {name: round(value, 4) for name, value in seconds.items()}}


def _last_frame(folder: Path, mesh: openfoam.PolyMesh) -> flow_truth.Run:
    last = openfoam.time_folders(folder)[-1]
    if abs(float(last.name) - flow_truth.END_TIME) > 1e-6:
        raise running.OpenFOAMError(f"OpenFOAM ended at t = {last.name}; {flow_truth.END_TIME:g} is expected.")
    velocity = openfoam.read_field(last / "U").values(mesh.number_of_cells)[:, :2]
    pressure = openfoam.read_field(last / "p").values(mesh.number_of_cells)
    if not (np.isfinite(velocity).all() and np.isfinite(pressure).all()):
        raise running.DivergenceError("The fields at the end are not finite.")
    times = np.array([flow_truth.END_TIME])
    return flow_truth.Run(FineMesh.of(mesh), times, velocity[None], pressure[None], {})


def _fields_on(case: Case, run: flow_truth.Run) -> dict[str, Tensor]:
    """The last frame of a run at the points of a case, prescribed values as prescribed."""
    u, p = fields_at(run, case.mesh.points.numpy())
    fields = {"u": torch.from_numpy(u[..., -1]), "p": torch.from_numpy(p[..., -1])}
    return {name: case.dirichlet[name].apply(values) for name, values in fields.items()}


def errors_of(fields: Mapping[str, Tensor], case: Case) -> dict[str, dict[str, Any]]:
    """By unknown, the mean squared error against the case's targets."""
    return {name: plain(estimate) for name, estimate in domain_errors(fields, case).items()}


def _cpu_seconds() -> float:
    """Of all processes that this one has started and seen end. OpenFOAM's own count leaves out how it is loaded."""
    spent = os.times()
    return spent.children_user + spent.children_system


def sweep(
    test_set: TestSet,
    plan: Sequence[Planned],
    runs: Path | str,
    *,
    measure: Measure = measure,
    solver: str = "",
    about: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    watch: Callable[[Sequence[tuple[Case, Setting]]], Iterable[tuple[Case, Setting]]] | None = None,
) -> dict[str, Any]:
    """Measure all settings of a plan on their cases, one after the other, and gather what the runs came to.

    Args:
        test_set: the cases; a setting that is limited takes the first of them.
        plan: the settings.
        runs: folder of the results, one file a run; what is there is not measured again.
        measure: solves one case in one setting.
        solver: name and version of the program that `measure` runs; results of another are refused.
        about: goes into the record as it is.
        known: an earlier record, whose runs against the same truth by the same solver are taken over.
        watch: wraps what is left to measure, for a progress bar.
    """
    runs = Path(runs)
    earlier = {} if known is None else _runs_of(known, test_set, solver)
    wanted = [(case, each.setting) for each in plan for case in test_set.cases[: each.cases]]
    results: dict[tuple[str, str], Result] = {}
    left = []
    for case, setting in wanted:
        path = runs / setting.name / f"{case.name}.json"
        stored = _stored(path, _identity(case, setting, test_set, solver)) or earlier.get((case.name, setting.name))
        if stored is None:
            left.append((case, setting))
        else:
            results[case.name, setting.name] = stored
    for case, setting in watch(left) if watch else left:
        result = _identity(case, setting, test_set, solver) | {"version": __version__} | measure(case, setting)
        path = runs / setting.name / f"{case.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, result, indent=1)
        results[case.name, setting.name] = result
    rows = []
    for each in plan:
        same = [results[case.name, each.setting.name] for case in test_set.cases[: each.cases]]
        rows.append(_row(each.setting, same, test_set))
    return {
        "kind": KIND,
        "version": __version__,
        **(about or {}),
        "solver": solver,
        "machines": _distinct(each for result in results.values() for each in _machines(result, known)),
        "threads": 1,
        "truth": test_set.truth,
        "cases": test_set.hashes,
        "no_test_cases": sorted(test_set.seen),
        "runs": {"settings": len(plan), "all": len(results), "diverged": sum(map(_diverged, results.values()))},
        "seconds": sum(_whole_time(result) for result in results.values()),
        "rows": rows,
    }


def _identity(case: Case, setting: Setting, test_set: TestSet, solver: str) -> Result:
    """What a result must agree in with what is asked for."""
    return {
        "kind": RUN_KIND,
        "case": case.name,
        "setting": setting.name,
        "truth_sha256": test_set.hashes[case.name],
        "solver": solver,
        "dictionaries": json.loads(json.dumps(setting.dictionaries())),
    }


def read_result(path: Path) -> Any:
    """What was measured and kept; None where nothing was."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None  # damaged after it was written: measured once more


def differing(result: Any, identity: Mapping[str, Any]) -> list[str]:
    """In what a kept result is not the one that is asked for."""
    return [name for name, value in identity.items() if not isinstance(result, dict) or result.get(name) != value]


def _stored(path: Path, identity: Result) -> Result | None:
    result = read_result(path)
    if result is None:
        return None
    if others := differing(result, identity):
        raise OtherResultError(
            f"{path} is a result of another {others[0].replace('_', ' ')} than is asked for now. Choose another "
            "folder with --runs, or remove it."
        )
    return result


def _runs_of(record: Mapping[str, Any], test_set: TestSet, solver: str) -> dict[tuple[str, str], Result]:
    """By case and setting, the runs of a record: not of another solver, and not against another truth."""
    if record["solver"] != solver:
        raise OtherResultError(f"The known runs are those of {record['solver']}, but {solver} is asked for now.")
    others = [name for name, found in test_set.hashes.items() if record["cases"].get(name, found) != found]
    if others:
        raise OtherResultError(f"The known runs of {others[0]} were measured against another truth than the dataset's.")
    return {(run["case"], row["setting"]): run for row in record["rows"] for run in row["records"]}


def _machines(result: Result, known: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
    """Where a run was measured; a record names its machines once for all runs."""
    return [result["machine"]] if "machine" in result else known["machines"] if known else []


def _diverged(result: Mapping[str, Any]) -> bool:
    return result["outcome"] == "diverged"


def quiet(result: Mapping[str, Any]) -> bool:
    """Whether little else ran at the same time."""
    return (result.get("load") or 0.0) <= QUIET


def blown_up(result: Mapping[str, Any]) -> bool:
    """Whether a run ended with fields that are finite and have nothing to do with the flow."""
    return not _diverged(result) and result["errors"]["u"]["mse"] + result["errors"]["p"]["mse"] > BLOWN_UP


def _whole_time(result: Result) -> float:
    return sum(value for name, value in result["seconds"].items() if name != "solve_cpu")


def _distinct(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for item in items:
        if item not in found:
            found.append(item)
    return found


def _row(setting: Setting, results: Sequence[Result], test_set: TestSet) -> dict[str, Any]:
    """What the runs of one setting came to."""
    finished = [result for result in results if not (_diverged(result) or blown_up(result))]
    family = FAMILIES[setting.family]
    return {
        "setting": setting.name,
        "about": family.about,
        "program": family.program,
        "cells_per_length": setting.cells,
        "time_step": setting.time_step,
        "courant": setting.courant,
        "mesh_of_the_truth": setting.cells == test_set.truth.get("cells"),
        "cases": len(results),
        "of": len(test_set.cases),
        "diverged": [result["case"] for result in results if _diverged(result)],
        "blown_up": [result["case"] for result in results if blown_up(result)],
        "errors": summarised_errors([result["errors"] for result in finished]) if finished else None,
        "seconds": _seconds_of(finished) if finished else None,
        "paper": printed_row(setting),
        "records": [_short(result) for result in results],
    }


def _seconds_of(finished: Sequence[Result]) -> dict[str, dict[str, float]]:
    """Times over cases; of meshing and potential flow, known on the wall only, without runs on a busy machine."""
    undisturbed = [result for result in finished if quiet(result)] or finished
    chosen = {"solve": finished, "solve_cpu": finished, "mesh": undisturbed, "potential_flow": undisturbed}
    return {name: over_cases([each["seconds"][name] for each in runs]) for name, runs in chosen.items()}


def _short(result: Result) -> dict[str, Any]:
    names = ("case", "outcome", "reason", "errors", "seconds", "steps", "cells", "largest_courant", "load")
    return {name: result[name] for name in names if name in result}


def printed_row(setting: Setting) -> dict[str, Any] | None:
    """The paper's row of the same solvers and resolution: its total error, and seconds on its machine."""
    for row in paper_numbers()["openfoam"]:
        solvers = (row["solver_u"], row["solver_p"])
        resolution = (row["cells_per_length"], row["time_step"])
        if solvers == FAMILIES[setting.family].paper and resolution == (setting.cells, setting.time_step):
            return {"total": row["total"], "seconds": row["seconds"]}
    return None


# Errors and times over cases


def plain(estimate: Estimate) -> dict[str, Any]:
    return {"mse": estimate.mean, "standard_error": estimate.standard_error, "count": estimate.count}


def over_cases(values: Sequence[float]) -> dict[str, float]:
    """Mean, and standard deviation over cases."""
    return {"mean": statistics.fmean(values), "spread": statistics.stdev(values) if len(values) > 1 else 0.0}


def summarised_errors(errors: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, float]]:
    """By unknown, the mean over all points, its standard error as the paper has it, and the spread over cases.

    `total` is the sum of the mean squared errors of u and p, as in the paper's tables.
    """
    found: dict[str, dict[str, float]] = {}
    for name in ("u", "p"):
        pooled = Estimate.pooled(_estimate(each[name]) for each in errors)
        spread = over_cases([each[name]["mse"] for each in errors])["spread"]
        found[name] = {"mse": pooled.mean, "standard_error": pooled.standard_error, "spread": spread}
    both = [each["u"]["mse"] + each["p"]["mse"] for each in errors]
    found["total"] = {
        "mse": found["u"]["mse"] + found["p"]["mse"],
        "standard_error": math.hypot(found["u"]["standard_error"], found["p"]["standard_error"]),
        "spread": over_cases(both)["spread"],
    }
    return found


def total_error(errors: Sequence[Mapping[str, Mapping[str, Any]]]) -> float:
    """The mean squared error `total` of `summarised_errors`, which takes much longer for its spreads."""
    return sum(Estimate.pooled(_estimate(each[name]) for each in errors).mean for name in ("u", "p"))


def _estimate(error: Mapping[str, Any]) -> Estimate:
    return Estimate(error["mse"], (error["standard_error"] * error["count"]) ** 2, error["count"])


# The record on disk


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record with one line for each entry of a list: people read it, and git compares it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _laid_out(record) + "\n")


def _laid_out(value: Any, indent: str = "", depth: int = 4) -> str:
    """JSON in which small things stand on one line."""
    flat = json.dumps(value, allow_nan=False, ensure_ascii=False)
    if depth == 0 or len(indent) + len(flat) <= 116 or not isinstance(value, Mapping | list | tuple):
        return flat
    inner = indent + "  "
    if isinstance(value, Mapping):
        parts = [f"{inner}{json.dumps(key)}: {_laid_out(item, inner, depth - 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _laid_out(item, inner, depth - 1) for item in value) + f"\n{indent}]"


def read_record(path: Path | str, kind: str, made_by: str) -> dict[str, Any]:
    """A record of a kind; the error says which command makes one."""
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}.") from error
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise ValueError(f"{path} is not a record of kind {kind!r}; `{made_by}` makes one.")
    return record
