"""How the page of `penn view` holds many browsers at once: errors, and how long they wait for their pictures.

python lab/benchmarks/page_load.py                      # 50 clients for a minute
python lab/benchmarks/page_load.py --seconds 10 --out /tmp/try.json

Starts `penn view` on this machine and talks to it as the page does, over the loopback: every client opens the page with
all its files and the first example, then drags a slider over three places, each answered at the fastest level at one
time, and lets go: all times at the fastest level, then refined on the next one, while it thinks. Who moves on before
the refined answer gives it up. One client in ten also uploads a mesh and has its flow predicted. Prints a table and
writes `lab/benchmarks/results/page_load.json` and the table of `docs/viewer.md`. A picture's time is that from the
request to its last byte. On a busy machine `chrt -r 5 python ...` lets the page go first.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp

RESULTS = Path(__file__).parent / "results" / "page_load.json"
PAGE = Path(__file__).parents[2] / "docs" / "viewer.md"
BEGIN, END = "<!-- page load -->", "<!-- end of page load -->"
THINKING = 10.0
"""Seconds between an answer and the next move of a slider, on average."""
UPLOADERS = 10
"""One client in so many uploads a mesh."""
PLACES = 3
"""Of a slider while it is dragged."""
PATIENCE = 60.0
"""Seconds after which a client gives up."""


class Client:
    """One browser.

    Args:
        session: Of its own, as browsers have their own connections.
        address: Of the page.
        seed: Of its moves.
        mesh: A file to upload, for some.
    """

    def __init__(self, session: aiohttp.ClientSession, address: str, seed: int, mesh: bytes | None):
        self.session, self.address, self.mesh = session, address, mesh
        self.random = random.Random(seed)
        self.answers: list[tuple[str, float]] = []
        self.errors: list[str] = []
        self.moved_on = self.given_up = 0
        self.predicted: set[str] = set()

    async def use(self, until: float, start: dict[str, Any]) -> None:
        """Open the page and use it until a moment of the clock."""
        await asyncio.sleep(self.random.uniform(0, THINKING))
        await self.measured("page", self.open())
        await self.measured("example", self.view(start["examples"][0]))
        if self.mesh is not None:
            await self.measured("upload and its flow", self.upload(start))
        template = self.random.choice(start["templates"])
        values = {each["name"]: each["start"] for each in template["sliders"]}
        sliders = [each for each in template["sliders"] if not each["typed"] and each["name"] != "resolution"]
        fastest, usual = (*start["levels"], "", "")[:2]
        request: dict[str, Any] = {"source": "template", "name": template["kind"], "values": values}
        refined: asyncio.Task[None] | None = None
        while time.monotonic() < until:
            moved = self.random.choice(sliders)
            if refined is not None and not refined.done():
                refined.cancel()
                self.moved_on += 1
            for _ in range(PLACES):
                if time.monotonic() >= until:
                    return
                values[moved["name"]] = round(self.random.uniform(moved["low"], moved["high"]), 2)
                moments = start["moments"] and {**start["moments"], "frames": 1}
                dragged = {**request, "level": fastest, "moments": moments}
                await self.measured("answer while dragging", self.view(dragged))
            released = {**request, "values": dict(values), "moments": start["moments"]}
            await self.measured("all times", self.view({**released, "level": fastest}))
            if usual:
                refined = asyncio.create_task(self.measured("refined", self.view({**released, "level": usual})))
            await asyncio.sleep(self.random.uniform(0, 2 * THINKING))
        if refined is not None and not refined.done():
            refined.cancel()  # the minute is over

    async def measured(self, what: str, work: Any) -> None:
        begin = time.monotonic()
        try:
            await asyncio.wait_for(work, PATIENCE)
        except TimeoutError:
            self.given_up += 1
        except (aiohttp.ClientError, OSError, ValueError) as error:
            self.errors.append(f"{what}: {type(error).__name__} {error}"[:200])
        else:
            self.answers.append((what, time.monotonic() - begin))

    async def fetched(self, method: str, path: str, **options: Any) -> bytes:
        async with self.session.request(method, self.address + path, **options) as answer:
            content = await answer.read()
            if answer.status != 200:
                raise ValueError(f"{path[:40]}: {answer.status} {content[:120]!r}")
            return content

    async def open(self) -> None:
        page = (await self.fetched("GET", "")).decode()
        files = re.findall(r'(?:src|href)="((?:vue|vuetify|web)/[^"]+)"', page)
        await asyncio.gather(*(self.fetched("GET", path) for path in files))
        json.loads(await self.fetched("GET", "start"))

    async def view(self, request: dict[str, Any]) -> None:
        """Wait for a prediction and its picture; drafts on the way do not count."""
        async with self.session.post(self.address + "view", json=request) as answer:
            if answer.status != 200:
                raise ValueError(f"view: {answer.status} {await answer.text()}")
            async for line in answer.content:
                words = json.loads(line)
                if "error" in words:
                    raise ValueError(words["error"])
                if "view" in words:
                    await self.fetched("GET", f"record/{words['view']}")
                    self.predicted.add(words["view"])
                    return
        raise ValueError("The server ended before the prediction was ready.")

    async def upload(self, start: dict[str, Any]) -> None:
        found = json.loads(await self.fetched("POST", "upload", params={"name": "duct.vtu"}, data=self.mesh))
        asked = {"source": "upload", "name": found["key"], "roles": found["roles"], "moments": start["moments"]}
        await self.view({**asked, "level": (*start["levels"], "")[0]})


async def load(address: str, clients: int, seconds: float, mesh: bytes, server: int) -> tuple[list[Client], float]:
    """All clients at once, and the processor seconds of the page meanwhile."""
    made, sessions = [], []
    for seed in range(clients):
        sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=6)))
        made.append(Client(sessions[-1], address, seed, mesh if seed % UPLOADERS == 0 else None))
    try:
        async with sessions[0].get(address + "start") as answer:
            start = await answer.json()
        for example in start["examples"]:  # all is up and ready, as on a page that has been running for a while
            await Client(sessions[0], address, 0, None).view(example)
        before, until = processor_seconds(server), time.monotonic() + seconds
        await asyncio.gather(*(each.use(until, start) for each in made))
        return made, processor_seconds(server) - before
    finally:
        await asyncio.gather(*(session.close() for session in sessions))


def processor_seconds(process: int) -> float:
    """Of a process and those that it started, until now."""
    ticks = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if process in (int(entry.parent.name), int(fields[1])):
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def duct_file() -> bytes:
    """A mesh with named patches, as users upload it."""
    from pennpde.models.designs import coarse_mesh

    with tempfile.TemporaryDirectory() as folder:
        coarse_mesh("a_0.55", cells_per_length=15).save(Path(folder) / "duct.vtu")
        return (Path(folder) / "duct.vtu").read_bytes()


def summary(what: str, seconds: list[float]) -> dict[str, Any]:
    """One row of the table."""
    ordered = sorted(seconds)
    return {
        "what": what,
        "answers": len(ordered),
        "median": round(statistics.median(ordered), 3),
        "nine in ten below": round(ordered[math.ceil(0.9 * len(ordered)) - 1], 3),
        "slowest": round(ordered[-1], 3),
    }


def table(record: dict[str, Any]) -> str:
    """What the documentation says about a measurement."""
    lines = ["| seconds until | answers | median | nine in ten below | slowest |", "| --- | --- | --- | --- | --- |"]
    for row in record["rows"]:
        times = " | ".join(f"{row[name]:.2f}" for name in ("median", "nine in ten below", "slowest"))
        lines.append(f"| {row['what']} | {row['answers']} | {times} |")
    return "\n".join(
        [
            *lines,
            "",
            f"{record['clients']} clients for {record['seconds']:.0f} s on {record['cores']} "
            f"core{'s' * (record['cores'] > 1)}; load average before {record['load_before']:.1f}. Errors: "
            f"{record['errors']}. Predictions: {record['predictions']}, "
            f"of {record['processor_seconds_per_prediction']:.1f} processor seconds each. "
            f"Refined answers that nobody waited for: {record['moved_on']}. Given up by a client after "
            f"{record['patience_seconds']:.0f} s: {record['given_up']}."
            f"{' The page went before what else ran (`chrt -r 5`).' if record['before_others'] else ''}",
        ]
    )


def main() -> None:
    """Serve, load, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--model", default="flow")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    busy, mesh = os.getloadavg()[0], duct_file()
    command = [sys.executable, "-m", "pennpde", "view", "--model", given.model, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        alarm = threading.Timer(180, server.kill)
        alarm.start()
        address = server.stdout.readline().split()[0]
        alarm.cancel()
        try:
            clients, processor = asyncio.run(load(address, given.clients, given.seconds, mesh, server.pid))
            alive = server.poll() is None
        finally:
            server.terminate()
    errors = [error for client in clients for error in client.errors]
    answers = [answer for client in clients for answer in client.answers]
    kinds = ("page", "example", "answer while dragging", "all times", "refined", "upload and its flow")
    rows = [summary(what, found) for what in kinds if (found := [each for kind, each in answers if kind == what])]
    predicted = set().union(*(client.predicted for client in clients))
    record = {
        "model": given.model,
        "clients": given.clients,
        "seconds": given.seconds,
        "thinking_seconds": THINKING,
        "patience_seconds": PATIENCE,
        "errors": len(errors),
        "first_errors": errors[:5],
        "server_lived_on": alive,
        "rows": rows,
        "given_up": sum(client.given_up for client in clients),
        "moved_on": sum(client.moved_on for client in clients),
        "predictions": len(predicted),
        "processor_seconds": round(processor, 1),
        "processor_seconds_per_prediction": round(processor / max(1, len(predicted)), 2),
        "cores": len(os.sched_getaffinity(0)),
        "before_others": os.sched_getscheduler(0) != os.SCHED_OTHER,
        "load_before": round(busy, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "load_is": "processes that want a core, the average of a minute; other work ran on the machine",
        "python": platform.python_version(),
    }
    print(
        f"{given.clients} clients, {given.seconds:.0f} s, {len(errors)} errors; load before: {busy:.1f}; "
        f"{processor:.0f} processor seconds for {len(predicted)} predictions"
    )
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=2) + "\n")
    if given.out == RESULTS:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(record)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
