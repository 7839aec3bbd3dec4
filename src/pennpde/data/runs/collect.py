"""Finished simulations become a dataset: from paths to splits, files and report.

All runs are surveyed first; those that belong together are then read in full.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from pennpde.case import Case
from pennpde.case.moments import TIME, unknown_of
from pennpde.data.runs.source import Times, of_unknowns, parse
from pennpde.data.runs.survey import SPLITS, Division, Family, Run, Shares, Signature, Survey, divide, find_runs, survey
from pennpde.data.runs.targets import Plan, Spacing, collect
from pennpde.data.storage import (
    MANIFEST,
    CaseReader,
    Content,
    DatasetError,
    Ledger,
    Manifest,
    content_of,
    evenly,
    facts_of,
    read_file,
    read_manifest,
)
from pennpde.data.vtkhdf import pack
from pennpde.data.workers import Failure, Status, each
from pennpde.files import locked_folder, plain, remove_leftovers, write_atomically, write_json
from pennpde.pictures import draw_all

DATASET = "collected"
JSON_FILE, TEXT_FILE, PICTURE_FILE = "report.json", "report.md", "report.png"
MOST_PICTURED = 9
FEW_RUNS = 16
"""Up to so many are read by this process: workers take longer to start."""


class NothingCollectedError(ValueError):
    """None of the runs could be collected."""


@dataclass(frozen=True)
class Collection:
    """What has become of the runs.

    Attributes:
        collected: names of the cases that were written.
        kept: those that were there before and whose runs have not changed.
        failed: by name of a run, why it is not in the dataset.
        skipped: by path, why it is no run.
        report: as in `report.json`.
    """

    folder: Path
    collected: tuple[str, ...]
    kept: tuple[str, ...]
    failed: Mapping[str, str]
    skipped: Mapping[str, str]
    report: Mapping[str, Any]
    seconds: float


def collect_runs(
    paths: Sequence[Path | str],
    folder: Path | str,
    *,
    time: str = "latest",
    fields: Sequence[str] = (),
    parameters: Sequence[str] = (),
    problem: Path | str | None = None,
    spacing: str | None = None,
    mixed: bool = False,
    unfinished: bool = False,
    repair: bool = True,
    shares: Shares | None = None,
    workers: int | None = None,
    on_progress: Callable[[str, Status], None] | None = None,
) -> Collection:
    """Make a dataset of finished runs, or add runs to it.

    All runs are surveyed first; those that belong together are then read in full and written, one file each. A run
    that is in the dataset and has not changed since is not read again.

    Args:
        paths: folders of OpenFOAM cases, or files and series with a problem file; others are skipped.
        folder: of the dataset.
        time: `latest`, `steady`, a time, several as `1,2,4` or `0:4:0.5`.
        fields: names of the fields in the runs, or OURS=THEIRS; by default U and p, or T.
        parameters: likewise of parameters; by default nu, or DT and the velocity U.
        problem: the problem file of files that have none next to them.
        spacing: of coarser meshes to put the runs on: a length in their units, or a multiple of the inlet's width, as
            `0.1L`.
        mixed: whether runs may have different patches, and lengths in different units.
        unfinished: whether runs that did not come to their end are taken.
        repair: whether meshes in files are repaired, as by `Mesh.read`; else those that need it are refused.
        shares: of validation and test, and the seed.
        workers: processes on this machine; 0: this one. By default one for each processor if there are many runs.
        on_progress: is called with what is being done and how far it is.
    """
    started, folder = clock.monotonic(), Path(folder)
    shares = shares or Shares()
    coarser = None if spacing is None else Spacing.parse(spacing)
    plan = Plan(Times.parse(time), coarser, unfinished, parse(fields, parameters), repair)
    found, skipped = find_runs(paths, problem)
    before = _before(folder, {"time": plan.times.text, "spacing": coarser and coarser.text})
    runs = _renamed(found, before)
    if any(Path(run.path) == folder.resolve() for run in runs.values()):
        raise ValueError(f"{folder} is one of the runs; choose another folder for the dataset.")
    if workers is None and len(runs) <= FEW_RUNS:
        workers = 0

    def results(what: str, work: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> _Results:
        hear = None if on_progress is None else partial(on_progress, what)
        return each(work, arguments, workers=workers, on_progress=hear)

    surveys, kept, failed = _surveyed(runs, before, plan, results)
    family = _family(before) or (Family.of(list(surveys.values()), mixed) if surveys else None)
    if family is not None:
        failed |= {name: reason for name, seen in surveys.items() if (reason := family.refusal(seen))}
        surveys = {name: seen for name, seen in surveys.items() if name not in failed}
    made, manifest = (), before
    if surveys and family is not None:
        settings = {
            **family.to_settings(),
            "time": plan.times.text,
            "spacing": plan.spacing and plan.spacing.text,
            # Networks of flows predict one moment; of scalars, which go from moment to moment, all of them.
            "frames": plan.times.kind == "several" and family.content.network == "flow",
            # Of the first time: later runs are divided in the same way.
            "splitting": before.settings.get("splitting")
            or {"seed": shares.seed, "validation": shares.validation, "test": shares.test},
        }
        folder.mkdir(parents=True, exist_ok=True)
        with locked_folder(folder, "the writing of a dataset"):
            remove_leftovers(folder)
            # Without the cases of runs that have changed since.
            ledger = Ledger(folder, replace(before, settings=settings).without(surveys))
            made = _collected(ledger, runs, plan, shares, surveys, failed, results)
        manifest = read_manifest(folder)
    if not manifest.cases:
        _clear(folder)
    if not made and not kept:
        raise NothingCollectedError(_nothing(skipped, {name: failed[name] for name in runs if name in failed}))
    by_path = {runs[name].given: reason for name, reason in failed.items()}
    draw = bool(made) or not (folder / PICTURE_FILE).exists()
    written = write_report(folder, manifest, skipped, by_path, draw=draw)
    seconds = clock.monotonic() - started
    return Collection(folder, made, kept, failed, skipped, report=written, seconds=seconds)


_Results = Iterator[tuple[str, Any]]
"""By name, what came of a run, or a Failure."""
_Work = Callable[[str, Callable[..., Any], Mapping[str, tuple[Any, ...]]], _Results]


def _surveyed(
    runs: Mapping[str, Run], before: Manifest, plan: Plan, results: _Work
) -> tuple[dict[str, Survey], tuple[str, ...], dict[str, str]]:
    """What is known of the runs; the names of those that were collected before; by name why others cannot be read."""
    states = {name: str(entry.facts.get("state")) for name, entry in before.cases.items()}
    surveys: dict[str, Survey] = {}
    kept, failed = [], {}
    for name, seen in results("opening", survey, {name: (run, plan, states.get(name)) for name, run in runs.items()}):
        if isinstance(seen, Failure):
            failed[name] = seen.error.strip()
        elif seen is None:
            kept.append(name)
        else:
            surveys[name] = seen
    return {name: surveys[name] for name in runs if name in surveys}, tuple(kept), failed


def _collected(
    ledger: Ledger,
    runs: Mapping[str, Run],
    plan: Plan,
    shares: Shares,
    surveys: Mapping[str, Survey],
    failed: dict[str, str],
    results: _Work,
) -> tuple[str, ...]:
    """Write the cases; the names of those that were. The others get their reasons in `failed`."""
    before, made = ledger.manifest, set()
    signatures = _signatures(ledger.folder, before) | {name: seen.signature for name, seen in surveys.items()}
    division = _divided(before, signatures, shares)
    ledger.manifest = replace(before, splits=division.splits)
    ledger.save()
    try:
        for name, case in results("collecting", _case, {name: (runs[name], plan) for name in surveys}):
            if isinstance(case, Failure):
                failed[name] = case.error.strip()
            else:
                ledger.add(name, *case)
                made.add(name)
    finally:
        # What stopped us is more interesting than that the manifest could not be written either.
        with suppress(OSError):
            ledger.save()
    if len(made) < len(surveys):  # those that failed may have been all of a split
        there = {name: each for name, each in signatures.items() if name in ledger.manifest.cases}
        division = _divided(before, there, shares)
    older = {name: facts for name, facts in ledger.manifest.failed.items() if name not in runs}
    reasons = {name: {"source": runs[name].given, "error": reason} for name, reason in failed.items()}
    nearest = {"nearest": division.nearest, "closest": list(division.closest), "groups": division.groups}
    about = {**ledger.manifest.about, "splitting": nearest}
    ledger.manifest = replace(ledger.manifest, splits=division.splits, failed={**older, **reasons}, about=about)
    ledger.save()
    return tuple(name for name in surveys if name in made)


def _divided(before: Manifest, signatures: Mapping[str, Signature], shares: Shares) -> Division:
    known = {name: split for split, names in before.splits.items() for name in names if name in signatures}
    return divide(signatures, shares, known)


def _signatures(folder: Path, manifest: Manifest) -> dict[str, Signature]:
    """Of the runs that are in the dataset."""
    if not manifest.cases:
        return {}
    content = content_of(manifest)
    quantities = of_unknowns(list(content.unknowns), list(content.parameters))
    signatures = {}
    with CaseReader(folder, manifest) as cases:
        for name in manifest.cases:
            case = cases.read(name).case
            parameters = {key: value for key, value in case.parameters.items() if key != TIME}
            signatures[name] = Signature.of(replace(case, parameters=parameters), quantities)
    return signatures


def _case(run: Run, plan: Plan) -> tuple[bytes, dict[str, Any]]:
    """The file of a run's case, and its facts for the manifest."""
    case, moments, facts = collect(run.open(plan.quantities, plan.repair), plan, run.name)
    facts = {**facts_of(case), "source": run.given, **facts, "ranges": _ranges(case)}
    return pack(case, moments or None, notes={"source": run.given}), facts


