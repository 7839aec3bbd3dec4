"""Networks compared with OpenFOAM: error against seconds on one core, and which beats which.

Networks are timed as OpenFOAM is: one case after the other, one thread. What comes before, for a network the distances,
the potential flow and the operators, for OpenFOAM the mesh and the potential flow, is measured and stated apart. A
network's time is that of the forward call, in a process that has loaded it; OpenFOAM's that of its whole process. Both
are processor times, which other programs on the machine hardly change.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pennlab.motions import moved
from pennlab.paper.budgets import marked, told_apart, training_in_short
from pennlab.paper.machine import load, machine
from pennlab.paper.openfoam_sweep.sweep import (
    TestSet,
    blown_up,
    differing,
    errors_of,
    over_cases,
    quiet,
    read_result,
    summarised_errors,
    total_error,
    write_record,
)
from pennlab.paper.tables import WHOLE_STEPS, Timed, paper_numbers
from pennpde import __version__
from pennpde.case import Case
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.models.designs import flow_case

KIND = "speed-accuracy trade-off"
RECORD, TABLE, FIGURE = "tradeoff.json", "tradeoff.md", "tradeoff.png"
PRECISION = torch.float32
REPEATS = 5
LONG = 3.0
"""Seconds of a first call after which a case is not called again: its time is known well enough."""


# Measuring


def compare(
    test_set: TestSet,
    models: Sequence[str],
    openfoam: Mapping[str, Any],
    *,
    runs: Path | str | None = None,
    repeats: int = REPEATS,
    about: Mapping[str, Any] | None = None,
    known: Mapping[str, Any] | None = None,
    watch: Callable[[Sequence[Case], str], Iterable[Case]] | None = None,
) -> dict[str, Any]:
    """Measure networks on the cases of a sweep of OpenFOAM, as they are and each moved rigidly, and put both together.

    A large message passing network takes ten minutes for the cases: what was measured is kept, and used again where
    weights, cases, machine and all that matters for times are the same.

    Args:
        test_set: the cases, those of the sweep.
        models: names of networks that come with the package, or folders.
        openfoam: the record of the sweep.
        runs: folder with one file for each network; None: nothing is kept.
        repeats: forward calls a case; their median counts.
        about: goes into the record as it is.
        known: an earlier record on the same cases. Its networks stay, except those with the title of one that is
            measured now, and so do its times of preparation. Where such a network has as many parameters as before,
            only its weights are new: for each case the shorter of both times counts, because other programs on the
            machine only lengthen them.
        watch: wraps the cases, with a word on what is done, for a progress bar.
    """
    _check_same_truth(test_set, openfoam)
    loaded = {model: load_pretrained(model, dtype=PRECISION) for model in models}
    show = watch or (lambda cases, _: cases)
    begin = load()
    with _one_thread(), torch.no_grad():
        unprepared = test_set.cases if known is None else ()
        preparation = {case.name: _preparation(case) for case in show(unprepared, "preparing")}
        networks = []
        for model, network in loaded.items():
            for transformed in (False, True):
                identity = _identity(network, transformed, test_set, repeats)
                path = Path(runs) / _file_name(model, transformed) if runs is not None else None
                records = _stored(path, identity)
                if records is None:
                    cases = moved(test_set.cases) if transformed else list(test_set.cases)
                    words = f"{model}, moved" if transformed else model
                    records = [_timed(network, case, repeats) for case in show(_warm(network, cases), words)]
                    if path is not None:
                        write_record(path, identity | {"records": records})
                networks.append(_row(model, network, transformed, records))
    if known is not None:
        here = {"machine": machine(), "load": begin}
        return _with_networks(with_openfoam(known, openfoam), [row | here for row in networks])
    return {
        "kind": KIND,
        "version": __version__,
        **(about or {}),
        "machine": machine(),
        "load": begin,
        "threads": 1,
        "precision": str(PRECISION).removeprefix("torch."),
        "repeats": repeats,
        "torch": torch.__version__,
        "cases": test_set.hashes,
        "preparation": preparation,
        "networks": networks,
        "openfoam": {name: value for name, value in openfoam.items() if name != "kind"},
    }


def with_openfoam(record: Mapping[str, Any], openfoam: Mapping[str, Any]) -> dict[str, Any]:
    """The networks of a record next to another record of OpenFOAM, on the same cases and against the same truth."""
    if dict(record["cases"]) != dict(openfoam["cases"]):
        raise ValueError(
            "The networks and OpenFOAM were measured on other cases, or against another truth. Measure the networks "
            "again: `penn bench tradeoff --data ... --models ... --openfoam ...`."
        )
    return {**record, "openfoam": {name: value for name, value in openfoam.items() if name != "kind"}}


def _with_networks(record: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    before = {(row["title"], row["transformed"], row["parameters"]): row for row in record["networks"]}
    measured = []
    for row in rows:
        earlier = before.get((row["title"], row["transformed"], row["parameters"]))
        measured.append(row if earlier is None else _with_shorter_times(row, earlier))
    titles = {row["title"] for row in rows}
    return {**record, "networks": [*measured, *(row for row in record["networks"] if row["title"] not in titles)]}


def _with_shorter_times(row: dict[str, Any], earlier: Mapping[str, Any]) -> dict[str, Any]:
    times = {each["case"]: each["seconds"] for each in earlier["records"]}
    records = [each | {"seconds": _shorter(each["seconds"], times[each["case"]])} for each in row["records"]]
    return row | {"seconds": over_cases([each["seconds"]["solve"] for each in records]), "records": records}


def _shorter(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Of two measurements: the shorter call, and what the first call took longer where that is less."""
    call = min(one, other, key=lambda seconds: seconds["solve_cpu"])
    longer = max(0.0, min(seconds["first_call"] - seconds["solve"] for seconds in (one, other)))
    return {**call, "first_call": round(call["solve"] + longer, 6)}


