"""Errors of test sets as the paper defines them."""

import math

import pytest
import torch
from torch.testing import assert_close

from pennlab.errors import Estimate, dirichlet_squared_error, domain_errors
from pennpde.case import batch
from problems import heated_plate


def test_the_standard_error_is_that_of_the_points():
    samples = torch.randn(1000, dtype=torch.float64).square()
    estimate = Estimate.of(samples)
    assert estimate.mean == pytest.approx(float(samples.mean()))
    assert estimate.standard_error == pytest.approx(float(samples.std(correction=0)) / math.sqrt(1000))


def test_cases_pool_into_the_estimate_of_all_their_points():
    parts = [torch.rand(7), 100 * torch.rand(300), torch.rand(0), torch.rand(1)]
    pooled, whole = Estimate.pooled(map(Estimate.of, parts)), Estimate.of(torch.cat(parts))
    assert pooled.count == whole.count == 308
    assert pooled.mean == pytest.approx(whole.mean, rel=1e-12)
    assert pooled.standard_error == pytest.approx(whole.standard_error, rel=1e-12)
    assert Estimate.pooled([]) == Estimate.of(torch.zeros(0))


def test_dirichlet_errors_look_at_prescribed_points_alone():
    case = heated_plate(inlet=0.5)
    field = torch.full((case.number_of_points, 4), 0.75, dtype=torch.float64)
    errors = dirichlet_squared_error(field, case.dirichlet["T"])
    assert_close(errors, torch.full((11,), 0.0625, dtype=torch.float64))
    exact = case.dirichlet["T"].apply(field)
    assert not dirichlet_squared_error(exact, case.dirichlet["T"]).any()


def test_errors_of_a_batch_are_those_of_its_cases_together():
    cases = [heated_plate(inlet=value, cells=cells, targets=True) for value, cells in ((0.2, (4, 5)), (0.9, (6, 3)))]
    fields = [{"T": torch.randn_like(case.targets["T"])} for case in cases]
    together = domain_errors({"T": torch.cat([each["T"] for each in fields])}, batch(cases))["T"]
    apart = Estimate.pooled(domain_errors(field, case)["T"] for field, case in zip(fields, cases, strict=True))
    assert together.mean == pytest.approx(apart.mean)
    assert together.standard_error == pytest.approx(apart.standard_error)


def test_a_target_that_is_not_predicted_is_named():
    with pytest.raises(KeyError, match="lacks"):
        domain_errors({}, heated_plate(targets=True))
