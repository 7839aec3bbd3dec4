"""How long it takes until something happens: importing the package, the command's help, the first use of torch.

Prints a table and writes `lab/benchmarks/results/start_up.json`. Each row is a new process, after one that is not
counted, so that files are in the cache of the operating system; the interpreter's own start is a row of its own.
The processor's seconds are those of the process itself, whatever else the machine is doing.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "start_up.json"
REPEATS = 9
ROWS = {
    # what: (command, the limit that we promise in seconds)
    "python alone": ([sys.executable, "-c", "pass"], None),
    "import pennpde": ([sys.executable, "-c", "import pennpde"], 1.5),
    "penn --help": ([sys.executable, "-m", "pennpde", "--help"], 0.5),
    "import torch": ([sys.executable, "-c", "import torch"], None),
    "pennpde.Mesh, Operators, Case": (
        [sys.executable, "-c", "import pennpde; pennpde.Mesh, pennpde.Operators, pennpde.Case"],
        None,
    ),
}


def seconds(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, that a command takes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure every row and write the record."""
    rows, load = [], os.getloadavg()[0]
    print(
        f"{'':32}{'median':>8}{'fastest':>9}{'slowest':>9}{'processor':>11}{'limit':>8}   seconds, {REPEATS} processes"
    )
    for name, (command, limit) in ROWS.items():
        seconds(command)
        measured, processor = zip(*(seconds(command) for _ in range(REPEATS)), strict=True)
        row = {
            "what": name,
            "median": round(statistics.median(measured), 3),
            "fastest": round(min(measured), 3),
            "slowest": round(max(measured), 3),
            "processor": round(statistics.median(processor), 3),
            "limit": limit,
        }
        rows.append(row)
        numbers = f"{row['median']:8.3f}{row['fastest']:9.3f}{row['slowest']:9.3f}{row['processor']:11.3f}"
        print(f"{name:32}{numbers}{'' if limit is None else limit!s:>8}")
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "load_average": round(load, 1),
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
