"""Evaluation: errors as the paper defines them, on any function of a case, timed and pooled."""

import json
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from evaluated_flows import flow_case, off_by
from pennlab.evaluation import evaluate
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network
from problems import heated_plate, polynomial
from small_ducts import duct, flow_in_units

CASES = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True) for k in (1, 2, 3)]


def test_a_velocity_in_the_plane_is_averaged_over_three_components():
    found = evaluate(off_by(0.3, 0.2), [flow_case("a_0.10")]).pooled()
    assert found["domain"]["u"]["mse"] == pytest.approx(2 * 0.3**2 / 3)
    assert found["domain"]["p"]["mse"] == pytest.approx(0.2**2)
    assert found["domain"]["u"]["standard_error"] == pytest.approx(0.0, abs=1e-12)


def test_errors_pool_over_points_and_split_by_type():
    cases = [flow_case("a_0.10", (2, 2)), flow_case("b_0.10_0.20", (4, 4))]
    errors = {"a_0.10": 1.0, "b_0.10_0.20": 2.0}

    def model(case):
        return {"u": case.targets["u"], "p": case.targets["p"] + errors[case.name]}

    found = evaluate(model, cases)
    assert found.types == ["a", "b"]
    assert found.pooled("a")["domain"]["p"]["mse"] == pytest.approx(1.0)
    assert found.pooled("b")["domain"]["p"]["mse"] == pytest.approx(4.0)
    # 9 points with error 1, 25 with error 4; standard error = deviation over the root of the number of points
    samples = torch.tensor([1.0] * 9 + [4.0] * 25, dtype=torch.float64)
    pooled = found.pooled()["domain"]["p"]
    assert pooled["mse"] == pytest.approx(float(samples.mean()))
    assert pooled["standard_error"] == pytest.approx(float(samples.std(correction=0)) / 34**0.5)


def test_dirichlet_errors_are_those_at_prescribed_points_alone():
    def model(case):
        return {name: case.dirichlet[name].apply(torch.ones_like(case.initial[name])) for name in ("u", "p")}

    found = evaluate(model, [flow_case("a_0.10")]).pooled()
    assert found["dirichlet"]["u"]["mse"] == found["dirichlet"]["p"]["mse"] == 0.0
    # inlet 5 points, of which the corners belong to the sides: 3 inlet and 10 side points
    assert found["dirichlet"]["u"]["count"] == 13


def test_prescribed_values_are_compared_in_the_precision_of_the_network():
    class Prescribed(nn.Module):
        def __init__(self):
            super().__init__()
            self.nothing = nn.Parameter(torch.zeros(1))

        def forward(self, case):
            values = torch.zeros(case.number_of_points, 4)
            return {"T": case.dirichlet["T"].apply(values)}

    found = evaluate(Prescribed(), [heated_plate(inlet=0.1, cells=(4, 4), targets=True)]).pooled()
    assert found["dirichlet"]["T"]["mse"] == 0.0


def test_the_neumann_error_of_an_exact_gradient_is_round_off_and_of_zero_the_mean_square():
    case = polynomial(cells=(4, 4, 4))
    exact = evaluate(lambda case: {"grad": case.targets["grad"]}, [case]).pooled()
    assert exact["neumann"]["phi"]["mse"] < 1e-28
    nothing = evaluate(lambda case: {"grad": torch.zeros_like(case.targets["grad"])}, [case]).pooled()
    condition = case.neumann["phi"]
    expected = condition.normal_derivative[condition.mask].square().mean()
    assert nothing["neumann"]["phi"]["mse"] == pytest.approx(float(expected))
    assert nothing["relative_l2"]["grad"] == pytest.approx(1.0)


