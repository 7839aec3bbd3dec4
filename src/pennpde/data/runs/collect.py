"""Finished simulations become a dataset: from paths to splits, files and report.

All runs are surveyed first; those that belong together are then read in full.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from pennpde.case import Case
from pennpde.case.moments import TIME, unknown_of
from pennpde.data.runs import report
from pennpde.data.runs.source import Times, of_unknowns, parse
from pennpde.data.runs.survey import Division, Family, Run, Shares, Signature, Survey, divide, find_runs, survey
from pennpde.data.runs.targets import Plan, Spacing, collect
from pennpde.data.storage import (
    MANIFEST,
    CaseReader,
    DatasetError,
    Ledger,
    Manifest,
    content_of,
    facts_of,
    read_manifest,
)
from pennpde.data.vtkhdf import pack
from pennpde.data.workers import Failure, Status, each
from pennpde.files import locked_folder, remove_leftovers

DATASET = "collected"
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
    draw = bool(made) or not (folder / report.PICTURE_FILE).exists()
    written = report.write(folder, manifest, skipped, by_path, draw=draw)
    return Collection(
        folder=folder,
        collected=made,
        kept=kept,
        failed=failed,
        skipped=skipped,
        report=written,
        seconds=clock.monotonic() - started,
    )


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
    made = collect(run.open(plan.quantities, plan.repair), plan, run.name)
    facts = {**facts_of(made.case), "source": run.given, **made.facts, "ranges": _ranges(made.case)}
    return pack(made.case, made.moments or None, notes={"source": run.given}), facts


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
