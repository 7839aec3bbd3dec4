"""The flow network with the paper's outlet, [grad u + (grad u)^T] n = 0, in place of grad u n = 0.

The data have the latter: OpenFOAM's `zeroGradient`. What the former costs or gains is a row of the flow tables.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from pennpde.case import Case
from pennpde.case.conditions import StressFree
from pennpde.models.ducts import Flow, flow_network
from pennpde.penn import PENN


class FlowWithThePapersOutlet(Flow):
    """Momentum and pressure with outlets that are free of viscous stress."""

    def complete(self, case: Case) -> Case:
        return without_stress(super().complete(case))


def without_stress(case: Case) -> Case:
    """The case with outlets free of viscous stress where the slope of the velocity is prescribed as zero."""
    if case.conditions.get(StressFree.kind):
        return case
    neumann = case.neumann["u"]
    if bool(neumann.normal_derivative.any()) or neumann.course is not None:
        raise ValueError(f"The case {case.name!r} prescribes slopes of the velocity that are not zero.")
    freed = StressFree(neumann.mask, neumann.normals, torch.zeros_like(case.initial["u"]))
    nowhere = replace(neumann, mask=torch.zeros_like(neumann.mask), normals=torch.zeros_like(neumann.normals))
    conditions = {
        **case.conditions,
        "neumann": {**case.neumann, "u": nowhere},
        StressFree.kind: {"u": freed},
    }
    return replace(case, conditions=conditions, cached_operators=None)


def flow_with_the_papers_outlet(**arguments) -> PENN:
    """As `flow_network`."""
    made = flow_network(**arguments)
    made.equation.__class__ = FlowWithThePapersOutlet
    return made