def test_a_rigid_motion_leaves_the_errors_of_an_equivariant_network_to_five_digits():
    class Positions(nn.Module):
        def forward(self, case):
            return {"T": case.mesh.points[:, :1].expand_as(case.targets["T"])}

    torch.manual_seed(0)
    for model, is_equivariant in (
        (advection_diffusion_network(width=4, iterations=3, hidden=8), True),
        (Positions(), False),
    ):
        straight, moved = (
            evaluate(model, CASES, transformed=transformed, dtype=torch.float64).pooled()["domain"]["T"]["mse"]
            for transformed in (False, True)
        )
        assert (moved == pytest.approx(straight, rel=1e-5)) == is_equivariant


def test_what_a_network_prepares_once_a_mesh_is_no_part_of_its_time():
    class WithGraphs(nn.Module):
        prepared = 0

        def prepare(self, case):
            time.sleep(0.2)
            self.prepared += 1

        def forward(self, case):
            return {"T": case.targets["T"]}

    model = WithGraphs()
    records = evaluate(model, CASES[:2], repeats=3).records
    assert model.prepared == 2
    assert all(record.seconds < 0.2 <= record.preparation for record in records)


def test_a_record_is_timed_and_says_on_what(monkeypatch):
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=3, hidden=8)
    before = torch.get_num_threads()
    found = evaluate(model, CASES, threads=1, about={"model": "here", "split": "test"}, repeats=2)
    plain = json.loads(json.dumps(found.to_plain(), allow_nan=False))
    assert (plain["kind"], plain["model"], plain["split"]) == ("evaluation", "here", "test")
    assert (plain["threads"], plain["precision"], plain["cases"]) == (1, "float32", 3)
    assert plain["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert all(record["seconds"] > 0 for record in plain["records"])
    assert torch.get_num_threads() == before
    assert plain["types"] == {}
    assert all(case.cached_operators is None for case in CASES), "a test set must not fill the memory"


@pytest.mark.parametrize(("length", "speed", "pressure"), [(1e-3, 0.2, 0.0), (40.0, 7.0, 3.0)])
def test_the_same_flow_in_other_units_has_the_same_relative_errors_and_squared_errors_in_its_own(
    length, speed, pressure
):
    torch.manual_seed(0)
    model = flow_network(width=4, iterations=2, pressure_iterations=2).double()
    cases = [duct(1), duct(4)]
    plain, scaled = (
        evaluate(model, given) for given in (cases, [flow_in_units(case, length, speed, pressure) for case in cases])
    )
    for one, other in zip(plain.records, scaled.records, strict=True):
        assert one.relative == pytest.approx(other.relative, rel=1e-8)
    factors = {"u": speed**2, "p": speed**4}
    for what, along in (("domain", 1.0), ("neumann", length**2)):
        for name, factor in factors.items():
            expected, found = (each.pooled()[what][name] for each in (plain, scaled))
            assert found["mse"] == pytest.approx(expected["mse"] * factor / along, rel=1e-8)
            assert found["standard_error"] == pytest.approx(expected["standard_error"] * factor / along, rel=1e-8)
    assert scaled.pooled()["dirichlet"]["u"]["mse"] == 0.0


def test_kept_fields_are_in_the_units_of_the_case():
    torch.manual_seed(0)
    model = flow_network(width=4, iterations=2, pressure_iterations=2).double()
    kept = {}
    case = flow_in_units(duct(1), 1e-3, 0.2, 5.0)
    evaluate(model, [case], keep=lambda given, fields: kept.update({given.name: (given, fields)}))
    given, fields = kept["duct_1"]
    assert given is case
    held = case.dirichlet["p"].mask
    torch.testing.assert_close(fields["p"][held], case.dirichlet["p"].values[held])


def test_what_cannot_be_compared_is_named():
    with pytest.raises(ValueError, match="at least one case"):
        evaluate(off_by(0, 0), [])
    with pytest.raises(ValueError, match=r"no targets to compare with, the first is 'a_0\.10'"):
        evaluate(off_by(0, 0), [replace(flow_case("a_0.10"), targets={})])
    with pytest.raises(KeyError, match="lacks"):
        evaluate(lambda case: {"u": case.targets["u"]}, [flow_case("a_0.10")])