def _ranges(case: Case) -> dict[str, list[float]]:
    """The lowest and highest value of each target, of a vector its length."""
    found = {}
    for name, values in case.targets.items():
        unknown = unknown_of(name, case.initial)
        rank = (values if unknown is None else case.initial[unknown]).ndim - 1
        size: Tensor = values.norm(dim=1) if rank == 1 else values
        found[name] = [float(size.min()), float(size.max())]
    return found


# What is there already


def _before(folder: Path, given: Mapping[str, str | None]) -> Manifest:
    """The dataset as it is; one that was collected with other options is refused."""
    if not (folder / MANIFEST).exists():
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file; choose another folder for the dataset.")
        return Manifest(DATASET)
    manifest = read_manifest(folder)
    if manifest.dataset != DATASET:
        raise DatasetError(f"{folder} holds the dataset {manifest.dataset!r}; choose another folder.")
    for name, value in given.items():
        if manifest.cases and manifest.settings.get(name) != value:
            raise DatasetError(
                f"{folder} was collected with --{name} {manifest.settings.get(name)}; give the same, or choose another "
                "folder."
            )
    return manifest


def _family(before: Manifest) -> Family | None:
    if not before.cases:
        return None
    settings = before.settings
    units = {name: tuple(powers) for name, powers in settings["units"].items()}
    patches = None if settings["patches"] is None else tuple(settings["patches"])
    return Family(content_of(before), units, patches, settings["size"])


