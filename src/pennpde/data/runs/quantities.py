"""Which fields and parameters of a run are whose: by default the flow's U and p, or a scalar T with its velocity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pennpde.case import Case
from pennpde.case.units import Units
from pennpde.models.advection_diffusion import AdvectionDiffusion
from pennpde.models.ducts import Flow
from pennpde.models.inlet import describe_inlet, inlet_units
from pennpde.penn.physics import FoamName, Look

_OURS = {"U": "u"}
"""Our names of fields that are called differently in OpenFOAM."""
OTHER_NAMES = {"u": ("u", "U", "velocity", "Velocity"), "p": ("p", "P", "pressure", "Pressure")} | {
    "T": ("T", "temperature", "Temperature")
}
"""Under which a file may have an unknown."""


@dataclass(frozen=True)
class Quantities:
    """What is read from every run.

    Attributes:
        network: the kind of network that fits, as in `Content`; None: none of ours.
        fields: by unknown, its field in the run. Dimensions of a field of another equation are not known: ().
        parameters: by name, the entry of `constant/transportProperties`, or else a uniform field.
        looks: how unknowns are drawn.
    """

    network: str | None
    fields: Mapping[str, FoamName]
    parameters: Mapping[str, str]
    looks: Mapping[str, Look] = field(default_factory=dict)

    def units(self, case: Case) -> Units | None:
        """Reference scales that make similar runs the same; None: lengths and values are as they are."""
        if self.network != "flow":
            return None
        try:
            return inlet_units(case)
        except ValueError:  # driven by pressure or by nothing: no inlet to take units from
            return None

    def describe(self, case: Case) -> dict[str, float]:
        """Characteristic numbers of a case, for the report."""
        return describe_inlet(case) if self.network == "flow" else {}


FLOW = Quantities("flow", Flow.foam_fields, Flow.foam_parameters, Flow.looks)
SCALAR = Quantities(
    "advection-diffusion", AdvectionDiffusion.foam_fields, AdvectionDiffusion.foam_parameters, AdvectionDiffusion.looks
)


def parse(fields: Sequence[str], parameters: Sequence[str] = ()) -> Quantities | None:
    """From `--fields`, such as U and p, T, or p=p_rgh, and `--parameters`, such as viscosity=nu; None: by the run."""
    if not fields:
        if parameters:
            raise ValueError("Parameters were named, but no fields; name both, as in --fields U,p --parameters nu.")
        return None
    names = dict(_named(each, "field") for each in fields)
    given = dict(_named(each, "parameter") for each in parameters)
    known = next((each for each in (FLOW, SCALAR) if each.fields.keys() == names.keys()), None)
    if known is not None:
        renamed = {ours: replace(known.fields[ours], name=theirs) for ours, theirs in names.items()}
        return replace(known, fields=renamed, parameters={**known.parameters, **given})
    return Quantities(None, {ours: FoamName(theirs, ()) for ours, theirs in names.items()}, given)


def of_unknowns(unknowns: Sequence[str], parameters: Sequence[str]) -> Quantities:
    """Of a problem file, which names unknowns and parameters by itself."""
    for known in (FLOW, SCALAR):
        if known.fields.keys() == set(unknowns) and set(known.parameters) <= set(parameters):
            return known
    return Quantities(None, {name: FoamName(name, ()) for name in unknowns}, {name: name for name in parameters})


def _named(given: str, what: str) -> tuple[str, str]:
    ours, equals, theirs = given.partition("=")
    theirs = theirs if equals else ours
    if not ours.strip() or not theirs.strip() or "/" in given:
        raise ValueError(f"The {what} is {given!r}; give its name in the run, or OURS=THEIRS such as p=p_rgh.")
    return (ours.strip() if equals else _OURS.get(ours.strip(), ours.strip())), theirs.strip()
