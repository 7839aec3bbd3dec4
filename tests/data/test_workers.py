"""Work on many cases: what fails, or takes its process with it, stops no other."""

import os
import signal

import pytest

from pennpde.data.workers import Failure, SchedulerError, Status, each


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


@pytest.mark.slow
def test_a_scheduler_does_the_same():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        found = dict(each(work, {"one": ("a",), "two": ("fails",)}, scheduler=cluster.scheduler_address))
    assert found == {"one": "A", "two": Failure("it is damaged")}


def test_a_scheduler_that_is_not_there_is_named(monkeypatch):
    from distributed import Client

    def refuse(*_, **__):
        raise OSError("Timed out trying to connect to tcp://nowhere:1")

    monkeypatch.setattr(Client, "__init__", refuse)
    with pytest.raises(SchedulerError, match=r"no Dask scheduler at 'tcp://nowhere:1'.*leave the address out"):
        dict(each(work, {"one": ("a",)}, scheduler="tcp://nowhere:1"))
