"""What is known of a run before its solution is read, and which runs belong together in one dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from pennpde.data.content import Content
from pennpde.data.runs.finding import Run
from pennpde.data.runs.likeness import Signature
from pennpde.data.runs.quantities import Quantities
from pennpde.data.runs.targets import Plan, chosen_times

_OTHER_UNITS = 100.0
"""Runs whose size differs from the others' by more than this factor are in other units."""


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of a run.

    Attributes:
        quantities: which of its fields are whose.
        content: what its dataset would hold.
        patches: their names, sorted.
        units: by unknown, powers of kg, m, s ...; empty where the run does not say.
        size: the diagonal of its box.
        state: a hash of its files.
    """

    run: Run
    quantities: Quantities
    content: Content
    patches: tuple[str, ...]
    units: Mapping[str, tuple[int, ...]]
    size: float
    state: str
    signature: Signature


def survey(run: Run, plan: Plan) -> Survey:
    """Open a run: times, fields, units, problem; whatever is wrong is an error."""
    source = run.open(plan.quantities, plan.repair)
    _, times = chosen_times(source, plan)
    quantities, units = source.quantities(), source.units()
    case = source.problem()
    takes = set(quantities.parameters) <= case.parameters.keys()
    parameters = [*case.parameters, *(["time"] if plan.times.kind in ("one", "latest") else [])]
    content = Content(
        quantities.network if takes else None,
        {name: values.ndim - 1 for name, values in case.initial.items()},
        tuple(sorted(parameters)),
        plan.times.targets,
        case.space,
    )
    return Survey(
        run,
        quantities,
        content,
        tuple(sorted(case.mesh.patches)),
        units,
        float(np.linalg.norm(np.ptp(case.mesh.points.numpy(), axis=0))),
        source.state(times),
        Signature.of(case, quantities),
    )


def known_state(run: Run, plan: Plan) -> str:
    """The hash of a run's files; nothing is read in full."""
    source = run.open(plan.quantities, plan.repair)
    return source.state(chosen_times(source, plan)[1])


@dataclass(frozen=True)
class Family:
    """What all runs of a dataset have in common, as it is in the manifest.

    Attributes:
        patches: None where runs may have different ones.
        size: the median of the runs' diagonals; None where they may have different units.
    """

    content: Content
    units: Mapping[str, tuple[int, ...]]
    patches: tuple[str, ...] | None
    size: float | None

    @staticmethod
    def of(surveys: Sequence[Survey], mixed: bool) -> Family:
        """That of most of the runs; of the first ones where they are equally many."""
        space = _most([each.content.space for each in surveys])
        alike = [each for each in surveys if each.content.space == space]
        content = _most([each.content for each in alike], key=_kind)
        alike = [each for each in alike if _kind(each.content) == _kind(content)]
        units = _most([each.units for each in alike], key=_plain)
        alike = [each for each in alike if _plain(each.units) == _plain(units)]
        patches = None if mixed else _most([each.patches for each in alike])
        return Family(content, units, patches, None if mixed else median(each.size for each in alike))

    def refusal(self, survey: Survey) -> str | None:
        """Why a run does not belong to the others; None if it does."""
        content, units = survey.content, survey.units
        if content.space != self.content.space:
            return (
                f"it has {content.space} dimensions, the others have {self.content.space}; collect runs of different "
                "dimensions separately"
            )
        if _kind(content) != _kind(self.content):
            return (
                f"its unknowns are {', '.join(content.unknowns)} with the parameters {', '.join(content.parameters)}, "
                f"the others have {', '.join(self.content.unknowns)} with {', '.join(self.content.parameters)}"
            )
        if _plain(units) != _plain(self.units):
            name = next(name for name in {**units, **self.units} if units.get(name) != self.units.get(name))
            return (
                f"{name} has the units {_words(units.get(name))}, that of the others {_words(self.units.get(name))}; "
                "bring all runs to the same units"
            )
        if self.size is not None and not 1 / _OTHER_UNITS < survey.size / self.size < _OTHER_UNITS:
            return (
                f"it is {survey.size:.3g} large, the others are {self.size:.3g}: it seems to be in other units of "
                "length. Bring all runs to the same units, or allow this with --mixed"
            )
        if self.patches is not None and survey.patches != self.patches:
            return (
                f"its patches are {', '.join(survey.patches)}, those of the others are {', '.join(self.patches)}; "
                "allow this with --mixed, or collect them separately"
            )
        return None

    def to_settings(self) -> dict[str, Any]:
        return {
            **self.content.to_settings(),
            "units": {name: list(powers) for name, powers in self.units.items()},
            "patches": None if self.patches is None else list(self.patches),
            "size": self.size,
        }


def _most(values: Sequence[Any], key: Callable[[Any], Hashable] = lambda value: value) -> Any:
    commonest = Counter(map(key, values)).most_common(1)[0][0]
    return next(value for value in values if key(value) == commonest)


def _kind(content: Content) -> Hashable:
    return content.network, tuple(sorted(content.unknowns.items())), content.parameters


def _plain(units: Mapping[str, tuple[int, ...]]) -> Hashable:
    return tuple(sorted((name, tuple(powers)) for name, powers in units.items()))


def _words(powers: Sequence[int] | None) -> str:
    if powers is None:
        return "not given"
    names = ("kg", "m", "s", "K", "mol", "A", "cd")
    parts = [name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=False) if power]
    return " ".join(parts) or "none (dimensionless)"
