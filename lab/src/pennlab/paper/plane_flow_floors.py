"""Plane flows without a network: the start of a flow, or the nearest training flow carried over.

Flows of this dataset share neither a shape nor a mesh, so nothing can be fitted to neighbours at each point. What is
nearest is said by `datasets.plane_flow.twins`: outline, Reynolds number and prescribed velocities, mirror images
included. Its fields are taken where points lie relative to the inlet, at the time that is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennlab.datasets.plane_flow import flows
from pennlab.datasets.plane_flow.twins import Signature, distance, is_nearer_mirrored
from pennlab.evaluation import MomentEvaluation, MomentRecord, Setting
from pennpde.case import Case
from pennpde.data.storage import read_file, read_manifest
from pennpde.data.vtkhdf import CaseFile
from pennpde.metrics import relative_l2

STEADY = float("inf")
UNKNOWNS = ("u", "p")
TIMES = {"0 < t ≤ 1": (0.0, 1.0), "1 < t ≤ 3": (1.0, 3.0), "3 < t ≤ 5": (3.0, 5.0), "5 < t ≤ 8": (5.0, 8.0)}
"""Ranges of the moments in the records; the steady state is apart."""
UNDETERMINED = "not determined"
"""Moments and steady states that depend on the mesh of the truth: nothing is judged by them. See `sensitivity`."""


def at_all_times(files: Iterable[CaseFile]) -> list[Case]:
    """Every moment, with its parameter `time`, and every steady state, without."""
    found = []
    for file in files:
        for time in (*file.times, STEADY):
            if (targets := targets_at(file, time)) is None:
                continue
            known = {} if time == STEADY else {"time": torch.tensor(time, dtype=torch.float64)}
            name = f"{file.case.name}@{'steady' if time == STEADY else f'{time:g}'}"
            found.append(replace(file.case, targets=targets, parameters={**file.case.parameters, **known}, name=name))
    return found


def time_of(case: Case) -> float:
    """The moment of a case; infinite in its steady state."""
    return float(case.parameters["time"]) if "time" in case.parameters else STEADY


def targets_at(file: CaseFile, time: float) -> dict[str, Tensor] | None:
    """The truth at a time: linear between the start and the moments, constant after the last; None: there is none."""
    targets = file.case.targets
    if time == STEADY:
        steady = {name: targets.get(f"steady_{name}") for name in UNKNOWNS}
        return {name: each for name, each in steady.items() if each is not None} or None
    times = np.array([0.0, *file.times])
    last = int(np.clip(np.searchsorted(times, time), 1, len(times) - 1))
    share = float(np.clip((time - times[last - 1]) / (times[last] - times[last - 1]), 0.0, 1.0))

    def at(name: str, number: int) -> Tensor:
        return file.case.initial[name] if number == 0 else targets[name][..., number - 1]

    # The pressure at the start is not known; that of the first moment is nearer than nothing.
    before = {"u": last - 1, "p": max(last - 1, 1)}
    return {name: (1 - share) * at(name, before[name]) + share * at(name, last) for name in UNKNOWNS}


def start(case: Case) -> dict[str, Tensor]:
    """What a network sees before anything has happened."""
    return {name: case.dirichlet[name].apply(case.initial[name]) for name in case.targets}


@dataclass(frozen=True, eq=False)
class Nearest:
    """The nearest flow of a training set, carried over.

    Attributes:
        folder: of the dataset.
        seed: from which its flows are drawn.
        train: names of the training flows, and whether they have a steady state.
    """

    folder: Path
    seed: int
    train: Mapping[str, bool]
    _signatures: dict[str, Signature] = field(default_factory=dict)
    _chosen: dict[tuple[str, bool], str] = field(default_factory=dict)

    @staticmethod
    def among(folder: Path | str) -> Nearest:
        """All training flows of a dataset; their first mesh has all moments."""
        manifest = read_manifest(folder)
        train = {
            flow_of(name): bool(manifest.cases[name].facts["truth"].get("steady"))
            for name in manifest.names("train")
            if name.endswith(".a")
        }
        if not train:
            raise ValueError(f"{folder} has no training flows to look among.")
        return Nearest(Path(folder), int(manifest.settings["seed"]), train)

    def __call__(self, case: Case) -> dict[str, Tensor]:
        from pennpde.mesh.interpolation import interpolation

        time, flow = time_of(case), flow_of(case.name)
        nearest = self.name_of_nearest(flow, steady=time == STEADY)
        file = _file(self.folder, f"{nearest}.a")
        fields = targets_at(file, time)
        assert fields is not None, "for steady states only flows that have one are looked among"
        mine, other = self._signature(flow), self._signature(nearest)
        flip = np.array([1.0, -1.0 if is_nearer_mirrored(mine, other) else 1.0])
        places = (case.mesh.points.double().numpy() - mine.origin) * flip + other.origin
        matrix = interpolation(file.case.mesh, places)
        found = {}
        for name, values in fields.items():
            there = np.asarray(matrix @ values.double().numpy())
            condition = case.dirichlet[name]
            if name == "u":
                there = there * flip
            elif int(condition.mask.sum()) == 1:  # a closed domain: only differences of the pressure mean something
                there = there - there[condition.mask.numpy()]
            found[name] = condition.apply(torch.from_numpy(there).to(case.initial[name]))
        return found

    def name_of_nearest(self, flow: str, *, steady: bool = False) -> str:
        """The training flow at the least distance."""
        if (flow, steady) not in self._chosen:
            candidates = [name for name, has_steady in self.train.items() if has_steady or not steady]
            if not candidates:
                raise ValueError(f"None of the training flows in {self.folder} has a steady state.")
            mine = self._signature(flow)
            self._chosen[flow, steady] = min(candidates, key=lambda name: (distance(mine, self._signature(name)), name))
        return self._chosen[flow, steady]

    def _signature(self, flow: str) -> Signature:
        if flow not in self._signatures:
            self._signatures[flow] = Signature.of(flows.draw_flow(flow, self.seed))
        return self._signatures[flow]


def flow_of(name: str) -> str:
    """`step_2001` of the case `step_2001.a` or `step_2001.a@2.5`."""
    return name.partition(".")[0]


@lru_cache(maxsize=8)
def _file(folder: Path, name: str) -> CaseFile:
    return read_file(folder, name)


def floors(train_data: Path | str) -> dict[str, Callable[[Case], Mapping[str, Tensor]]]:
    """By name, what is measured."""
    return {"start": start, "nearest": Nearest.among(train_data)}


def measure(
    look_up: Callable[[Case], Mapping[str, Tensor]],
    files: Iterable[CaseFile],
    about: Mapping[str, Any],
    determined: Callable[[str, float], bool | None],
) -> dict[str, Any]:
    """The record of a look-up, as `penn evaluate` writes it for networks, and its errors by ranges of time.

    Args:
        look_up: from a case to its fields.
        files: cases with their truth.
        about: goes into the record as it is.
        determined: whether a case, by its name, is determined at a time; None where that was not measured.
    """
    records, errors, undetermined, unknown = [], [], [], 0
    for file in files:
        began, measured = perf_counter(), []
        for case in at_all_times([file]):
            found = look_up(case)
            measured.append({name: float(relative_l2(found[name], each)) for name, each in case.targets.items()})
            known = determined(file.case.name, time_of(case))
            unknown += known is None
            (undetermined if known is False else errors).append((time_of(case), measured[-1]))
        moments = measured[: len(file.times)]
        records.append(
            MomentRecord(
                name=file.case.name,
                group=flows.parse_name(flow_of(file.case.name))[0],
                points=file.case.number_of_points,
                seconds=perf_counter() - began,
                preparation=0.0,
                times=tuple(file.times),
                errors={name: tuple(row[name] for row in moments) for name in UNKNOWNS},
                steady=measured[-1] if len(measured) > len(moments) else {},
            )
        )
    evaluation = MomentEvaluation(tuple(records), Setting.of(look_up, torch.float64, torch.device("cpu"), about))
    times = {**by_time(errors), **told({UNDETERMINED: [row for _, row in undetermined]})}
    return {**evaluation.to_plain(), "times": times, "not_known_whether_determined": unknown}


def by_time(errors: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, Any]:
    """Mean and median of relative errors by range of time, of all moments, and of steady states."""
    groups = {title: [row for time, row in errors if low < time <= high] for title, (low, high) in TIMES.items()}
    groups["all moments"] = [row for time, row in errors if time != STEADY]
    groups["steady"] = [row for time, row in errors if time == STEADY]
    return told(groups)


def told(groups: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Mean and median of the errors of groups that have any."""
    return {
        title: {
            "cases": len(rows),
            **{
                name: {"mean": mean(row[name] for row in rows), "median": median(row[name] for row in rows)}
                for name in UNKNOWNS
            },
        }
        for title, rows in groups.items()
        if rows
    }
