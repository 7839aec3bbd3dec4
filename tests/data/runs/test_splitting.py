"""How far runs are from each other, and splits without near twins."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from finished_runs import square
from pennpde.case import Case
from pennpde.data.runs.source import FLOW
from pennpde.data.runs.survey import Shares, Signature, distance, divide


def flow(length: float = 2.0, viscosity: float = 0.01, speed: float = 1.0, scale: float = 1.0, cells: int = 8) -> Case:
    mesh = square(cells)
    stretched = mesh.with_points(mesh.points * torch.tensor([length, 1.0], dtype=torch.float64) * scale)
    stretched = stretched.with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], length * scale),
            "wall": lambda x: np.isclose(x[:, 1], 0.0) | np.isclose(x[:, 1], scale),
        }
    )
    return Case(
        stretched,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": [speed, 0.0], "wall": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": viscosity},
    )


def signature(**changes) -> Signature:
    return Signature.of(flow(**changes), FLOW)


def test_a_run_that_is_turned_mirrored_moved_scaled_or_remeshed_is_the_same_run():
    plain = flow()
    turn = torch.tensor([[0.6, -0.8], [-0.8, -0.6]], dtype=torch.float64)  # a reflection
    others = {
        "moved": plain.moved(turn, torch.tensor([3.0, -1.0], dtype=torch.float64)),
        "scaled": flow(scale=0.01, speed=0.1, viscosity=1e-5),  # the same Reynolds number
        "finer": flow(cells=13),
    }
    for name, other in others.items():
        assert distance(Signature.of(plain, FLOW), Signature.of(other, FLOW)) < 0.6, name


@pytest.mark.parametrize("change", [{"length": 2.3}, {"viscosity": 0.012}, {"viscosity": 0.008}])
def test_runs_of_other_shape_or_reynolds_number_are_no_twins(change):
    assert distance(signature(), signature(**change)) > 1.0


def test_small_changes_make_near_twins():
    assert distance(signature(), signature(length=2.02)) < 1.0
    assert distance(signature(), signature(viscosity=0.0105)) < 1.0


def test_other_conditions_on_the_same_mesh_are_no_twins():
    case = flow()
    tilted = case.dirichlet["u"].values.clone()
    tilted[:, 1] = 0.3 * tilted[:, 0]
    u = replace(case.dirichlet["u"], values=tilted)
    other = replace(case, conditions={**case.conditions, "dirichlet": {**case.dirichlet, "u": u}})
    assert distance(Signature.of(case, FLOW), Signature.of(other, FLOW)) > 1.0


def line(values: list[float]) -> dict[str, Signature]:
    """Runs that differ in one parameter only: the natural logarithm of it is given in distances of near twins."""
    base = signature()
    return {
        f"run_{place:03d}": replace(base, parameters={"viscosity": 0.15 * value}) for place, value in enumerate(values)
    }


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(0, 3))
def test_near_twins_are_never_in_different_splits_while_there_are_others_to_hold_out(places, seed):
    """Twins sit at the same place, different runs 1.5 distances of near twins apart or more."""
    runs = line([1.5 * place for place in places])
    division = divide(runs, Shares(0.1, 0.1, seed))
    of_run = {name: split for split, names in division.splits.items() for name in names}
    assert of_run.keys() == runs.keys()
    alone = sum(places.count(place) == 1 for place in places)
    if alone > sum(Shares().numbers(len(places))) and len(places) >= 3:
        for (one, first), (other, second) in combinations(zip(runs, places, strict=True), 2):
            assert first != second or of_run[one] == of_run[other]
        assert division.nearest is None or division.nearest > 1
        assert division.splits["test"]
        assert division.splits["validation"]


def test_shares_are_met_where_all_runs_differ():
    division = divide(line([2.0 * place for place in range(40)]), Shares(0.1, 0.2, 5))
    assert [len(division.splits[split]) for split in ("train", "validation", "test")] == [28, 4, 8]
    assert division.groups == 40


def test_the_seed_decides_and_nothing_else():
    runs = line([2.0 * place for place in range(20)])
    first, again, other = (divide(runs, Shares(seed=seed)).splits for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_chain_of_near_twins_is_parted_and_the_division_says_so():
    division = divide(line([0.5 * place for place in range(20)]), Shares())
    assert [len(division.splits[split]) for split in ("train", "validation", "test")] == [16, 2, 2]
    assert division.nearest == pytest.approx(0.5)
    assert len(division.closest) == 2


def test_runs_that_are_added_leave_the_others_where_they_were():
    runs = line([2.0 * place for place in range(10)])
    before = divide(runs, Shares()).splits
    known = {name: split for split, names in before.items() for name in names}
    tested = before["test"][0]
    twin = replace(runs[tested], parameters={"viscosity": runs[tested].parameters["viscosity"] + 0.01})
    after = divide({**runs, "twin": twin}, Shares(), known).splits
    assert all(name in after[split] for name, split in known.items())
    assert "twin" in after["test"]


@pytest.mark.parametrize(("number", "sizes"), [(1, [1, 0, 0]), (2, [1, 0, 1]), (3, [1, 1, 1]), (6, [4, 1, 1])])
def test_few_runs_are_split_as_far_as_they_go(number, sizes):
    division = divide(line([3.0 * place for place in range(number)]), Shares())
    assert [len(division.splits[split]) for split in ("train", "validation", "test")] == sizes


def test_shares_that_leave_nothing_to_train_on_are_refused():
    with pytest.raises(ValueError, match="together less than 1"):
        Shares(0.5, 0.5)
