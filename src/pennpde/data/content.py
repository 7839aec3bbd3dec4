"""What a dataset holds, from its manifest alone: equation, unknowns, targets; facts of its cases; related cases."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any, Literal, get_args

from pennpde.data.storage import DatasetError, Manifest

Targets = Literal["one time", "several times", "steady", "several times and steady", "field"]
"""Of the unknowns, see `moments`; "field": of something else, such as the gradient of a given field."""


@dataclass(frozen=True)
class Content:
    """What networks of a dataset are to learn.

    Attributes:
        network: the kind of problem: "flow", "advection-diffusion" or "gradient"; None: another one.
        unknowns: ranks by name, as `Equation.unknowns` has them: 0 for a scalar, 1 for a vector.
        parameters: names of the numbers of the equation.
        targets: their times.
        space: 2 or 3.
    """

    network: str | None
    unknowns: Mapping[str, int]
    parameters: tuple[str, ...]
    targets: Targets
    space: int

    def to_settings(self) -> dict[str, Any]:
        """For `Manifest.settings`."""
        return {"content": {**asdict(self), "parameters": list(self.parameters)}}


_FLOW = {"u": 1, "p": 0}
_GENERATED = {
    "gradient": Content("gradient", {"phi": 0}, (), "field", 3),
    "advection-diffusion": Content("advection-diffusion", {"T": 0}, ("velocity", "diffusivity"), "several times", 2),
    "flow": Content("flow", _FLOW, ("viscosity",), "one time", 2),
    "plane-flow": Content("flow", _FLOW, ("viscosity",), "several times and steady", 2),
}


def content_of(manifest: Manifest) -> Content:
    """What a dataset holds: as its manifest states it, or as is known of the generated datasets."""
    stated = manifest.settings.get("content")
    if stated is None:
        if manifest.dataset not in _GENERATED:
            raise DatasetError(
                f"The manifest does not state what a dataset of the kind {manifest.dataset!r} holds; name the network "
                "and its settings in an experiment file."
            )
        return _GENERATED[manifest.dataset]
    try:
        content = Content(**{**stated, "parameters": tuple(stated["parameters"])})
    except (TypeError, KeyError) as error:
        raise DatasetError(f"The manifest states the content of the dataset as {stated!r}: {error}.") from None
    if content.targets not in get_args(Targets):
        raise DatasetError(f"The manifest says that targets are {content.targets!r}; known are {get_args(Targets)}.")
    return content


# Facts of the cases


_TOLD_ELSEWHERE = {"points", "cells", "parameters", "fingerprints", "source", "state", "flux", "ranges"}
"""What is measured on the cases themselves, and what differs from case to case by its nature."""
_MOST_WORDS = 30


def summary(manifest: Manifest, split: str | None = None) -> dict[str, Any]:
    """The facts of all cases of a split, or of all: numbers by their quarters, words counted.

    Facts within facts get names such as `mesh.kind`. Words that differ from case to case are only counted.
    """
    gathered: dict[str, list[Any]] = {}
    for name in manifest.names(split):
        for key, value in _flat(manifest.cases[name].facts):
            gathered.setdefault(key, []).extend(value if isinstance(value, list | tuple) else [value])
    return {key: _told(values) for key, values in gathered.items() if values}


def failures(manifest: Manifest) -> dict[str, int]:
    """By reason, how many cases could not be made; paths and numbers are left out, so that equal reasons meet."""
    reasons = Counter(
        re.sub(r"(\S*/\S+|\d[\d.e+-]*)", "…", str(each.get("error"))) for each in manifest.failed.values()
    )
    return dict(reasons.most_common())


def _flat(facts: Mapping[str, Any], above: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in facts.items():
        if not above and key in _TOLD_ELSEWHERE:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{key}.")
        elif value is not None:
            yield f"{above}{key}", value


def _told(values: Sequence[Any]) -> dict[str, Any]:
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        lower, middle, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * list(values)
        return {
            "lowest": min(values),
            "a quarter below": lower,
            "median": middle,
            "a quarter above": upper,
            "highest": max(values),
        }
    words = Counter(("yes" if value else "no") if isinstance(value, bool) else str(value) for value in values)
    if len(words) > _MOST_WORDS:
        return {"different": len(words), "of": len(values)}
    return dict(words.most_common())


# Related cases
#
# Some cases are one problem in another guise, so that a network trained on one has seen the other. In type C of the
# flow dataset `c_0.20_0.70` is the mirror image of `c_0.70_0.20`, and the networks are equivariant under reflections.
# In advection-diffusion the field is proportional to the prescribed temperature, so cases with the same velocity and
# diffusivity are multiples of one another: all test cases of the lattice are multiples of a training case.


def problem(dataset: str, name: str) -> str:
    """What a case has in common with its relatives and with no other case."""
    parts = name.split("_")
    if dataset == "flow" and parts[0] == "c":
        return "_".join(["c", *sorted(parts[1:])])
    if dataset == "advection-diffusion":
        return "_".join(parts[:2])  # without the temperature
    return name


def unrelated_names(manifest: Manifest, split: str, seen: Sequence[str] = ("train", "validation")) -> list[str]:
    """The cases of a split that have no relative in the splits that a training sees."""
    known = {problem(manifest.dataset, name) for other in seen for name in manifest.splits.get(other, ())}
    return [name for name in manifest.names(split) if problem(manifest.dataset, name) not in known]


def second_test_set(manifest: Manifest, *, unrelated: bool = False) -> str:
    """What a record calls cases other than those of the paper's test set; empty for these."""
    if manifest.settings.get("off_lattice"):
        return "parameters off the lattice"
    return "without relatives in training" if unrelated else ""
