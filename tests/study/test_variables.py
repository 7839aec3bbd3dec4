"""Ranges and lists of numbers, as people write them."""

import pytest

from pennpde.study.variables import Variable, parse_vary


def test_a_list_a_range_and_a_logarithmic_range_have_the_numbers_that_are_written():
    assert parse_vary("inlet.u=0.5,1,2") == Variable("inlet.u", (0.5, 1.0, 2.0))
    assert parse_vary("x=0.1:0.3:3").steps == (0.1, 0.2, 0.3)
    assert parse_vary("x=1e-3:1:log:4").steps == (0.001, 0.01, 0.1, 1.0)
    assert Variable.of("x", 2).steps == (2.0,)
    assert Variable.of("x", [1, 2, 1]).steps == (1.0, 2.0)


@pytest.mark.parametrize("text", ["0.5,1,2", "0.1:0.3", "0.1:0.3:7", "0.001:1.0:log:4"])
def test_the_text_of_a_variable_is_read_as_the_same_variable(text):
    one = parse_vary(f"x={text}")
    assert Variable.of("x", one.text) == one


def test_shares_of_the_way_stay_within_a_range_and_its_ends_are_exact():
    linear, logarithmic = parse_vary("x=0.1:0.3"), parse_vary("x=1e-3:1e-1:log")
    assert (linear.neatly(0.0), linear.neatly(0.5), linear.neatly(1.0)) == (0.1, 0.2, 0.3)
    assert logarithmic.at(0.5) == pytest.approx(1e-2, rel=1e-12)
    assert [parse_vary("x=1,2,3").at(share) for share in (0.0, 0.4, 1.0)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("viscosity", "NAME=VALUES"),
        ("x=a,b", "write numbers"),
        ("x=1:2:3:4", "write numbers"),
        ("x=2:1", "lower end"),
        ("x=1:2:2.5", "count of steps"),
        ("x=-1:1:log:3", "above zero"),
        ("x=1,inf", "write numbers"),
    ],
)
def test_what_is_no_range_is_refused_with_what_to_write(text, words):
    with pytest.raises(ValueError, match=words):
        parse_vary(text)


def test_a_range_without_steps_is_no_part_of_a_grid():
    with pytest.raises(ValueError, match="latin-hypercube"):
        parse_vary("x=1:2").steps  # noqa: B018
