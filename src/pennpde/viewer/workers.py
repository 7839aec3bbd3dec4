"""Processes that do the work of the page, so that the page itself always answers.

Small predictions and large ones wait in different lanes: whoever moves a slider does not wait for somebody's mesh of a
hundred thousand points. A process that crashes or takes too long is replaced. It is `python -m pennpde.viewer.workers`:
a line of JSON comes in, an answer goes out, a JSON object and any number of byte strings, behind their lengths. Nothing
is unpickled, so that a file that gets hold of a process gets no further.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from pennpde import progress
from pennpde.progress import Hear

MOST_WAITING = 400
"""Requests in a lane; further ones are refused at once."""
MOST_MEMORY = 6 * 2**30
_START, _READING, _VIEW = 120.0, 60.0, 180.0
"""Seconds after which something is given up."""
Answer = tuple[dict[str, Any], list[bytes]]
_INTERVAL = 0.2
"""Seconds between two words about the progress."""


def _deaf(stage: str, share: float) -> None: ...


class BusyError(RuntimeError):
    """More is asked for than the machine can do."""


class CrashError(ValueError):
    """A process ended, or was ended, while it worked on something."""


class WorkError(ValueError):
    """What a process says about a request that it cannot fulfil: words for the user."""


class Worker:
    """One process, started with the arguments of `main`."""

    def __init__(self, arguments: Sequence[str]):
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> dict[str, Any]:
        """Have the process ready, and return what it says at its start."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pennpde.viewer.workers",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # VTK complains to the terminal, past Python
            start_new_session=True,  # Ctrl+C is meant for the server
            limit=2**20,
        )
        try:
            content, _ = await asyncio.wait_for(self._received(), _START)
        except (EOFError, OSError, TimeoutError):
            await self.close()
            raise CrashError("A process of the page did not start; is there enough memory?") from None
        if "error" in content:
            await self.close()
            raise WorkError(content["error"])
        return content

    async def ask(self, message: Mapping[str, Any], what: str, patience: float, hear: Hear = _deaf) -> Answer:
        """What the process answers within so many seconds; a ValueError has words for the user about `what`.

        `hear` is told of its progress meanwhile.
        """
        if self._process is None or self._process.returncode is not None:
            await self.close()
            await self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()
            content, parts = await asyncio.wait_for(self._answered(hear), patience)
        except TimeoutError:
            await self.close()
            raise CrashError(f"{what} was given up: it takes more than {patience:.0f} s.") from None
        except (EOFError, OSError):
            await self.close()
            raise CrashError(f"{what} crashed the process that worked on it: it is damaged, or too large.") from None
        except asyncio.CancelledError:
            await self.close()  # an answer to nobody would be taken for the next one
            raise
        if "error" in content:
            raise WorkError(content["error"])
        return content, parts

    async def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        # asyncio has no other way to let go of the pipes now rather than at some time.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _answered(self, hear: Hear) -> Answer:
        while True:
            content, parts = await self._received()
            if "progress" not in content:
                return content, parts
            hear(*content["progress"])

    async def _received(self) -> Answer:
        assert self._process is not None
        assert self._process.stdout is not None
        stream = self._process.stdout
        head = json.loads(await stream.readexactly(int.from_bytes(await stream.readexactly(8), "little")))
        return head["content"], [await stream.readexactly(size) for size in head["sizes"]]


