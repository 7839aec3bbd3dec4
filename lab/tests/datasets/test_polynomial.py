"""The gradient set: polynomials on bricks."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pennlab.datasets import polynomial


@pytest.fixture(scope="module", params=[False, True], ids=["separable", "cross terms"])
def case(request):
    return polynomial.gradient_case("train_003", cross_terms=request.param)


def test_each_split_has_a_hundred_cases_of_its_own():
    splits = polynomial.splits()
    assert {split: len(names) for split, names in splits.items()} == {"train": 100, "validation": 100, "test": 100}
    assert len({name for names in splits.values() for name in names}) == 300


def test_cases_of_different_splits_numbers_and_seeds_differ_and_the_same_come_again():
    def values(*arguments):
        return polynomial.gradient_case(*arguments).initial["phi"][:50]

    first = values("train_000")
    assert_close(values("train_000"), first, rtol=0, atol=0)
    for other in (("validation_000",), ("test_000",), ("train_001",), ("train_000", 1), ("train_000", 0, True)):
        assert not torch.equal(values(*other), first)


def test_bricks_have_10_to_20_cubes_of_size_a_tenth_along_each_axis():
    for number in range(8):
        mesh = polynomial.gradient_case(f"test_{number:03}").mesh
        extent = mesh.points.amax(dim=0) - mesh.points.amin(dim=0)
        counts = (extent / 0.1).round()
        assert_close(extent, 0.1 * counts)
        assert ((counts >= 10) & (counts <= 20)).all()
        assert mesh.number_of_cells == int(counts.prod())
        assert_close(mesh.cell_volumes, torch.full((mesh.number_of_cells,), 1e-3, dtype=torch.float64))


def test_the_largest_value_is_one(case):
    assert case.initial["phi"].abs().max() == 1


def test_the_target_is_the_gradient(case):
    # Along a line of the lattice a polynomial of degree 10 is known from 11 values, and so is its derivative.
    points, phi = case.mesh.points.numpy(), case.initial["phi"].numpy()
    for axis in range(3):
        others = [other for other in range(3) if other != axis]
        line = np.flatnonzero(np.isclose(points[:, others], points[700, others]).all(axis=1))
        centre, half = points[line, axis].mean(), np.ptp(points[line, axis]) / 2
        place = (points[line, axis] - centre) / half
        slope = np.polynomial.Chebyshev.fit(place, phi[line], 10, domain=[-1, 1]).deriv()(place) / half
        assert_close(case.targets["grad"][line, axis].numpy(), slope, rtol=0, atol=1e-6)


def test_the_neumann_value_is_the_gradient_along_the_points_own_normal(case):
    condition = case.neumann["phi"]
    expected = (case.mesh.normals * case.targets["grad"]).sum(dim=1)
    assert np.array_equal(condition.mask.nonzero().ravel(), case.mesh.patch("boundary").points)
    assert_close(condition.normals, case.mesh.normals)
    assert_close(condition.normal_derivative, expected)
    assert not case.dirichlet["phi"].mask.any()


def test_separable_polynomials_have_30_coefficients_and_others_all_of_degree_10():
    random = np.random.default_rng(0)
    separable = polynomial.random_coefficients(random, cross_terms=False)
    crossed = polynomial.random_coefficients(random, cross_terms=True)
    assert np.count_nonzero(separable) == 30
    assert np.count_nonzero(crossed) == 285  # (13 choose 3), less the constant
    assert all(np.abs(each).max() <= 1 for each in (separable, crossed))


@pytest.mark.parametrize("name", ["train", "tset_001", "train_x", "a_0.30"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match="names look like 'train_007'"):
        polynomial.gradient_case(name)
