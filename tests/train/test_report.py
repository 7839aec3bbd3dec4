"""What can be had without a network: the start, and the training case that is most alike."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pennlab.evaluation import evaluate
from pennpde.case import Case
from pennpde.train.report import NearestCase, start
from problems import heated_plate, rectangle
from small_ducts import duct

TRAIN = [duct(0), duct(2), duct(5)]


def test_a_case_that_is_there_under_another_name_is_found_and_carried_over_exactly():
    found = NearestCase(TRAIN)(replace(duct(2), name="wanted"))
    for name, values in duct(2).targets.items():
        assert_close(found[name], values, atol=1e-9, rtol=0)  # weights of the other corners are 1e-12 over a cell


def test_a_case_is_never_its_own_neighbour():
    wanted = duct(2)
    found = NearestCase(TRAIN)(wanted)
    assert not torch.allclose(found["p"], wanted.targets["p"], atol=1e-3)


@pytest.mark.parametrize(("number", "nearest"), [(1, 2), (3, 2), (4, 5)])
def test_the_nearest_has_the_nearest_parameters(number, nearest):
    found, expected = NearestCase(TRAIN)(duct(number)), duct(nearest)
    free = ~expected.dirichlet["p"].mask
    assert_close(found["p"][free], expected.targets["p"][free], atol=1e-9, rtol=0)


def test_another_shape_is_farther_away_than_another_viscosity():
    long = rectangle((8, 4), (3.0, 1.0))
    other = duct(1)
    stretched = Case(
        long,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        parameters=other.parameters,
        targets={name: values + 1 for name, values in other.targets.items()},
        name="stretched",
    )
    found = NearestCase([stretched, duct(0)])(other)
    assert_close(
        found["p"][~other.dirichlet["p"].mask], duct(0).targets["p"][~other.dirichlet["p"].mask], atol=1e-9, rtol=0
    )


def test_the_place_of_a_domain_does_not_matter():
    away = duct(2)
    away = away.moved(torch.eye(2, dtype=torch.float64), torch.tensor([100.0, -3.0], dtype=torch.float64))
    found = NearestCase(TRAIN)(replace(away, name="away"))
    assert_close(found["p"], duct(2).targets["p"], atol=1e-8, rtol=0)


def test_the_start_has_the_prescribed_values_at_every_time():
    case = heated_plate(cells=(3, 3), targets=True)
    found = start(case)["T"]
    assert found.shape == case.targets["T"].shape
    held = case.dirichlet["T"].mask
    assert bool((found[held] == 0.7).all())
    assert bool((found[~held] == 0).all())
    assert evaluate(start, [case]).pooled()["dirichlet"]["T"]["mse"] == 0.0