class Lane:
    """Workers that take turns."""

    def __init__(self, workers: Sequence[Worker]):
        self.workers = list(workers)
        self._idle: list[Worker] = []
        self._waiting: list[tuple[bool, int, asyncio.Future[Worker]]] = []
        self._count = itertools.count()

    def open(self, worker: Worker) -> None:
        """Let a worker take requests: the first that is urgent, or else the first."""
        while self._waiting:
            turn = heapq.heappop(self._waiting)[-1]
            if not turn.done():
                turn.set_result(worker)
                return
        self._idle.append(worker)

    async def _taken(self, urgent: bool) -> Worker:
        if self._idle:
            return self._idle.pop()
        if sum(not turn.done() for *_, turn in self._waiting) >= MOST_WAITING:
            raise BusyError("The server has too much to do; try again in a moment.")
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (not urgent, next(self._count), turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.open(turn.result())
            raise

    async def ask(
        self,
        message: Mapping[str, Any],
        what: str,
        patience: float,
        begin: Callable[[], None] = lambda: None,
        hear: Hear = _deaf,
        *,
        urgent: bool = False,
    ) -> Answer:
        """What a worker answers, as soon as one is idle; `begin` is called then. What is urgent comes first."""
        worker = await self._taken(urgent)
        begin()
        try:
            return await worker.ask(message, what, patience, hear)
        finally:
            self.open(worker)


class Pool:
    """The lanes of a page.

    Args:
        arguments: Of `main`.
        workers: Processes for small predictions. One more reads files and makes large predictions.
    """

    def __init__(self, arguments: Sequence[str], workers: int | None = None):
        cores = os.cpu_count() or 1
        count = max(1, min(4, cores)) if workers is None else workers
        threads = max(1, min(8, cores // 2))
        self._quick = Lane([Worker([*arguments, "--threads", "1"]) for _ in range(count)])
        self._slow = Lane([Worker([*arguments, "--threads", str(threads)])])
        self._starting: set[asyncio.Task[None]] = set()

    async def start(self) -> dict[str, Any]:
        """Start all processes; return as soon as the first is ready, with what it says about the network."""
        first = self._quick.workers[0]
        content = await first.start()
        self._quick.open(first)
        for lane, workers in ((self._slow, self._slow.workers), (self._quick, self._quick.workers[1:])):
            for worker in workers:
                task = asyncio.create_task(self._open(lane, worker))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)
        return content

    @staticmethod
    async def _open(lane: Lane, worker: Worker) -> None:
        with contextlib.suppress(ValueError):  # it starts again with its first request, and says so there
            await worker.start()
        lane.open(worker)

    async def view(
        self,
        request: Mapping[str, Any],
        large: bool,
        begin: Callable[[], None] = lambda: None,
        hear: Hear = _deaf,
        *,
        urgent: bool = False,
    ) -> tuple[dict[str, Any], bytes]:
        """The words and the record of a view; `begin` is called when the work on it begins, `hear` of its progress."""
        lane, message = self._slow if large else self._quick, {"do": "view", "request": request}
        words, (record,) = await lane.ask(message, "This prediction", _VIEW, begin, hear, urgent=urgent)
        return words, record

    async def file(self, request: Mapping[str, Any], suffix: str, field: str = "", frame: int = -1) -> bytes:
        """A prediction as a file; pictures show one field, those that stand still at one of the times."""
        message = {"do": "file", "request": request, "suffix": suffix, "field": field, "frame": frame}
        _, (content,) = await self._slow.ask(message, "This file", _VIEW)
        return content

    async def read(self, path: str, name: str) -> dict[str, Any]:
        """What an uploaded file holds."""
        content, _ = await self._slow.ask({"do": "read", "path": path, "name": name}, name, _READING)
        return content

    async def close(self) -> None:
        for task in list(self._starting):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ValueError):
                await task
        await asyncio.gather(*(worker.close() for lane in (self._quick, self._slow) for worker in lane.workers))


# In a process


def main(arguments: Sequence[str] | None = None) -> None:
    """What the process does until its parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--uploads", type=Path, required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if hasattr(os, "nice"):
        os.nice(5)  # the page itself answers first, however much there is to compute
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    bench: Any = None
    try:
        bench = _workbench(given)
        send(answers, bench.start(), [])
    except Exception as error:
        from pennpde.viewer.uploads import words_of

        send(answers, {"error": words_of(error)}, [])
        return
    with contextlib.suppress(Exception):  # what is wrong will show in the first request
        bench.warm_up()
    told = 0.0

    def hear(stage: str, share: float) -> None:
        nonlocal told
        if time.monotonic() - told > _INTERVAL:
            told = time.monotonic()
            send(answers, {"progress": (stage, share)}, [])

    for line in sys.stdin.buffer:
        with progress.watched(hear):
            answer = _answer(bench, json.loads(line))
        send(answers, *answer)


def _workbench(given: argparse.Namespace) -> Any:
    import torch

    from pennpde.registry import load_plugin
    from pennpde.viewer.workbench import Workbench

    torch.set_num_threads(given.threads)
    if given.plugin:
        load_plugin(given.plugin)
    bench = Workbench.of(given.model, given.data, given.uploads)
    if given.data is None and (bench.usual_data / "manifest.json").is_file():
        return Workbench(bench.model, given.model, bench.usual_data, given.uploads)
    return bench


def _answer(bench: Any, message: dict[str, Any]) -> Answer:
    from pennpde.viewer.uploads import words_of
    from pennpde.viewer.views import Request

    try:
        if message["do"] == "read":
            return bench.read(Path(message["path"]), message["name"]), []
        request = Request.of(message["request"])
        if message["do"] == "view":
            view = bench.view(request)
            return {"view": view.number, "title": view.title, **view.words}, [view.record]
        with tempfile.TemporaryDirectory(prefix="penn-view-") as folder:
            path = Path(folder) / f"flow{message['suffix']}"
            bench.file(request, path, message["field"], message["frame"])
            return {}, [path.read_bytes()]
    except MemoryError:
        return {"error": "This needs more memory than the page has for it. Use `penn predict`."}, []
    except Exception as error:
        return {"error": words_of(error)}, []


def send(stream: IO[bytes], content: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Write one answer."""
    head = json.dumps({"content": content, "sizes": [len(part) for part in parts]}).encode()
    stream.write(len(head).to_bytes(8, "little") + head)
    for part in parts:
        stream.write(part)
    stream.flush()


if __name__ == "__main__":
    main()
