"""Quantities of a flow about which nobody has said what they want to know."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import numpy as np

from pennpde.penn.equation import OUTFLOW
from pennpde.quantities.solved import SolvedFlow
from pennpde.quantities.walls import is_body

_LEAST = 0.01
"""Share of all that enters from which on a patch is an inlet or an outlet."""


def usual(flow: SolvedFlow) -> list[str]:
    """Texts for `parse`: the loss between inlets and outlets, shares of outlets, forces on bodies and moving walls."""
    if OUTFLOW not in flow.balance:
        return []
    patches = {name: flow.facets(name) for name in flow.case.mesh.patches}
    leaving = {name: float(flow.outflow[-1, facets].sum()) for name, facets in patches.items()}
    least = _LEAST * sum(abs(each) for each in leaving.values())
    inlets = [name for name, each in leaving.items() if each < -least < 0]
    outlets = [name for name, each in leaving.items() if each > least > 0]
    walls = {name: facets for name, facets in patches.items() if name not in (*inlets, *outlets)}
    bodies = [name for name, facets in walls.items() if len(facets) and is_body(flow, facets)]
    found = [f"{what} {shlex.quote(body)}" for body in bodies for what in ("drag", "lift")] if inlets else []
    if inlets and outlets:
        found.append(f"pressure drop {_joined(inlets)} {_joined(outlets)}")
    for place, outlet in enumerate(outlets if len(outlets) > 1 else ()):
        others = outlets[:place] + outlets[place + 1 :]
        found.append(f"flow split {' '.join(map(shlex.quote, [outlet, *others]))}")
    slips = flow.case.slip["u"].mask.cpu().numpy() if "u" in flow.case.slip else np.zeros(len(flow.points), bool)
    speeds = np.linalg.norm(flow.fields["u"][-1], axis=1)
    for name, facets in walls.items():
        if (
            len(facets)
            and not slips[flow.ends[facets]].all()
            and np.median(speeds[flow.ends[facets]]) > 0.1 * speeds.max()
        ):
            found += [f"force {axis} {shlex.quote(name)}" for axis in "xy"]
    return found


def _joined(patches: Iterable[str]) -> str:
    return shlex.quote("+".join(patches))
