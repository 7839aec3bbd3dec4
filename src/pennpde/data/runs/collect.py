"""Finished simulations become a dataset: from paths to splits, files and report."""

from __future__ import annotations

import re
import time as clock
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pennpde.data.content import content_of
from pennpde.data.generate import Failure, Status, generate, outcomes
from pennpde.data.runs import report
from pennpde.data.runs.coarsening import Spacing
from pennpde.data.runs.finding import Run, find_runs
from pennpde.data.runs.likeness import Signature
from pennpde.data.runs.quantities import Quantities, of_unknowns, parse
from pennpde.data.runs.recipe import DATASET, CollectRecipe, SurveyRecipe, survey_of
from pennpde.data.runs.splitting import Division, Shares, divide
from pennpde.data.runs.survey import Family, Survey
from pennpde.data.runs.targets import Plan
from pennpde.data.runs.times import Times
from pennpde.data.storage import MANIFEST, DatasetError, Manifest, read_files, read_manifest, write_manifest

FEW_RUNS = 16
"""Up to so many are read by this process: workers take longer to start."""
_ERROR_NAME = re.compile(r"^\w*(?:Error|Exception): ")


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
        division: the splits of the whole dataset.
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
    scheduler: str | None = None,
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
        scheduler: address of a Dask scheduler instead.
        on_progress: is called with what is being done and how far it is.
    """
    started, folder = clock.monotonic(), Path(folder)
    shares = shares or Shares()
    coarser = None if spacing is None else Spacing.parse(spacing)
    plan = Plan(Times.parse(time), coarser, unfinished, parse(fields, parameters), repair)
    found = find_runs(paths, problem)
    before = _before(folder, {"time": plan.times.text, "spacing": coarser and coarser.text})
    runs = _renamed(found.runs, before)
    if any(Path(run.path) == folder.resolve() for run in runs.values()):
        raise ValueError(f"{folder} is one of the runs; choose another folder for the dataset.")
    few = workers is None and scheduler is None and len(runs) <= FEW_RUNS
    hands = _Hands(0 if few else workers, scheduler, on_progress)
    opened = _opened(runs, before, plan, mixed, hands)
    made: tuple[str, ...] = ()
    failed = dict(opened.failed)
    if opened.surveys:
        made, late = _collected(folder, runs, before, plan, shares, opened, hands)
        failed |= late
    manifest = before if not opened.surveys else read_manifest(folder)
    if not manifest.cases:
        _clear(folder)
    if not made and not opened.kept:
        raise NothingCollectedError(_nothing(found.skipped, {name: failed[name] for name in runs if name in failed}))
    by_path = {runs[name].given: reason for name, reason in failed.items()}
    draw = bool(made) or not (folder / report.PICTURE_FILE).exists()
    written = report.write(folder, manifest, found.skipped, by_path, draw=draw)
    return Collection(folder, made, opened.kept, failed, found.skipped, written, clock.monotonic() - started)


@dataclass(frozen=True)
class _Hands:
    """Who does the work, and who hears of it."""

    workers: int | None
    scheduler: str | None
    on_progress: Callable[[str, Status], None] | None

    def options(self, what: str) -> dict[str, Any]:
        hear = self.on_progress
        told = None if hear is None else lambda status: hear(what, status)
        return {"workers": self.workers, "scheduler": self.scheduler, "on_progress": told}


@dataclass(frozen=True)
class _Opened:
    """Runs that are to be collected, those that are there already, and those that cannot be; what they have in common.

    The family is None only where there is nothing to collect.
    """

    surveys: Mapping[str, Survey]
    kept: tuple[str, ...]
    failed: Mapping[str, str]
    family: Family | None


def _opened(runs: Mapping[str, Run], before: Manifest, plan: Plan, mixed: bool, hands: _Hands) -> _Opened:
    if not runs:
        return _Opened({}, (), {}, None)
    states = {name: str(entry.facts.get("state")) for name, entry in before.cases.items() if name in runs}
    surveys: dict[str, Survey] = {}
    kept, failed = [], {}
    for (name,), outcome in outcomes(SurveyRecipe(runs, plan, states), **hands.options("opening")):
        if isinstance(outcome, Failure):
            failed[name] = _ERROR_NAME.sub("", outcome.error).strip()
        elif (seen := survey_of(outcome)) is None:
            kept.append(name)
        else:
            surveys[name] = seen
    surveys = {name: surveys[name] for name in runs if name in surveys}
    if not surveys:
        return _Opened({}, tuple(kept), failed, None)
    family = _family(before) or Family.of(list(surveys.values()), mixed)
    for name, seen in list(surveys.items()):
        if reason := family.refusal(seen):
            failed[name] = reason
            del surveys[name]
    return _Opened(surveys, tuple(kept), failed, family)


def _collected(
    folder: Path,
    runs: Mapping[str, Run],
    before: Manifest,
    plan: Plan,
    shares: Shares,
    opened: _Opened,
    hands: _Hands,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write the cases; the names of those that were, and by name why others were not."""
    assert opened.family is not None
    signatures = _signatures(folder, before, opened.surveys)
    division = _divided(before, signatures, shares)
    settings = {
        **opened.family.to_settings(),
        "time": plan.times.text,
        "spacing": plan.spacing and plan.spacing.text,
        # Networks of flows predict one moment; of scalars, which go from moment to moment, all of them.
        "frames": plan.times.kind == "several" and opened.family.content.network == "flow",
        # Of the first time: later runs are divided in the same way.
        "splitting": before.settings.get("splitting")
        or {"seed": shares.seed, "validation": shares.validation, "test": shares.test},
    }
    chosen = {name: runs[name] for name in opened.surveys}
    if before.cases:
        _forget(folder, before, list(chosen))
    else:  # nothing came of an earlier start, whose settings may have been others
        (folder / MANIFEST).unlink(missing_ok=True)
    recipe = CollectRecipe(chosen, plan, settings, division.splits)
    summary = generate(recipe, folder, only=list(chosen), **hands.options("collecting"))
    failed = {name: _ERROR_NAME.sub("", reason).strip() for name, reason in summary.failed.items()}
    if failed:  # they may have been all of a split
        division = _divided(before, {name: each for name, each in signatures.items() if name not in failed}, shares)
    _settle(folder, before, runs, {**opened.failed, **failed}, division)
    return summary.made, failed


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


