"""By which targets a network is judged: those at the end of a series, or at its own time."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from pennpde.case import Case
from pennpde.case.moments import number_of_moments, steady_state
from pennpde.data.storage import Manifest, read_files, read_manifest
from pennpde.data.vtkhdf import CaseFile
from pennpde.train.cases import learned, matching, moments_of, own_times


def read_at_end(folder: Path | str, split: str | None = None) -> list[Case]:
    """The cases of a dataset; those with frames (`penn generate flow --frames`) with targets at the last time only.

    A steady state that is the only target becomes that of the unknowns.
    """
    manifest = read_manifest(folder)
    return [_at_end(file, manifest) for file in read_files(folder, split)]


def _at_end(file: CaseFile, manifest: Manifest) -> Case:
    if not file.moments:
        return steady_state(file.case) or file.case
    if not manifest.has_frames:
        return file.case
    last = file.at_moment(len(file.moments) - 1)
    # All generated flows end at the same time, which their networks know: no parameter.
    parameters = last.parameters if "content" in manifest.settings else file.case.parameters
    targets = {name: values.clone() for name, values in last.targets.items()}
    return replace(last, targets=targets, parameters=parameters)


def judged(model: nn.Module, file: CaseFile, *, frames: bool = False) -> Case | None:
    """The case with the targets that a network of fixed output times predicts; None where it has no such moment."""
    times, found = own_times(model), moments_of(model, file)
    is_fixed = bool(times) and not getattr(model, "takes_times", False)
    if is_fixed and len(found) > 1 and number_of_moments(file.case) != len(times) and matching(found, times) is None:
        return None
    return learned(model, file, frames=frames)[0]


def known_times(model: nn.Module, files: Sequence[CaseFile]) -> list[float]:
    """All times of the targets, in the network's units."""
    known = (each.time for file in files for each in moments_of(model, file))
    return sorted({float(f"{time:.3g}") for time in known if time is not None})