def _renamed(runs: Sequence[Run], before: Manifest) -> dict[str, Run]:
    """The runs by name; one whose name another run has in the dataset gets a number."""
    found: dict[str, Run] = {}
    for run in runs:
        name, number = run.name, 1
        while name in found or not _is_same(run, before.cases[name].facts if name in before.cases else None):
            number += 1
            name = f"{run.name}_{number}"
        found[name] = replace(run, name=name)
    return found


def _is_same(run: Run, facts: Mapping[str, Any] | None) -> bool:
    if facts is None:
        return True
    source = str(facts.get("source"))
    # A dataset may have been moved, and the command given from another folder: then the last parts must agree.
    return run.given == source or Path(source).resolve() == Path(run.path) or not Path(source).exists()


# The end


def _clear(folder: Path) -> None:
    """Remove a dataset without cases."""
    (folder / MANIFEST).unlink(missing_ok=True)
    with suppress(OSError):  # it was there before, with other files
        folder.rmdir()


def _nothing(skipped: Mapping[str, str], failed: Mapping[str, str]) -> str:
    reasons = [f"{name}: {reason}" for name, reason in {**failed, **skipped}.items()]
    more = f"\n... and {len(reasons) - 10} more" if len(reasons) > 10 else ""
    return "Nothing was collected.\n" + "\n".join(reasons[:10]) + more if reasons else "No runs were given."


# What was collected and what was not: `report.json`, `report.md` and `report.png` in the folder of the dataset


def write_report(
    folder: Path, manifest: Manifest, skipped: Mapping[str, str], failed: Mapping[str, str], *, draw: bool = True
) -> dict[str, Any]:
    """Write the report of a dataset and return what its JSON file says.

    Args:
        folder: Of the dataset.
        manifest: As it is now.
        skipped: By path that is no run, why.
        failed: By run that could not be collected, why.
        draw: Whether the pictures are drawn, too.
    """
    content = content_of(manifest)
    record = {
        "content": manifest.settings["content"],
        "time": manifest.settings["time"],
        "spacing": manifest.settings["spacing"],
        "cases": {name: _told(manifest, name) for name in manifest.cases},
        "splits": {split: list(manifest.names(split)) for split in manifest.splits},
        "splitting": {**manifest.settings["splitting"], **manifest.about.get("splitting", {})},
        "ranges": _all_ranges(manifest),
        "failed": dict(failed),
        "skipped": dict(skipped),
    }
    write_json(folder / JSON_FILE, record)
    write_atomically(folder / TEXT_FILE, "\n".join(_text(folder.name, record, content)) + "\n")
    if draw:
        cases = [read_file(folder, name, manifest).case for name in _shown(manifest)]
        draw_all(folder / PICTURE_FILE, cases, in_a_row=2, panel_width=3.2)
    return plain(record)


