"""How soon the terminal answers: help, the first line of a prediction, a wrong file, a wrong model, and the whole.

Prints a table and writes one column of `lab/benchmarks/results/terminal.json`, named by the argument (`before`,
`after`), and the table of docs/command.md. Every row is a new process on a pseudo-terminal of 80 columns; the fastest
of some repeats counts. The clock also counts what else runs on the machine, so the processor's seconds until the first
output are given, too.
"""

import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pennlab.paper.tables import markdown_table, write_within
from pennpde.models.designs import coarse_mesh

RESULTS = Path(__file__).parent / "results" / "terminal.json"
PAGE = Path(__file__).parents[2] / "docs" / "command.md"
REPEATS = 3
PROBLEM = """[patches]
inlet = "x == 0"
outlet = "x == 3"
wall = "rest"
[dirichlet.u]
inlet = [1.0, 0.0]
wall = 0.0
[dirichlet.p]
outlet = 0.0
[neumann]
p = 0.0
[neumann.u]
outlet = 0.0
[initial]
u = [0.0, 0.0]
[parameters]
viscosity = 1e-3
"""
ROWS = {
    # what: (arguments, the limit of the first output in seconds)
    "penn --help": (["--help"], 0.3),
    "penn predict --help": (["predict", "--help"], 0.3),
    "wrong file": (["predict", "absent.vtu", "--case", "duct.toml"], 0.3),
    "wrong model": (["predict", "duct.vtu", "--case", "duct.toml", "--model", "flwo"], 0.3),
    "wrong key of a problem file": (["predict", "duct.vtu", "--case", "wrong.toml"], 0.3),
    "default prediction": (["predict", "duct.vtu", "--case", "duct.toml", "--time", "1", "--png", "duct.png"], 0.3),
}


def seconds(arguments: list[str], folder: str) -> tuple[float, float, float]:
    """Seconds until the first byte on a terminal, those of the processor until then, and until the end."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
    start, first, processor = time.perf_counter(), 0.0, 0.0
    command = [sys.executable, "-m", "pennpde", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, cwd=folder, env=environment) as process:
        os.close(theirs)
        while True:
            select.select([ours], [], [])
            try:
                content = os.read(ours, 65536)
            except OSError:  # the other end is closed
                content = b""
            if not first:
                first = time.perf_counter() - start
                times = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                processor = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
            if not content:
                break
        process.wait()
    os.close(ours)
    return first, processor, time.perf_counter() - start


def main(column: str) -> None:
    """Measure every row and write the column."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        coarse_mesh("a_0.37", 37, 22.5).save(Path(folder) / "duct.vtu")
        (Path(folder) / "duct.toml").write_text(PROBLEM)
        (Path(folder) / "wrong.toml").write_text(PROBLEM.replace("[parameters]", "[paramters]"))
        print(f"{'':32}{'first output':>14}{'processor':>11}{'end':>8}   seconds, fastest of {REPEATS}")
        for name, (arguments, limit) in ROWS.items():
            runs = [seconds(arguments, folder) for _ in range(REPEATS)]
            first, processor, end = (round(min(each), 2) for each in zip(*runs, strict=True))
            found[name] = {"first": first, "processor": processor, "end": end, "limit": limit}
            print(f"{name:32}{first:14.2f}{processor:11.2f}{end:8.2f}", flush=True)
    found["load average"] = round(os.getloadavg()[0], 1)
    found["before others"] = os.sched_getscheduler(0) != os.SCHED_OTHER  # under `chrt -r 5`, on a busy machine
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record |= {column: found}
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    write_within(PAGE, table(record), "terminal")


def table(record: dict) -> str:
    """Seconds until the first output, and until the end, before and after."""

    def cell(column: str, name: str, what: str) -> str:
        return f"{record[column][name][what]:.2f}" if name in record.get(column, {}) else "–"

    columns = [(column, what) for what in ("first", "end") for column in ("before", "after")]
    rows = [[name, *(cell(column, name, what) for column, what in columns)] for name in ROWS]
    head = ("", "first output, before", "after", "end, before", "after")
    told = (
        f"Seconds of the clock, fastest of {REPEATS}; before: when this was first measured. The machine had a load of "
        f"{record['after']['load average']} in the second measurement"
        f"{', in which `penn` went before what else ran' if record['after'].get('before others') else ''}."
    )
    return f"{markdown_table(head, rows)}\n\n{told}"


if __name__ == "__main__":
    main(sys.argv[1])
