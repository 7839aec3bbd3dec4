"""The expected error of each level of `flow`, learned from plane flows of no training split and from unlike flows.

    python lab/benchmarks/flow_calibration.py fast standard fine [--threads 16] [--seconds 480] [--every 1]

This is the one command after any change of the weights or of the scheme. Writes `expected_error_LEVEL.json` next to the
weights, with the coverage of its 90 % bound, and the table of docs/flow.md. Predictions are kept in
`runs/calib_LEVEL.jsonl` by the hashes of weights and code, so a run that was interrupted, or whose seconds were over,
goes on where it was; flows come in an order in which any first part has all families. On 16 cores all 539 flows
take about a minute on `fast` and on `standard`, and five on `fine`.

On another machine, which needs neither OpenFOAM nor VTK:

    python lab/benchmarks/flow_calibration.py --pack flows.tar    # here: the flows alone, 15 MB
    tar xf flows.tar -C FOLDER                                    # there, and then
    python lab/benchmarks/flow_calibration.py --data FOLDER --only-measure fast standard fine --threads 16
    python lab/benchmarks/flow_calibration.py --measured fast standard fine   # here, with runs/calib_*.jsonl from there

Flows unlike those of training are in `pennlab.datasets.unlike_flows`; their references are in `data/unlike_flows` and
are computed where they are missing.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import os
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pennlab import coverage
from pennlab.datasets import unlike_flows
from pennlab.datasets.plane_flow import finished, flows, sensitivity
from pennlab.known_cases import read_known
from pennlab.paper.tables import markdown_table, write_within
from pennpde.checkpoints import expected_error_file, load_pretrained
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.penn import Predictor
from pennpde.registry import WEIGHTS
from pennpde.train import calibrate
from pennpde.train.calibrate import Known, Measured
from pennpde.trust.calibration import kind_of

ROOT = Path(__file__).resolve().parents[2]
DATA, PARTS = ROOT / "data", ("plane_flow/finished", "unlike_flows")
RUNS = ROOT / "runs"
PAGE = ROOT / "docs" / "flow.md"
LEVELS = CoarseMarch.levels
_BY_FAMILY = "coverage of unseen families"
SPLITS = ("validation", "test", "test-unseen-families", "test-unseen-reynolds")


# Which flows


def in_turn(every: int) -> list[str]:
    """Names of flows, families and kinds in turn; of the plane flows every so many-th."""
    by_family: dict[str, list[str]] = {}
    splits = flows.splits()
    plane = [name for split in SPLITS for name in splits[split][::every]]
    for name in chain(unlike_flows.names(), plane):
        by_family.setdefault(name.rpartition("_")[0], []).append(name)
    return [name for names in zip_longest(*by_family.values()) for name in names if name is not None]


def read(data: Path, name: str) -> Known | None:
    archives, unlike = (data / part for part in PARTS)
    if unlike_flows.kind_of(name) in unlike_flows.KINDS:
        return unlike_flows.read(unlike, name)
    return next(read_known(archives, only=[name]), None) if finished.is_finished(archives, name) else None


def pack(path: Path) -> None:
    """The flows in one file, each on the mesh that is predicted on."""
    archives, unlike = (DATA / part for part in PARTS)
    wanted = {name for split in SPLITS for name in flows.splits()[split] if finished.is_finished(archives, name)}
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(path, "w") as packed:
        inner = Path(scratch) / "part_000.tar"
        with tarfile.open(inner, "w") as part:
            for archive in sorted(archives.glob("part_*.tar")):
                with tarfile.open(archive) as whole:
                    for member in whole.getmembers():
                        content, flow = whole.extractfile(member), member.name.partition(".")[0]
                        if content is not None and flow in wanted:
                            _add(part, member.name, _with_one_mesh(flow, content.read()))
        packed.add(inner, f"{PARTS[0]}/part_000.tar")
        packed.add(archives / sensitivity.FILE, f"{PARTS[0]}/{sensitivity.FILE}")
        for file in sorted(unlike.glob("*.npz")):
            packed.add(file, f"{PARTS[1]}/{file.name}")


def _with_one_mesh(flow: str, archive: bytes) -> bytes:
    case, made = f"{flow}.a", io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(lzma.decompress(archive))) as whole,
        tarfile.open(fileobj=made, mode="w") as part,
    ):
        for member in whole.getmembers():
            file = whole.extractfile(member)
            content = b"" if file is None else file.read()
            if member.name == f"{flow}.json":
                facts = json.loads(content)
                content = json.dumps({**facts, "cases": {case: facts["cases"][case]}}).encode()
            if member.name in (f"{flow}.json", f"{case}.vtkhdf"):
                _add(part, member.name, content)
    return lzma.compress(made.getvalue())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


# Measuring


def code() -> str:
    """A hash of what a prediction of `flow` and its clues depend on, but for the weights."""
    digest = hashlib.sha256()
    for folder in ("flow", "models", "penn", "trust", "operators"):
        for file in sorted((ROOT / "src" / "pennpde" / folder).rglob("*.py")):
            if file.name not in ("calibration.py", "expected_error.py"):
                digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def measured_one(level: str, data: Path, name: str) -> tuple[str, list[Measured] | str]:
    """In a process of its own: errors and clues of one flow, or why there are none."""
    import torch

    torch.set_num_threads(1)
    network = _network(level)
    try:
        known = read(data, name)
        if known is None:
            return name, "it has no reference"
        found: list[str] = []
        rows = calibrate.measure_all(network, [known], on_case=lambda _, outcome: found.append(str(outcome)))
        return name, rows or found[0]
    except Exception as error:
        return name, f"{type(error).__name__}: {error}"


def measure(level: str, data: Path, every: int, threads: int, until: float) -> None:
    """Add to the kept predictions until all flows are there, or the time is over."""
    there, wanted = kept(level, by_code=True), in_turn(every)
    left = iter([name for name in wanted if name not in there])
    print(f"{level}: {len(there)} flows are there, {len(wanted) - len(there)} are not", flush=True)
    began, context = time.monotonic(), get_context("spawn")
    with ProcessPoolExecutor(threads, context) as pool, cache(level).open("ab") as lines:
        running: set[Future[Any]] = set()
        while True:
            while len(running) < threads and time.monotonic() < until and (name := next(left, None)) is not None:
                running.add(pool.submit(measured_one, level, data, name))
            if not running:
                break
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                name, rows = each.result()
                failed, rows = (rows, []) if isinstance(rows, str) else ("", rows)
                entry = {"flow": name, "weights": calibrate.weights_of(_network(level)), "code": code()}
                entry |= {"failed": failed, "measured": calibrate.as_rows(rows)}
                lines.write(json.dumps(entry).encode() + b"\n")
                lines.flush()
                os.fsync(lines.fileno())
                print(f"{level} {name} {time.monotonic() - began:.0f} s {failed or len(rows)}", flush=True)


def cache(level: str) -> Path:
    RUNS.mkdir(exist_ok=True)
    return RUNS / f"calib_{level}.jsonl"


def kept(level: str, by_code: bool) -> dict[str, list[Measured]]:
    """By flow, what was measured with these weights, and with this code if that is asked."""
    found: dict[str, list[Measured]] = {}
    weights = calibrate.weights_of(_network(level))
    for line in cache(level).read_bytes().splitlines() if cache(level).exists() else ():
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # of a process that was killed while it wrote
        if entry["weights"] == weights and (not by_code or entry["code"] == code()):
            found[entry["flow"]] = [calibrate.from_row(row) for row in entry["measured"]]
    return found


_NETWORKS: dict[str, Predictor] = {}


def _network(level: str) -> Predictor:
    if level not in _NETWORKS:
        network = load_pretrained("flow")
        assert isinstance(network, Predictor)
        network.set_level(level)
        _NETWORKS[level] = network
    return _NETWORKS[level]


# Learning


def learn(level: str, every: int, by_code: bool) -> None:
    there = kept(level, by_code)
    measured = calibrate.usable([each for name in in_turn(every) for each in there.get(name, ())])
    plane = [each for each in measured if each.family not in unlike_flows.KINDS]
    known = coverage.known_of(DATA / PARTS[0], plane)
    by_kind = coverage.coverage_by_family(
        measured, known, left_out="cases", scores_without="cases", group=lambda sample: kind_of(sample.clues)
    )
    by_family = coverage.coverage_by_family(measured, known, scores_without="cases")
    about = {
        "network": "flow",
        "level": level,
        "datasets": list(PARTS),
        "splits": SPLITS,
        "every": every,
        "coverage": _record(by_kind),
        _BY_FAMILY: _record(by_family),
    }
    calibrate.save(WEIGHTS / "flow", _network(level), coverage.fitted(measured, known, "cases"), about)


def _record(found: Mapping[str, calibrate.Coverage]) -> dict[str, Any]:
    return {
        family: {
            "cases": each.cases,
            **each.covered,
            "grades": dict(each.grades),
            "good_but_wrong": each.good_but_wrong,
        }
        for family, each in found.items()
    }


def table() -> str:
    """By kind of flow and level, how often the 90 % bound holds for u and for p."""
    records = {
        level: json.loads((WEIGHTS / "flow" / expected_error_file(level)).read_text(encoding="utf-8"))
        for level in LEVELS
    }
    # Calibrations of before counted by family, each judged by the others.
    records = {level: each if _BY_FAMILY in each else {_BY_FAMILY: each["coverage"]} for level, each in records.items()}
    kinds = {kind: None for record in records.values() for kind in record.get("coverage", {})}
    last = (coverage.UNDETERMINED, "all")
    titles = [*(kind for kind in kinds if kind not in (*last, coverage.DETERMINED, coverage.NOT_MEASURED)), *last]
    rows = [[title, *_told(records, "coverage", title)] for title in titles]
    rows.append(["all, its family left out", *_told(records, _BY_FAMILY, "all")])
    found = [each.get("coverage", each[_BY_FAMILY]).get("all") for each in records.values()]
    wrong = [cell for each in found for cell in ("", str(each["good_but_wrong"]) if each else "")]
    rows.append(["graded good, but above 20 %", *wrong])
    names = [cell for level in LEVELS for cell in (f"`{level}`: predictions", "u, p held")]
    return markdown_table(("kind of flow", *names), rows)


def _told(records: Mapping[str, Any], part: str, title: str) -> Iterator[str]:
    for record in records.values():
        found = record.get(part, {}).get(title)
        yield "" if found is None else str(found["cases"])
        yield "" if found is None else ", ".join(f"{100 * found[name]:.0f} %" for name in ("u", "p"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("levels", nargs="*", choices=[*LEVELS, []])
    parser.add_argument("--every", type=int, default=1, help="of the plane flows only every so many-th")
    parser.add_argument("--threads", type=int, default=1, help="processes side by side")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no flow afterwards")
    parser.add_argument("--pack", type=Path, metavar="TAR", help="write the flows into one file, and do nothing else")
    parser.add_argument("--data", type=Path, metavar="FOLDER", default=DATA, help="of flows that were packed")
    parser.add_argument("--only-measure", action="store_true", help="keep the predictions, and learn nothing")
    parser.add_argument("--measured", action="store_true", help="learn from what is kept, by whatever code")
    given = parser.parse_args()
    if given.pack:
        pack(given.pack)
        return
    until = time.monotonic() + given.seconds
    for level in () if given.measured else given.levels:
        measure(level, given.data, given.every, given.threads, until)
    if given.only_measure:
        return
    for level in given.levels:
        learn(level, given.every, by_code=not given.measured)
    made = table()
    print(made)
    write_within(PAGE, made, "coverage by level")


if __name__ == "__main__":
    main()