def _told(manifest: Manifest, name: str) -> dict[str, Any]:
    facts = manifest.cases[name].facts
    split = next((split for split in manifest.splits if name in manifest.splits[split]), None)
    return {"split": split, **{key: value for key, value in facts.items() if key != "state"}}


def _all_ranges(manifest: Manifest) -> dict[str, list[float]]:
    """The lowest and highest value over all cases: of parameters, targets, sizes and characteristic numbers."""
    found: dict[str, list[float]] = {}

    def add(name: str, values: Iterable[float]) -> None:
        known = [*found.get(name, []), *values]
        found[name] = [min(known), max(known)]

    for entry in manifest.cases.values():
        facts = entry.facts
        add("points", [facts["points"]])
        add("cell size", [facts["cell_size"]])
        for name, value in facts["parameters"].items():
            add(name, value if isinstance(value, list) else [value])
        for name, value in facts.get("numbers", {}).items():
            add(name, [value])
        for name, values in facts["ranges"].items():
            add(name, values)
        if "flux_off" in facts:
            add("flux off by", [facts["flux_off"]])
    return found


def _text(name: str, record: Mapping[str, Any], content: Content) -> list[str]:
    cases, failed, skipped = record["cases"], record["failed"], record["skipped"]
    network = content.network or "none of the shipped ones"
    lines = [
        f"# {name}",
        "",
        f"{len(cases)} runs collected, {len(failed)} failed, {len(skipped)} paths skipped.",
        "",
        f"- Unknowns: {', '.join(content.unknowns)}; parameters: {', '.join(content.parameters)}; "
        f"{content.space} dimensions; network: {network}.",
        f"- Targets: {content.targets} (`--time {record['time']}`).",
        f"- Meshes: {_mesh_words(record['spacing'])}",
        f"- Splits: {', '.join(f'{split} {len(names)}' for split, names in record['splits'].items())}; "
        f"{_twins(record['splitting'])}",
        "",
        f"![some of the cases]({PICTURE_FILE})",
        "",
        "## Ranges",
        "",
        "| | lowest | highest |",
        "| --- | --- | --- |",
    ]
    for what, (low, high) in record["ranges"].items():
        shown = [f"{100 * each:.2g} %" if what == "flux off by" else f"{each:.4g}" for each in (low, high)]
        lines.append(f"| {what} | {shown[0]} | {shown[1]} |")
    if failed:
        lines += ["", "## Failed", "", *(f"- `{path}`: {reason}." for path, reason in failed.items())]
    if skipped:
        lines += ["", "## Skipped", "", *(f"- `{path}`: {reason}." for path, reason in skipped.items())]
    lines += ["", "## Cases", "", "| case | split | run | format | points of the run | points | flux off by | notes |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case, facts in cases.items():
        flux = f"{100 * facts['flux_off']:.2g} %" if "flux_off" in facts else ""
        notes = "; ".join(facts.get("notes", ()))
        lines.append(
            f"| {case} | {facts['split']} | `{facts['source']}` | {facts['format']} | {facts['run']['points']} | "
            f"{facts['points']} | {flux} | {notes} |"
        )
    return lines


def _mesh_words(spacing: str | None) -> str:
    return "those of the runs." if spacing is None else f"triangles of spacing {spacing} where those of runs are finer."


def _twins(splitting: Mapping[str, Any]) -> str:
    nearest, closest = splitting.get("nearest"), splitting.get("closest") or ()
    seed = f"seed {splitting['seed']}"
    if nearest is None:
        return f"{seed}."
    pair = " and ".join(closest)
    if nearest < 1:
        return (
            f"{seed}; **near twins had to be parted**: {pair} are in different splits at a distance of {nearest:.2g} "
            "(below 1: near twins). Errors on the test set are those between neighbours."
        )
    return f"{seed}; the nearest runs of different splits are {pair}, {nearest:.2g} times the distance of near twins."


def _shown(manifest: Manifest) -> list[str]:
    """Cases of all splits, spread over each."""
    names = [manifest.names(split) if split in manifest.splits else [] for split in SPLITS]
    return [name for split in names for name in evenly(split, MOST_PICTURED // len(SPLITS))]
