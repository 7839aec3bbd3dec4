"""What a dataset holds, as far as the choice of a network needs it: equation, unknowns, kind of targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from pennpde.data.manifest import DatasetError, Manifest

Targets = Literal["one time", "several times", "steady", "several times and steady", "field"]
"""Of the unknowns, see `moments`; "field": of something else, such as the gradient of a given field."""

_KEY = "content"


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
        return {_KEY: {**asdict(self), "parameters": list(self.parameters)}}


_FLOW = {"u": 1, "p": 0}
_GENERATED = {
    "gradient": Content("gradient", {"phi": 0}, (), "field", 3),
    "advection-diffusion": Content("advection-diffusion", {"T": 0}, ("velocity", "diffusivity"), "several times", 2),
    "flow": Content("flow", _FLOW, ("viscosity",), "one time", 2),
    "plane-flow": Content("flow", _FLOW, ("viscosity",), "several times and steady", 2),
}


def states_content(manifest: Manifest) -> bool:
    """Whether the manifest itself says what the dataset holds: that of collected runs does."""
    return _KEY in manifest.settings


def content_of(manifest: Manifest) -> Content:
    """What a dataset holds: as its manifest states it, or as is known of the generated datasets."""
    stated = manifest.settings.get(_KEY)
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
