"""Cases with reference solutions from archives of finished plane flows, for calibration."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from pennlab.datasets.plane_flow import finished, flows
from pennlab.datasets.plane_flow.recipe import MESHES
from pennpde.data import storage
from pennpde.train.calibrate import Known, of_case, read_dataset


def read_known(
    folder: Path,
    split: str | None = None,
    every: int = 1,
    per_flow: int = 1,
    only: Sequence[str] = (),
    without: Container[str] = (),
) -> Iterator[Known]:
    """The cases of a dataset or of finished plane flows, see `read_finished`."""
    if (folder / storage.MANIFEST).is_file():
        yield from read_dataset(folder, split, every, without)
    else:
        yield from read_finished(folder, split, every, per_flow=per_flow, only=only, without=without)


def read_finished(
    folder: Path,
    split: str | None = None,
    every: int = 1,
    *,
    per_flow: int = 1,
    only: Sequence[str] = (),
    without: Container[str] = (),
) -> Iterator[Known]:
    """Finished plane flows (`part_000.tar` ...), one by one.

    Args:
        folder: Of the archives.
        split: Only these; all by default.
        every: Only every so many-th.
        per_flow: How many of the two meshes of each flow.
        only: These flows, in this order.
        without: Names of cases that are not wanted, such as those that were measured before; they are not read.
    """
    for name in _chosen(folder, split, only)[::every]:
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
                yield of_case(file.case, file.times, flow.family)


def _chosen(folder: Path, split: str | None, only: Sequence[str]) -> list[str]:
    if only:
        return list(only)
    splits = flows.splits()
    if split is not None and split not in splits:
        raise ValueError(f"The plane flows have no split {split!r}; they have {', '.join(splits)}.")
    wanted = None if split is None else set(splits[split])
    return [name for name in finished.names(folder) if wanted is None or name in wanted]
