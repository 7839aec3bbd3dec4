"""How runs become files, in two rounds: all of them are surveyed, then those that belong together are collected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from pennpde.case import Case
from pennpde.data.recipe import Product, Recipe, Report
from pennpde.data.runs.finding import Run
from pennpde.data.runs.survey import Survey, known_state, survey
from pennpde.data.runs.targets import Plan, collect
from pennpde.data.storage import facts_of
from pennpde.data.vtkhdf import pack

DATASET = "collected"


@dataclass(frozen=True)
class SurveyRecipe(Recipe):
    """Opens runs and says what they are; makes no files.

    Attributes:
        states: by name of a run that is in the dataset already, the hash of its files. One that has not changed is
            not opened further.
    """

    dataset: ClassVar[str] = DATASET
    most_attempts: ClassVar[int] = 1
    runs: Mapping[str, Run]
    plan: Plan
    states: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        return {}

    def splits(self) -> dict[str, list[str]]:
        return {"all": list(self.runs)}

    def check(self, name: str) -> None:
        _check(name, self.runs)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name,) for name in names]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:  # noqa: ARG002
        for name in names:
            run = self.runs[name]
            same = name in self.states and known_state(run, self.plan) == self.states[name]
            yield Product(name, b"", {"survey": None if same else survey(run, self.plan)})


@dataclass(frozen=True)
class CollectRecipe(Recipe):
    """Makes the cases of runs.

    Attributes:
        runs: by name.
        given: the settings of the manifest.
        division: the splits.
    """

    dataset: ClassVar[str] = DATASET
    most_attempts: ClassVar[int] = 1
    packed: ClassVar[bool] = False  # runs end at different times, and each may be opened in ParaView as it is
    runs: Mapping[str, Run]
    plan: Plan
    given: Mapping[str, Any]
    division: Mapping[str, Sequence[str]]

    def settings(self) -> dict[str, Any]:
        return dict(self.given)

    def splits(self) -> dict[str, list[str]]:
        return {split: list(names) for split, names in self.division.items()}

    def check(self, name: str) -> None:
        _check(name, self.runs)

    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name,) for name in names]

    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:  # noqa: ARG002
        for name in names:
            run = self.runs[name]
            made = collect(run.open(self.plan.quantities, self.plan.repair), self.plan, name)
            case = made.case
            facts = {**facts_of(case), "source": run.given, **made.facts, "ranges": _ranges(case)}
            content = pack(case, made.moments or None, notes={"source": run.given})
            yield Product(name, content, facts)


def survey_of(products: Sequence[Product]) -> Survey | None:
    """What a survey's only product says; None where the run is in the dataset and has not changed."""
    return products[0].facts["survey"]


def _check(name: str, runs: Mapping[str, Run]) -> None:
    if name not in runs:
        raise ValueError(f"{name!r} is none of the runs; they are {', '.join(list(runs)[:5])} ...")


def _ranges(case: Case) -> dict[str, list[float]]:
    """The lowest and highest value of each target, of a vector its length."""
    found = {}
    for name, values in case.targets.items():
        unknown = name if name in case.initial else name.removeprefix("steady_")
        rank = case.initial[unknown].ndim - 1 if unknown in case.initial else values.ndim - 1
        size: Tensor = values.norm(dim=1) if rank == 1 else values
        found[name] = [float(size.min()), float(size.max())]
    return found
