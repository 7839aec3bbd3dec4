"""The processes behind the page, with a small script in their place."""

import asyncio
import sys

import pytest

from pennpde.viewer import workers
from pennpde.viewer.workers import BusyError, CrashError, Lane, Pool, Worker, WorkError
from waiting import waited_for

SCRIPT = """
import json, os, sys, time
from pennpde.viewer.workers import send
send(sys.stdout.buffer, {"network": "fake"} if "--broken" not in sys.argv else {"error": "no such network"}, [])
for line in sys.stdin.buffer:
    message = json.loads(line)
    name = message.get("request", {}).get("name", message.get("name"))
    if name == "crash":
        os._exit(11)
    if name == "hang":
        time.sleep(600)
    if name == "wrong":
        send(sys.stdout.buffer, {"error": "wrong in a way"}, [])
        continue
    send(sys.stdout.buffer, {"name": name, "process": os.getpid()}, [name.encode() * 100_000])
"""


@pytest.fixture(autouse=True)
def fake_processes(monkeypatch, tmp_path):
    path = tmp_path / "fake.py"
    path.write_text(SCRIPT)
    start = asyncio.create_subprocess_exec

    async def started(_executable, _module, _name, *arguments, **options):
        return await start(sys.executable, str(path), *arguments, **options)

    monkeypatch.setattr(workers.asyncio, "create_subprocess_exec", started)


def with_worker(use):
    async def run():
        worker = Worker([])
        try:
            assert await worker.start() == {"network": "fake"}
            return await use(worker)
        finally:
            await worker.close()

    return waited_for(run())


def test_an_answer_has_words_and_bytes_of_any_size():
    async def use(worker):
        return await worker.ask({"name": "a"}, "a", 60.0)

    words, parts = with_worker(use)
    assert words["name"] == "a"
    assert parts == [b"a" * 100_000]


@pytest.mark.parametrize(("name", "patience", "words"), [("crash", 60.0, "crashed"), ("hang", 0.2, "given up")])
def test_a_process_that_crashes_or_hangs_is_replaced(name, patience, words):
    async def use(worker):
        before, _ = await worker.ask({"name": "a"}, "a", 60.0)
        with pytest.raises(CrashError, match=words):
            await worker.ask({"name": name}, "This file", patience)
        after, _ = await worker.ask({"name": "a"}, "a", 60.0)
        return before["process"], after["process"]

    before, after = with_worker(use)
    assert before != after


def test_what_a_process_says_is_wrong_is_an_error_and_it_lives_on():
    async def use(worker):
        with pytest.raises(WorkError, match="wrong in a way"):
            await worker.ask({"name": "wrong"}, "this", 60.0)
        return await worker.ask({"name": "b"}, "b", 60.0)

    assert with_worker(use)[0]["name"] == "b"


def test_a_network_that_cannot_be_loaded_is_named_at_the_start():
    async def run():
        with pytest.raises(WorkError, match="no such network"):
            await Worker(["--broken"]).start()

    waited_for(run())


def test_a_long_prediction_keeps_no_short_one_waiting():
    async def run():
        made = Pool([], workers=1)
        try:
            assert await made.start() == {"network": "fake"}
            slow = asyncio.create_task(made.view({"name": "hang"}, large=True))
            words, record = await asyncio.wait_for(made.view({"name": "b"}, large=False), 60.0)
            assert not slow.done()
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)
            return words, record
        finally:
            await made.close()

    words, record = waited_for(run())
    assert words["name"] == "b"
    assert len(record) == 100_000


def test_what_follows_a_hand_comes_before_what_waits():
    class Quick(Worker):
        async def ask(self, message, what, patience, hear=None):
            return {"name": what}, []

    async def run():
        lane, done = Lane([]), []

        async def asked(what, urgent):
            done.append((await lane.ask({}, what, 1.0, urgent=urgent))[0]["name"])

        waiting = [asyncio.create_task(asked(what, what.startswith("hand"))) for what in ("a", "b", "hand", "gone")]
        await asyncio.sleep(0)
        waiting.pop().cancel()
        await asyncio.sleep(0)
        lane.open(Quick([]))
        await asyncio.gather(*waiting)
        return done

    assert waited_for(run()) == ["hand", "a", "b"]


def test_more_than_can_wait_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(workers, "MOST_WAITING", 1)

    async def run():
        lane = Lane([])
        waiting = asyncio.create_task(lane.ask({}, "a", 1.0))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="too much to do"):
            await lane.ask({}, "b", 1.0)
        waiting.cancel()

    waited_for(run())
