"""Grids, samples that fill the space, and the rows of a file."""

import numpy as np
import pytest

from pennpde.study.designs import designs_of, read_designs
from pennpde.study.variables import parse_vary

RANGES = [parse_vary("x=0:1"), parse_vary("y=1e-3:1e-1:log"), parse_vary("z=1,2,3")]


def test_a_grid_has_all_combinations_once_the_last_variable_fastest():
    found = designs_of([parse_vary("x=0,1"), parse_vary("y=1:3:3")], "grid", None, 0)
    assert [tuple(each.values.values()) for each in found] == [(x, y) for x in (0, 1) for y in (1, 2, 3)]
    assert [each.number for each in found] == list(range(1, 7))


def test_a_latin_hypercube_has_one_design_in_each_slice_of_each_variable():
    found = designs_of(RANGES[:2], "latin-hypercube", 20, 3)
    slices = np.floor(20 * np.array([each.values["x"] for each in found])).astype(int)
    assert sorted(slices) == list(range(20))
    powers = (np.log10([each.values["y"] for each in found]) + 3) / 2
    assert sorted(np.floor(20 * powers).astype(int)) == list(range(20))


@pytest.mark.parametrize("kind", ["latin-hypercube", "sobol"])
def test_the_same_seed_gives_the_same_samples_and_another_seed_others(kind):
    one, same, other = (designs_of(RANGES, kind, 12, seed) for seed in (1, 1, 2))
    assert one == same != other
    assert {each.values["z"] for each in one} == {1.0, 2.0, 3.0}


def test_sobol_samples_fill_the_space_more_evenly_than_chance():
    from scipy.stats import qmc

    found = np.array(
        [list(each.values.values()) for each in designs_of([parse_vary("x=0:1"), parse_vary("y=0:1")], "sobol", 64, 0)]
    )
    chance = np.random.default_rng(0).random((64, 2))
    assert qmc.discrepancy(found) < 0.3 * qmc.discrepancy(chance)


def test_a_file_of_designs_is_read_as_it_is(tmp_path):
    (tmp_path / "d.csv").write_text("viscosity, inlet.u\n0.01,1\n\n0.02,2.5\n", encoding="utf-8")
    found = read_designs(tmp_path / "d.csv")
    assert [(each.number, dict(each.values)) for each in found] == [
        (1, {"viscosity": 0.01, "inlet.u": 1.0}),
        (2, {"viscosity": 0.02, "inlet.u": 2.5}),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b\n1\n", "design 1"), ("a\nx\n", "design 1"), ("a,a\n1,2\n", "name of its own"), ("a\n", "no designs")],
)
def test_a_broken_file_of_designs_is_refused_by_its_line(tmp_path, text, words):
    (tmp_path / "d.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        read_designs(tmp_path / "d.csv")


@pytest.mark.parametrize(
    ("variables", "kind", "number", "words"),
    [
        ([], "grid", None, "Nothing varies"),
        ([RANGES[2], RANGES[2]], "grid", None, "twice"),
        (RANGES, "sobol", None, "number of designs"),
        (RANGES, "random", 3, "it may be grid"),
        ([parse_vary("x=0:1:2000"), parse_vary("y=0:1:2000")], "grid", None, "4,000,000"),
    ],
)
def test_what_makes_no_designs_is_refused(variables, kind, number, words):
    with pytest.raises(ValueError, match=words):
        designs_of(variables, kind, number, 0)
