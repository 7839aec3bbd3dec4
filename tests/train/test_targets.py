"""Which targets of a case a network learns."""

from dataclasses import replace

import pytest
import torch

from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile
from pennpde.flow.scheme import FlowScheme
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network
from pennpde.penn.predictor import seen_by
from pennpde.train.cases import learned, learned_time
from pennpde.train.experiment import Experiment, examples
from problems import heated_plate
from small_ducts import duct, flow_in_units

FLOW = flow_network(width=1, iterations=1, pressure_iterations=1)
STEADY = flow_network(width=1, iterations=1, pressure_iterations=1, moment="steady")
HEAT = advection_diffusion_network(width=1, iterations=1, hidden=2)
GENERAL = FlowScheme()


def series(times, steady=False, length=1.0, speed=1.0) -> CaseFile:
    """`duct(k)` at the k-th of the times, and `duct(5)` when steady."""
    each = [duct(number).targets for number in range(len(times))]
    targets = {name: torch.stack([one[name] for one in each], dim=-1) for name in ("u", "p")} if times else {}
    if steady:
        targets |= {f"steady_{name}": values for name, values in duct(5).targets.items()}
    case = flow_in_units(replace(duct(0), targets=targets), length, speed)
    return CaseFile(case, tuple(time * length / speed for time in times))


def learned_number(model, file) -> int:
    """Which duct the targets are those of."""
    (case,) = learned(model, file)
    assert case.targets.keys() == {"u", "p"}
    speed = float(case.dirichlet["u"].values.norm(dim=1).max())
    return next(k for k in range(6) if torch.allclose(case.targets["p"] / speed**2, duct(k).targets["p"], atol=1e-9))


@pytest.mark.parametrize(("length", "speed"), [(1.0, 1.0), (1e-3, 0.2)])
def test_of_several_times_a_network_learns_its_own_in_any_units(length, speed):
    assert learned_number(FLOW, series((1.0, 4.0, 7.0), length=length, speed=speed)) == 1
    assert learned_time(FLOW, series((1.0, 4.0, 7.0), length=length, speed=speed)) == pytest.approx(4.0)


def test_without_its_own_time_it_learns_the_last():
    file = series((1.0, 2.0), steady=True)
    assert learned_number(FLOW, file) == 1


def test_a_network_of_steady_states_takes_those():
    assert learned_number(STEADY, series((1.0, 2.0), steady=True)) == 5


def test_a_steady_state_that_is_alone_is_learned():
    assert learned_number(FLOW, series((), steady=True)) == 5
    assert learned_time(FLOW, series((), steady=True)) == float("inf")


def test_one_time_is_taken_as_it_is_to_the_last_bit():
    file = CaseFile(duct(3), (17.0,))
    assert learned(FLOW, file) == [file.case]


def test_a_network_of_several_times_takes_all_of_them():
    file = CaseFile(heated_plate(cells=(3, 3), targets=True), (0.25, 0.5, 0.75, 1.0))
    assert learned(HEAT, file) == [file.case]


def test_a_network_for_any_time_learns_every_moment_as_a_case():
    found = learned(GENERAL, series((0.5, 2.0), steady=True))
    assert [float(case.parameters["time"]) for case in found] == [0.5, 2.0]
    assert all(case.targets["p"].ndim == 1 for case in found)
    (steady,) = learned(GENERAL, series((), steady=True))
    assert float(steady.parameters["time"]) == float("inf")


def test_moments_of_a_run_in_other_units_share_one_mesh_in_those_of_the_network(tmp_path):
    file = series((0.5, 2.0), length=1e-3, speed=0.2)
    storage.write(tmp_path, [file.case], {"train": [file.case.name]}, "plane-flow", times=file.times)
    early, late = examples(Experiment("here", "plane-flow", "flow"), GENERAL, tmp_path, None).train
    assert [float(case.parameters["time"]) for case in (early, late)] == pytest.approx([0.5, 2.0])
    assert early.mesh is late.mesh
    assert seen_by(GENERAL, early).case is early, "nothing is left to scale"
    for number, case in enumerate((early, late)):
        torch.testing.assert_close(case.targets["u"], duct(number).targets["u"], rtol=1e-5, atol=1e-6)


def test_cases_without_a_split_for_training_are_refused():
    experiment = Experiment("here", "flow", "flow")
    with pytest.raises(ValueError, match=r"has no training cases.*It has test"):
        examples(experiment, FLOW, {"test": [duct(0)]}, None)
