"""Work on many cases: what fails, or takes its process with it, stops no other."""

import os
import signal

import pytest

from pennpde.data.workers import Failure, Status, each


def work(what: str) -> str:
    if what == "fails":
        raise ValueError("it is damaged")
    if what == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    return what.upper()


def test_what_fails_is_told_and_the_others_go_on():
    heard = []
    found = dict(each(work, {"one": ("a",), "two": ("fails",), "three": ("c",)}, workers=0, on_progress=heard.append))
    assert found == {"one": "A", "two": Failure("it is damaged"), "three": "C"}
    assert heard == [Status(3), Status(3, 1), Status(3, 1, 1), Status(3, 2, 1)]
    assert dict(each(work, {}, workers=2)) == {}


@pytest.mark.slow
def test_a_process_that_dies_loses_its_own_case_only():
    found = dict(each(work, {"one": ("a",), "two": ("dies",), "three": ("c",)}, workers=2))
    assert (found["one"], found["three"]) == ("A", "C")
    assert "died, perhaps for lack of memory" in found["two"].error
