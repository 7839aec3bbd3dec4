"""How the page of `penn view` holds many browsers at once: errors, and how long they wait for their pictures.

python benchmarks/page_load.py                      # 50 clients for a minute
python benchmarks/page_load.py --seconds 10 --out /tmp/try.json

Starts `penn view` on this machine and talks to it as browsers do, over the loopback: every client opens the page with
all its files, then moves a slider now and then, waits for the words and for the picture, and thinks. One client in ten
also uploads a mesh and has its flow predicted. Prints a table and writes `benchmarks/results/page_load.json`. An answer
is the time from the request to the last byte of the picture.
"""

import argparse
import asyncio
import json
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
THINKING = 10.0
"""Seconds between an answer and the next move of a slider, on average."""
UPLOADERS = 10
"""One client in so many uploads a mesh."""
PATIENCE = 120.0


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

    async def use(self, until: float, templates: list[dict[str, Any]], takes_times: bool) -> None:
        """Open the page and use it until a moment of the clock."""
        await asyncio.sleep(self.random.uniform(0, THINKING))
        await self.measured("page", self.open())
        if self.mesh is not None:
            await self.measured("upload", self.upload())
        template = self.random.choice(templates)
        values = {each["name"]: each["start"] for each in template["sliders"]}
        sliders = [each for each in template["sliders"] if each["name"] in ("first", "second", "velocity")]
        moments = {"duration": 4, "frames": 16} if takes_times else None
        while time.monotonic() < until:
            moved = self.random.choice(sliders)
            values[moved["name"]] = round(self.random.uniform(moved["low"], moved["high"]), 2)
            request = {"source": "template", "name": template["kind"], "values": values, "moments": moments}
            await self.measured("view", self.view(request))
            await asyncio.sleep(self.random.uniform(0, 2 * THINKING))

    async def measured(self, what: str, work: Any) -> None:
        begin = time.monotonic()
        try:
            await asyncio.wait_for(work, PATIENCE)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
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
        words = json.loads(await self.fetched("POST", "view", json=request))
        await self.fetched("GET", f"record/{words['view']}")

    async def upload(self) -> None:
        found = json.loads(await self.fetched("POST", "upload", params={"name": "duct.vtu"}, data=self.mesh))
        await self.view({"source": "upload", "name": found["key"], "roles": found["roles"]})


async def load(address: str, clients: int, seconds: float, mesh: bytes) -> list[Client]:
    """All clients at once."""
    async with aiohttp.ClientSession() as session, session.get(address + "start") as answer:
        start = await answer.json()
    until = time.monotonic() + seconds
    made, sessions = [], []
    for seed in range(clients):
        sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=6)))
        made.append(Client(sessions[-1], address, seed, mesh if seed % UPLOADERS == 0 else None))
    try:
        await asyncio.gather(*(each.use(until, start["templates"], start["takes_times"]) for each in made))
    finally:
        await asyncio.gather(*(session.close() for session in sessions))
    return made


def duct_file() -> bytes:
    """A mesh with named patches, as users upload it."""
    from pennpde.datasets.flow.cases import coarse_mesh

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
        "nine in ten below": round(ordered[int(0.9 * (len(ordered) - 1))], 3),
        "slowest": round(ordered[-1], 3),
    }


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
        time.sleep(10)  # all processes are up, as on a page that has been running for a while
        try:
            clients = asyncio.run(load(address, given.clients, given.seconds, mesh))
            alive = server.poll() is None
        finally:
            server.terminate()
    errors = [error for client in clients for error in client.errors]
    answers = [answer for client in clients for answer in client.answers]
    rows = [
        summary(what, [seconds for kind, seconds in answers if kind == what])
        for what in ("page", "view", "upload")
        if any(kind == what for kind, _ in answers)
    ]
    record = {
        "model": given.model,
        "clients": given.clients,
        "seconds": given.seconds,
        "thinking_seconds": THINKING,
        "errors": len(errors),
        "first_errors": errors[:5],
        "server_lived_on": alive,
        "rows": rows,
        "cores": os.cpu_count(),
        "load_before": round(busy, 2),
        "python": platform.python_version(),
    }
    print(f"{given.clients} clients, {given.seconds:.0f} s, {len(errors)} errors; load before: {busy:.1f}")
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
