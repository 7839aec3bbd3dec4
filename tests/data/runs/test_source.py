"""Which times of a run become targets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennpde.data.runs.source import RunError, Times

WRITTEN = [0.0, 0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("text", "chosen", "targets"),
    [
        ("latest", (2.0,), "one time"),
        ("steady", (2.0,), "steady"),
        ("1.5", (1.5,), "one time"),
        ("0.5,2", (0.5, 2.0), "several times"),
        ("0:2:0.5", (0.5, 1.0, 1.5, 2.0), "several times"),
        ("1:2:1", (1.0, 2.0), "several times"),
        ("2:2:1", (2.0,), "several times"),
    ],
)
def test_times_are_chosen_from_those_that_were_written(text, chosen, targets):
    times = Times.parse(text)
    assert times.chosen(WRITTEN, 0.0) == chosen
    assert times.targets == targets


@given(st.integers(1, 40), st.floats(1e-6, 1e6))
@settings(deadline=None)
def test_a_range_has_both_of_its_ends_at_any_scale(number, step):
    """Also where the number of steps is not exact in floating point."""
    times = Times.parse(f"0:{number * step!r}:{step!r}")
    written = [place * step for place in range(number + 1)]
    assert times.chosen(written, 0.0) == tuple(written[1:])


@pytest.mark.parametrize("text", ["", "soon", "1:2", "2:1:0.5", "0:1:0", "0:1:-1", "nan", "2,1", "1,1", "0:1:1e-9"])
def test_what_is_no_time_is_refused_with_what_would_be_one(text):
    with pytest.raises(ValueError, match=r"The times? (is|are) "):
        Times.parse(text)


def test_times_that_are_missing_are_named_with_those_that_are_there():
    with pytest.raises(RunError, match=r"no time 0.75; its times are 0, 0.5, 1, 1.5, 2"):
        Times.parse("0.75").chosen(WRITTEN, 0.0)
    with pytest.raises(RunError, match=r"no time after its start at 0"):
        Times.parse("latest").chosen([0.0], 0.0)
    with pytest.raises(RunError, match=r"time 0 is not after its start"):
        Times.parse("0").chosen(WRITTEN, 0.0)
