"""How soon the page answers while a slider is dragged: the outline, and the flow at one time at the fastest level.

Starts `penn view` with one process for predictions and moves sliders as the page does, one request after the other, so
every shape is a new one. Prints a table, writes `lab/benchmarks/results/page_drag.json` and that of docs/viewer.md.
The clock counts what else runs on the machine, too; the processor's seconds are those of the prediction alone, made
once more in this process. The load average is in the record. On a
busy machine `chrt -r 5 python ...` lets the page go first.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import torch

from pennlab.paper.tables import markdown_table, write_within
from pennpde.files import write_json
from pennpde.viewer.shapes import SHAPES
from pennpde.viewer.views import Moments, Request
from pennpde.viewer.workbench import Workbench

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "lab" / "benchmarks" / "results" / "page_drag.json"
PAGE = ROOT / "docs" / "viewer.md"
DRAGS = {
    "a": ("first", 0.2, 0.8),
    "bend": ("angle", 40.0, 140.0),
    "cavity": ("height", 0.8, 1.6),
    "cylinder": ("diameter", 0.2, 0.4),
    "manifold": ("branch", 0.35, 0.6),
}
"""By design, the slider that is moved, from where to where."""
MOVES = 15


async def answered(page: aiohttp.ClientSession, request: dict[str, Any]) -> dict[str, Any]:
    """The view, as the page waits for it: lines of JSON, and the picture behind the last of them."""
    async with page.post("/view", json=request) as answer:
        lines = (await answer.text()).splitlines()
    view = json.loads(lines[-1])
    if "error" in view:
        raise RuntimeError(view["error"])
    async with page.get(f"/record/{view['view']}") as record:
        await record.read()
    return view


async def dragged(page: aiohttp.ClientSession, template: dict[str, Any]) -> dict[str, Any]:
    """Seconds until outline and answer, for every place of a slider."""
    name, low, high = DRAGS[template["kind"]]
    values = {slider["name"]: slider["start"] for slider in template["sliders"]}
    outlines, answers, points = [], [], []
    for move in range(MOVES):
        values[name] = round(low + (high - low) * move / (MOVES - 1), 3)
        request = {"source": "template", "name": template["kind"], "values": values}
        begin = time.perf_counter()
        async with page.post("/outline", json=request) as answer:
            await answer.read()
        outlines.append(time.perf_counter() - begin)
        moments = {"duration": template["duration"] / 2, "frames": 1, "steady": False}
        begin = time.perf_counter()
        view = await answered(page, request | {"level": "fast", "moments": moments})
        answers.append(time.perf_counter() - begin)
        points.append(int(view["facts"][0].split()[0].replace(",", "")))
    return {
        "design": template["title"],
        "points": round(median(points)),
        "outline": round(median(outlines), 3),
        "answer": round(median(answers), 2),
        "worst answer": round(max(answers), 2),
    }


def computed(kind: str, duration: float) -> float:
    """Median seconds of the processor for the same predictions."""
    bench = _bench()
    template = bench.subject.template(kind)
    (name, low, high), seconds = DRAGS[kind], []
    for move in range(MOVES):
        values = {each.name: each.start for each in template.sliders}
        values[name] = round(low + (high - low) * move / (MOVES - 1), 3)
        request = Request("template", kind, tuple(sorted(values.items())), moments=Moments(duration / 2), level="fast")
        begin = time.process_time()
        bench.view(request)
        seconds.append(time.process_time() - begin)
    return round(median(seconds), 2)


@cache
def _bench() -> Workbench:
    torch.set_num_threads(1)
    bench = Workbench.of("flow")
    bench.warm_up()
    return bench


async def measured(address: str) -> list[dict[str, Any]]:
    async with aiohttp.ClientSession(address) as page:
        async with page.get("/start") as answer:
            start = await answer.json()
        await answered(page, start["examples"][0])  # what the server prepares at its start
        return [await dragged(page, each) for each in start["templates"] if each["kind"] in DRAGS]


def main() -> None:
    command = [sys.executable, "-m", "pennpde", "view", "--port", "0", "--no-browser", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            rows = asyncio.run(measured(server.stdout.readline().split()[0]))
        finally:
            server.terminate()
    durations = {each.title: (each.kind, each.duration) for each in SHAPES}
    rows = [row | {"processor": computed(*durations[row["design"]])} for row in rows]
    load = round(os.getloadavg()[0], 1)
    before_others = os.sched_getscheduler(0) != os.SCHED_OTHER
    record = {"moves": MOVES, "processors": os.cpu_count(), "load_average": load, "before_others": before_others}
    write_json(OUTPUT, record | {"rows": rows})
    head = ("design", "points", "outline, median", "answer, median", "slowest answer", "processor")
    table = markdown_table(head, [[str(value) for value in row.values()] for row in rows])
    told = (
        f"Seconds of the clock on {os.cpu_count()} cores with a load of {load}, and of the processor; {MOVES} places."
        f"{' The page went before what else ran (`chrt -r 5`).' if before_others else ''}"
    )
    made = f"{table}\n\n{told}"
    print(made)
    write_within(PAGE, made, "drag")


if __name__ == "__main__":
    main()
