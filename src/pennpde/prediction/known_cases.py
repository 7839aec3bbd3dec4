"""Cases with truth from datasets and from archives of finished plane flows, for calibration."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pennpde.datasets import storage
from pennpde.datasets.plane_flow import finished, flows, sensitivity
from pennpde.datasets.plane_flow.recipe import MESHES
from pennpde.datasets.vtkhdf import CaseFile
from pennpde.network import STEADY
from pennpde.prediction.calibrating import Known, of_case


def read_known(
    folder: Path | str,
    split: str | None = None,
    every: int = 1,
    per_flow: int = 1,
    only: Sequence[str] = (),
    without: Container[str] = (),
) -> Iterator[Known]:
    """The cases of a dataset with their truth, one by one.

    Args:
        folder: A dataset, or a folder of finished plane flows (`part_000.tar` ...).
        split: Only these; all by default.
        every: Only every so many-th.
        per_flow: Of finished plane flows, how many of the two meshes of each.
        only: Of finished plane flows, these, in this order.
        without: Names of cases that are not wanted, such as those that were measured before; they are not read.
    """
    folder = Path(folder)
    if not (folder / storage.MANIFEST).is_file() and any(folder.glob("part_*.tar")):
        yield from _finished(folder, _chosen(folder, split, only)[::every], per_flow, without)
        return
    manifest = storage.read_manifest(folder)
    names = [name for name in manifest.names(split) if name in manifest.cases]
    for name in names[::every]:
        if name in without:
            continue
        file, facts = storage.read_file(folder, name, manifest), manifest.cases[name].facts
        yield _known(file, str(facts.get("family", "")), facts)


def _chosen(folder: Path, split: str | None, only: Sequence[str]) -> list[str]:
    if only:
        return list(only)
    splits = flows.splits()
    if split is not None and split not in splits:
        raise ValueError(f"The plane flows have no split {split!r}; they have {', '.join(splits)}.")
    wanted = None if split is None else set(splits[split])
    return [name for name in finished.names(folder) if wanted is None or name in wanted]


def _finished(folder: Path, names: Sequence[str], per_flow: int, without: Container[str]) -> Iterator[Known]:
    for name in names:
        if all(f"{name}.{mesh}" in without for mesh in MESHES[:per_flow]):
            continue
        flow = flows.draw_flow(name)
        try:
            files = finished.cases(folder, flow)
        except ValueError as error:
            warnings.warn(f"{name} is left out: {error}", stacklevel=2)
            continue
        for case_name, file in list(files.items())[:per_flow]:
            if case_name not in without:
                yield _known(file, flow.family, sensitivity.facts_of(folder, name, file.times))


def _known(file: CaseFile, family: str, facts: Mapping[str, Any]) -> Known:
    """A case with what its facts say about its truth: at which moments it hardly depends on the mesh."""
    pairs = [*zip(file.times, facts.get("determined", ()), strict=False), (STEADY, facts.get("steady_determined"))]
    determined = {time: each for time, each in pairs if each is not None}
    return replace(of_case(file.case, file.times, family), determined=determined)