def _identity(network: nn.Module, transformed: bool, test_set: TestSet, repeats: int) -> dict[str, Any]:
    """What has to be the same for a measurement to hold."""
    config = config_of(network)
    return {
        "version": __version__,
        "network": {"kind": config.network, "arguments": dict(config.arguments)} if config else {},
        "weights_sha256": config.weights_sha256 if config else "",
        "transformed": transformed,
        "cases": dict(test_set.hashes),
        "machine": machine(),
        "torch": torch.__version__,
        "precision": str(PRECISION).removeprefix("torch."),
        "repeats": repeats,
    }


def _file_name(model: str, transformed: bool) -> str:
    plain_name = re.sub(r"[^A-Za-z0-9._-]+", "_", model).strip("._") or "network"
    return f"{plain_name}{'_moved' if transformed else ''}.json"


def _stored(path: Path | None, identity: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    kept = read_result(path) if path is not None else None
    if kept is None or differing(kept, identity):
        return None  # other weights, another machine: its times say nothing here
    return kept["records"]


def _check_same_truth(test_set: TestSet, openfoam: Mapping[str, Any]) -> None:
    for name, found in test_set.hashes.items():
        if openfoam["cases"].get(name) != found:
            raise ValueError(
                f"The sweep of OpenFOAM was measured against another truth than the dataset has, see {name!r}. Run "
                "`penn bench openfoam` on this dataset, or give the dataset that the sweep was made with."
            )


def _preparation(case: Case) -> dict[str, float]:
    """Seconds from a mesh to all that a network takes, on a mesh that has worked out nothing yet."""
    bare = replace(case.mesh)
    begin = time.perf_counter()
    problem = flow_case(bare, case.name)
    ready = time.perf_counter()
    _ = problem.to(PRECISION).operators
    return {"problem": ready - begin, "operators": time.perf_counter() - ready}


def _warm(network: nn.Module, cases: Sequence[Case]) -> Sequence[Case]:
    """The first call of all pays for memory and kernels, which no case should be charged with."""
    network(replace(cases[0]).to(PRECISION))
    return cases


def _timed(network: nn.Module, case: Case, repeats: int) -> dict[str, Any]:
    # A copy, whose operators go with it; those of all cases would fill the memory.
    prepared = replace(case).to(PRECISION)
    seconds, worked, fields = [], [], {}
    for _ in range(repeats + 1):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        fields = network(prepared)
        seconds.append(time.perf_counter() - begin)
        worked.append(time.process_time() - begin_cpu)
        if seconds[0] > LONG:
            break
    found = {name: values.double() for name, values in fields.items()}
    # The first call is apart: a network with a graph of its own makes it then. One that takes long says enough by it.
    counted = slice(1 if len(seconds) > 1 else 0, None)
    times = {"solve": seconds[counted], "solve_cpu": worked[counted], "first_call": seconds[:1]}
    times = {name: round(statistics.median(values), 6) for name, values in times.items()}
    if not all(bool(values.isfinite().all()) for values in found.values()):
        return {"case": case.name, "outcome": "diverged", "seconds": times}
    return {"case": case.name, "outcome": "finished", "errors": errors_of(found, case), "seconds": times}


def _row(model: str, network: nn.Module, transformed: bool, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    config = config_of(network)
    finished = [record for record in records if record["outcome"] == "finished"]
    return {
        "model": model,
        "row": config.row if config else "",
        "title": (config.title if config else "") or model,
        "weights_sha256": config.weights_sha256 if config else "",
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "training": training_in_short(config) if config else {},
        "paper": _printed(config.paper if config else "", transformed),
        "transformed": transformed,
        "diverged": [record["case"] for record in records if record["outcome"] == "diverged"],
        "errors": summarised_errors([record["errors"] for record in finished]) if finished else None,
        "seconds": over_cases([record["seconds"]["solve"] for record in records]),
        "records": list(records),
    }


def _printed(row: str, transformed: bool) -> dict[str, Any] | None:
    """What the paper says of the same network: the total error, None where it diverged."""
    printed = paper_numbers()["flow"].get(row, {})
    printed = printed.get("transformed", {}) if transformed else printed
    if "u" not in printed:
        return None
    return {"total": None if printed["u"] is None else [printed["u"][0] + printed["p"][0]]}


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# Judging


@dataclass(frozen=True)
class Contender:
    """A network or a setting of OpenFOAM, case by case.

    Attributes:
        name: as tables and figures call it.
        is_network: or a setting of OpenFOAM.
        transformed: whether the cases were moved rigidly.
        errors: by case, those of u and p.
        seconds: by case, of the processor for the forward call or the solver.
        preparation: by case, of what has to be done before.
        diverged: cases without a result, or with one that has blown up.
        row: of the record.
    """

    name: str
    is_network: bool
    transformed: bool
    errors: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seconds: Mapping[str, float]
    preparation: Mapping[str, float]
    diverged: tuple[str, ...]
    row: Mapping[str, Any]

    @property
    def cases(self) -> list[str]:
        return list(self.errors)

    def total(self, cases: Sequence[str]) -> float:
        """Mean squared error of u and p together, over all points of some cases."""
        return total_error([self.errors[case] for case in cases])

    def time(self, cases: Sequence[str], prepared: bool = True) -> float:
        """Mean seconds per case; with preparation, unless `prepared`."""
        return statistics.fmean(self.seconds[case] + (0.0 if prepared else self.preparation[case]) for case in cases)

    @property
    def time_error(self) -> float:
        """The standard error of the mean seconds per case; zero where there is one case."""
        values = list(self.seconds.values())
        return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def contenders(record: Mapping[str, Any]) -> list[Contender]:
    """Networks first, then OpenFOAM; settings that diverged everywhere have no cases."""
    found = []
    names = _names([row for row in record["networks"] if not row["transformed"]])
    for row in record["networks"]:
        title = names.get(row["model"], str(row["title"]))
        records = {each["case"]: each for each in row["records"] if each["outcome"] == "finished"}
        before = {
            name: sum(record["preparation"][name].values())
            + max(0.0, each["seconds"]["first_call"] - each["seconds"]["solve"])
            for name, each in records.items()
        }
        errors = {name: each["errors"] for name, each in records.items()}
        seconds = {name: each["seconds"]["solve_cpu"] for name, each in records.items()}
        found.append(Contender(title, True, row["transformed"], errors, seconds, before, tuple(row["diverged"]), row))
    for row in record["openfoam"]["rows"]:
        failed = tuple(each["case"] for each in row["records"] if each["outcome"] == "diverged" or blown_up(each))
        ended = {each["case"]: each for each in row["records"] if each["case"] not in failed}
        errors = {name: each["errors"] for name, each in ended.items()}
        seconds = {name: each["seconds"]["solve_cpu"] for name, each in ended.items()}
        mean = sum(row["seconds"][part]["mean"] for part in ("mesh", "potential_flow")) if row["seconds"] else 0.0
        before = {
            # On a busy machine a time on the wall says nothing; that of the row's other cases does.
            name: each["seconds"]["mesh"] + each["seconds"]["potential_flow"] if quiet(each) else mean
            for name, each in ended.items()
        }
        found.append(Contender(row["setting"], False, False, errors, seconds, before, failed, row))
    return found


def times_of_networks(record: Mapping[str, Any]) -> dict[str, Timed]:
    """By title, processor seconds per case; of several seeds, over all of their cases."""
    found: dict[str, list[float]] = {}
    for row in record["networks"]:
        if not row["transformed"]:
            found.setdefault(str(row["title"]), []).extend(each["seconds"]["solve_cpu"] for each in row["records"])
    processor = str(record["machine"]["system"]).split()[-1]
    return {
        title: Timed(
            statistics.fmean(values),
            statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0,
            processor,
        )
        for title, values in found.items()
    }


def _names(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By model, its title, with the budget where trainings of one title had several, and the model where they agree."""
    titles = told_apart([(str(row["title"]), row.get("training", {})) for row in rows])
    titles = [marked(title, [row.get("training", {})], WHOLE_STEPS) for title, row in zip(titles, rows, strict=True)]
    return {
        row["model"]: title if titles.count(title) == 1 else f"{title} ({row['model']})"
        for title, row in zip(titles, rows, strict=True)
    }


@dataclass(frozen=True)
class Defeat:
    """One contender is both faster and more accurate than another, on the cases that both have.

    Attributes:
        cases: how many these are.
        diverged: in how many further cases the winner has no result at all.
        totals: errors of loser and winner.
        seconds: of loser and winner.
        prepared: whether the time leaves out what comes before.
    """

    loser: Contender
    winner: Contender
    cases: int
    diverged: int
    totals: tuple[float, float]
    seconds: tuple[float, float]
    prepared: bool


def defeat(loser: Contender, winner: Contender, prepared: bool = True) -> Defeat | None:
    """How a contender is beaten by another; None where it is not."""
    common = [case for case in loser.cases if case in winner.errors]
    if not common:
        return None
    seconds = loser.time(common, prepared), winner.time(common, prepared)
    if not seconds[1] < seconds[0]:
        return None
    totals = loser.total(common), winner.total(common)
    if not totals[1] < totals[0]:
        return None
    return Defeat(loser, winner, len(common), len(winner.diverged), totals, seconds, prepared)


def losses(record: Mapping[str, Any], prepared: bool = True) -> list[Defeat]:
    """Every network that a setting of OpenFOAM beats in both, by each of them, the most accurate first."""
    found = contenders(record)
    solvers = [each for each in found if not each.is_network]
    beaten = []
    for network in found:
        if network.is_network:
            defeats = [defeat(network, solver, prepared) for solver in solvers]
            beaten += sorted((each for each in defeats if each is not None), key=lambda each: each.totals[1])
    return beaten


def front(found: Sequence[Contender]) -> list[Contender]:
    """Those whom none of the others beats, the fastest first. Whoever diverged in some case cannot be relied on."""
    fit = [each for each in found if each.cases and not each.diverged]
    kept = [each for each in fit if not any(defeat(each, other) for other in fit if other is not each)]
    return sorted(kept, key=lambda each: each.time(each.cases))