def _forget(folder: Path, before: Manifest, names: Sequence[str]) -> None:
    """Remove cases whose runs have changed since."""
    changed = set(names) & before.cases.keys()
    if changed:
        cases = {name: entry for name, entry in before.cases.items() if name not in changed}
        write_manifest(folder, replace(before, cases=cases))


# Splits


def _signatures(folder: Path, before: Manifest, surveys: Mapping[str, Survey]) -> dict[str, Signature]:
    """Of all runs, those in the dataset included."""
    signatures: dict[str, Signature] = {}
    if before.cases:
        content = content_of(before)
        quantities = of_unknowns(list(content.unknowns), list(content.parameters))
        for file in read_files(folder):
            if file.case.name not in surveys:
                signatures[file.case.name] = _without_time(file.case, quantities)
    return signatures | {name: seen.signature for name, seen in surveys.items()}


def _divided(before: Manifest, signatures: Mapping[str, Signature], shares: Shares) -> Division:
    known = {name: split for split, names in before.splits.items() for name in names if name in signatures}
    return divide(signatures, shares, known)


def _without_time(case: Any, quantities: Quantities) -> Signature:
    parameters = {name: value for name, value in case.parameters.items() if name != "time"}
    return Signature.of(replace(case, parameters=parameters), quantities)


# The end


def _settle(
    folder: Path, before: Manifest, runs: Mapping[str, Run], failed: Mapping[str, str], division: Division
) -> None:
    """The manifest with all runs that failed, and splits of those that are there."""
    manifest = read_manifest(folder)
    splits = {split: [name for name in names if name in manifest.cases] for split, names in division.splits.items()}
    older = {name: facts for name, facts in before.failed.items() if name not in runs and name not in manifest.cases}
    reasons = {name: {"source": runs[name].given, "error": reason} for name, reason in failed.items()}
    nearest = {"nearest": division.nearest, "closest": list(division.closest), "groups": division.groups}
    about = {**manifest.about, "splitting": nearest}
    write_manifest(folder, replace(manifest, splits=splits, failed={**older, **reasons}, about=about))


def _clear(folder: Path) -> None:
    """Remove a dataset without cases."""
    for name in (MANIFEST, ".lock"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it was there before, with other files
        folder.rmdir()


def _nothing(skipped: Mapping[str, str], failed: Mapping[str, str]) -> str:
    reasons = [f"{name}: {reason}" for name, reason in {**failed, **skipped}.items()]
    more = f"\n... and {len(reasons) - 10} more" if len(reasons) > 10 else ""
    return "Nothing was collected.\n" + "\n".join(reasons[:10]) + more if reasons else "No runs were given."
