"""Where the pressure is prescribed at a single point, only its differences count: in errors, clues and maps."""

import numpy as np
import pytest
import torch

from any_time import AnyTime
from calibrated import made_up
from flow_problems import square
from pennpde import metrics
from pennpde.case import Case
from pennpde.prediction import predict
from pennpde.train import calibrate as calibrating
from pennpde.trust.calibration import COARSER_SOLUTION
from pennpde.trust.expected_error import uncalibrated

TIME = 4.0


def vessel(*, is_open: bool) -> Case:
    """A square whose left side moves; on the right it has an outlet, or a single point with a pressure."""
    mesh = square("quad", 6)
    held = np.zeros(mesh.number_of_points, bool)
    held[int(mesh.points.square().sum(dim=1).argmax())] = True
    mesh = mesh.with_patches({"point": held})
    walls = {"inlet": (0.0, 1.0), "wall": 0.0} | ({} if is_open else {"outlet": 0.0})
    return Case(
        mesh,
        initial={"u": torch.sin(mesh.points), "p": mesh.points[:, 0]},
        dirichlet={"u": walls, "p": {"outlet" if is_open else "point": 0.0}},
        parameters={"viscosity": 0.01},
    )


class Shifted(AnyTime):
    """Its second opinion has another level of the pressure."""

    def coarser_solution(self, case, times):
        fields = self.solve(case, times).fields
        return {"u": fields["u"], "p": fields["p"] + 3.0}


@pytest.mark.parametrize("is_open", [True, False])
def test_the_error_of_a_pressure_without_level_is_that_of_its_differences(is_open):
    case, model = vessel(is_open=is_open), AnyTime()
    fields = predict(model, case, times=[TIME], resolution="own").fields
    found = {name: values.reshape(case.initial[name].shape) for name, values in fields.items()}
    for level, slope in ((0.5, 1.0), (7.0, 1.0), (7.0, 1.2)):
        truth = {TIME: {"u": found["u"], "p": slope * found["p"] + level}}
        (measured,) = calibrating.measure(model, calibrating.Known(case, "vessel", truth))
        assert measured.errors["u"] == pytest.approx(0.0, abs=1e-6)
        if is_open:
            assert measured.errors["p"] > 0.1
        else:
            assert measured.errors["p"] == pytest.approx(abs(1 - slope) / slope, abs=1e-6)


def test_two_solutions_with_another_level_agree_in_a_closed_vessel():
    for is_open in (True, False):
        model = Shifted()
        with uncalibrated(model):
            (evidence,) = predict(model, vessel(is_open=is_open), resolution="own").evidence
        apart = evidence.numbers[COARSER_SOLUTION + "p"]
        assert apart > 0.0 if is_open else apart < -5.0
        assert (float(evidence.local["p"].max()) > 1.0) is is_open


def test_the_map_of_a_pressure_without_level_has_the_size_of_its_differences():
    case, model = vessel(is_open=False), AnyTime()
    object.__setattr__(model, "checkpoint_calibrations", {"": made_up(0.02)})
    outcome = predict(model, case, resolution="own")
    volumes, found = case.mesh.point_volumes, outcome.fields["p"].reshape(-1)
    local, about, whole = (
        float((volumes * each.square()).sum()) ** 0.5
        for each in (outcome.mesh.fields["expected_error_p"], metrics.without_level(found, volumes), found)
    )
    assert whole > 1.5 * about
    assert local == pytest.approx(outcome.expected.errors["p"].expected * about, rel=1e-3)


def test_a_note_says_that_the_level_does_not_count():
    for is_open in (True, False):
        notes = predict(AnyTime(), vessel(is_open=is_open), resolution="own").certificate.notes
        assert any(each.startswith("p is prescribed at no more than one point") for each in notes) is not is_open


def test_the_root_mean_square_counts_lengths_of_vectors_by_volume():
    values, volumes = torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([1.0, 3.0])
    assert metrics.root_mean_square(values, volumes) == pytest.approx(((25 + 3 * 1) / 4) ** 0.5)
    assert metrics.root_mean_square(values[:, 1], volumes) == pytest.approx(((16 + 3 * 1) / 4) ** 0.5)


def test_values_without_level_have_no_mean_over_the_domain():
    torch.manual_seed(0)
    volumes = torch.rand(20, dtype=torch.float64)
    for values in (torch.rand(20, dtype=torch.float64), torch.rand(20, 2, 3, dtype=torch.float64)):
        left = metrics.without_level(values, volumes)
        assert float(torch.tensordot(volumes, left, dims=1).abs().max()) < 1e-14
        assert float((left - values).std(dim=0).max()) < 1e-14
