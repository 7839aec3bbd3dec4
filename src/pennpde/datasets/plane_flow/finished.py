"""Flows that were computed before, kept in archives: taken from there instead of being computed again.

A folder holds `part_000.tar`, `part_001.tar` ...; each has one compressed archive per flow, with its cases as VTKHDF
files and what is known about them as JSON. Archives are added, never rewritten. `failures.json` names the flows that
could not be computed, and why.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pennpde.datasets.manifest import Manifest
from pennpde.datasets.plane_flow.flow import Flow
from pennpde.datasets.recipes import Product
from pennpde.datasets.storage import checked_content, intact, read_manifest
from pennpde.files import write_atomically

FAILURES = "failures.json"
PART_BYTES = 45_000_000
_SUFFIX = ".tar.xz"


def is_finished(folder: Path | str, flow: str) -> bool:
    """Whether the folder has a flow."""
    return flow in _index(str(folder))


def names(folder: Path | str) -> list[str]:
    """The flows of a folder."""
    return sorted(_index(str(folder)))


@cache
def failures(folder: Path | str) -> Mapping[str, Mapping[str, Any]]:
    """By flow that could not be computed, the error and the end of the log."""
    path = Path(folder) / FAILURES
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def products(folder: Path | str, flow: Flow) -> dict[str, Product]:
    """The cases of a flow, by name; one that was drawn by other rules than today's is refused."""
    archive = _index(str(folder))[flow.name]
    with tarfile.open(archive) as part:
        member = part.extractfile(flow.name + _SUFFIX)
        assert member is not None
        content = lzma.decompress(member.read())
    with tarfile.open(fileobj=io.BytesIO(content)) as inner:
        files = {each.name: file.read() for each in inner.getmembers() if (file := inner.extractfile(each)) is not None}
    facts: Mapping[str, Any] = json.loads(files[f"{flow.name}.json"])["cases"]
    for name, known in facts.items():
        if known["fingerprints"]["flow"] != flow.fingerprint():
            raise ValueError(
                f"{archive} has {name}, but of a flow that is drawn differently today: its fingerprint is "
                f"{known['fingerprints']['flow']}, not {flow.fingerprint()}. Leave --finished out to compute it."
            )
    return {name: Product(name, files[f"{name}.vtkhdf"], known) for name, known in facts.items()}


def _index(folder: str) -> dict[str, Path]:
    found = _found(folder)
    if not found:
        raise FileNotFoundError(f"{folder} has no finished flows: there is no part_000.tar.")
    return found


@cache
def _found(folder: str) -> dict[str, Path]:
    found = {}
    for archive in sorted(Path(folder).glob("part_*.tar")):
        with tarfile.open(archive) as part:
            found |= {name.removesuffix(_SUFFIX): archive for name in part.getnames()}
    return found


# Adding to the archives


def add(dataset: Path | str, folder: Path | str, part_bytes: int = PART_BYTES) -> list[Path]:
    """Put flows of a dataset that the folder lacks into further archives there, and note which could not be computed.

    Args:
        dataset: folder of the dataset; it need not be complete.
        folder: of the archives.
        part_bytes: no archive becomes larger.
    """
    manifest = read_manifest(dataset)
    other = {key: manifest.settings.get(key) for key, value in {"seed": 0, "spacing": 1.0}.items()}
    if manifest.dataset != "plane-flow" or other != {"seed": 0, "spacing": 1.0}:
        raise ValueError(
            f"{dataset} is {manifest.dataset!r} with {other}; archives have plane-flow's seed and spacing."
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    known = _found(str(folder))
    complete = [flow for flow in _flows_of(manifest, dataset) if flow not in known]
    written = []
    number = 1 + max((int(path.stem.removeprefix("part_")) for path in folder.glob("part_*.tar")), default=-1)
    for content in _parts(((flow, _flow_archive(Path(dataset), manifest, flow)) for flow in complete), part_bytes):
        written.append(folder / f"part_{number:03d}.tar")
        write_atomically(written[-1], content)
        number += 1
    _found.cache_clear()
    _note_failures(folder, manifest)
    return written


def _flows_of(manifest: Manifest, dataset: Path | str) -> list[str]:
    """Flows all of whose cases are there."""
    there = set(intact(dataset, manifest.cases, manifest))
    flows: dict[str, list[str]] = {}
    for members in manifest.splits.values():
        for name in members:
            flows.setdefault(name.rpartition(".")[0], []).append(name)
    return [flow for flow, members in flows.items() if there.issuperset(members)]


def _flow_archive(dataset: Path, manifest: Manifest, flow: str) -> bytes:
    members = [name for name in manifest.cases if name.rpartition(".")[0] == flow]
    facts = {"flow": flow, "cases": {name: manifest.cases[name].facts for name in members}}
    files = {f"{name}.vtkhdf": checked_content(dataset, name, manifest) for name in members}
    files[f"{flow}.json"] = json.dumps(facts).encode()
    return lzma.compress(_tar(files.items()), preset=9 | lzma.PRESET_EXTREME)


def _parts(flows: Iterable[tuple[str, bytes]], part_bytes: int) -> Iterable[bytes]:
    gathered: dict[str, bytes] = {}
    # A tar has a header of half a kilobyte for each member, fills up half a one, and ends with ten.
    size = 10_240
    for flow, content in flows:
        if gathered and size + len(content) + 1024 > part_bytes:
            yield _tar(gathered.items())
            gathered, size = {}, 10_240
        gathered[flow + _SUFFIX] = content
        size += len(content) + 1024
    if gathered:
        yield _tar(gathered.items())


def _tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    """The same bytes for the same files: members have neither times nor owners."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def _note_failures(folder: Path, manifest: Manifest) -> None:
    noted = dict(failures(folder))
    noted |= {name.rpartition(".")[0]: facts for name, facts in manifest.failed.items()}
    noted = {flow: noted[flow] for flow in sorted(noted) if flow not in _found(str(folder))}
    if noted or (folder / FAILURES).exists():
        write_atomically(folder / FAILURES, json.dumps(noted, indent=1) + "\n")
    failures.cache_clear()
