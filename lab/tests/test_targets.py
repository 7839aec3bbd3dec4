"""By which targets of a case a network is judged."""

from dataclasses import replace

import torch

from pennlab.targets import judged
from pennpde.data.vtkhdf import CaseFile
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network
from problems import heated_plate
from small_ducts import duct

FLOW = flow_network(width=1, iterations=1, pressure_iterations=1)
STEADY = flow_network(width=1, iterations=1, pressure_iterations=1, moment="steady")
HEAT = advection_diffusion_network(width=1, iterations=1, hidden=2)


def series(*times) -> CaseFile:
    """`duct(k)` at the k-th of the times, and a steady state."""
    each = [duct(number).targets for number in range(len(times))]
    targets = {name: torch.stack([one[name] for one in each], dim=-1) for name in ("u", "p")}
    steady = {f"steady_{name}": values for name, values in duct(5).targets.items()}
    return CaseFile(replace(duct(0), targets=targets | steady), times)


def test_a_network_is_judged_at_its_own_time_alone():
    assert judged(FLOW, series(1.0, 2.0)) is None
    assert judged(FLOW, series(1.0, 4.05)).targets["p"].shape == duct(1).targets["p"].shape
    assert judged(STEADY, series(1.0, 2.0)).targets["p"].shape == duct(5).targets["p"].shape


def test_targets_that_are_what_it_predicts_stay_as_they_are():
    one, all_times = (
        CaseFile(duct(3), (17.0,)),
        CaseFile(heated_plate(cells=(3, 3), targets=True), (0.25, 0.5, 0.75, 1.0)),
    )
    assert judged(FLOW, one) is one.case
    assert judged(HEAT, all_times) is all_times.case
