"""Flows that were computed before, kept in archives: taken from there instead of being computed again.

A folder holds `part_000.tar`, `part_001.tar` ...; each has one compressed archive per flow, with its cases as VTKHDF
files and what is known about them as JSON. Archives are added, never rewritten. `failures.json` names the flows that
could not be computed, and why; `sensitivity.json` says at which moments flows depend on the mesh (see `sensitivity`).

Arrays in the first five parts are compressed, and so were compressed twice; in later ones they are not, which makes an
archive a fifth smaller.
"""

from __future__ import annotations

import io
import json
import lzma
import re
import tarfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pennlab.datasets.packing import intact
from pennlab.datasets.plane_flow import sensitivity
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.recipe import Product
from pennpde.data.storage import Manifest, read_file, read_manifest
from pennpde.data.vtkhdf import CaseFile, pack, unpack
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


def cases(folder: Path | str, flow: Flow) -> dict[str, CaseFile]:
    """The cases of a flow, by name, ready to be used; one that was drawn by other rules than today's is refused."""
    files, facts = _contents(folder, flow)
    return {name: unpack(files[f"{name}.vtkhdf"], name) for name in facts["cases"]}


def facts(folder: Path | str, flow: Flow) -> dict[str, dict[str, Any]]:
    """What is known about the cases of a flow, by name."""
    return _contents(folder, flow)[1]["cases"]


def products(folder: Path | str, flow: Flow) -> dict[str, Product]:
    """The cases of a flow as files of a dataset, whose arrays are compressed. Who only wants to read takes `cases`."""
    files, facts = _contents(folder, flow)
    made = {}
    for name, known in facts["cases"].items():
        content = files[f"{name}.vtkhdf"]
        if not facts.get("compressed", True):
            file = unpack(content, name)
            content = pack(file.case, file.times, notes=file.notes)
        made[name] = Product(name, content, {**known, **sensitivity.facts_of(folder, flow.name, known["times"])})
    return made


def _contents(folder: Path | str, flow: Flow) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files in the archive of a flow, and what its JSON says."""
    archive = _index(str(folder))[flow.name]
    with tarfile.open(archive) as part:
        member = part.extractfile(flow.name + _SUFFIX)
        assert member is not None
        content = lzma.decompress(member.read())
    with tarfile.open(fileobj=io.BytesIO(content)) as inner:
        files = {each.name: file.read() for each in inner.getmembers() if (file := inner.extractfile(each)) is not None}
    facts: dict[str, Any] = json.loads(files[f"{flow.name}.json"])
    for name, known in facts["cases"].items():
        if known["fingerprints"]["flow"] != flow.fingerprint():
            raise ValueError(
                f"{archive} has {name}, but of a flow that is drawn differently today: its fingerprint is "
                f"{known['fingerprints']['flow']}, not {flow.fingerprint()}. Leave --finished out to compute it."
            )
    return files, facts


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
    about = {name: sensitivity.without_facts(manifest.cases[name].facts) for name in members}
    return packed_flow(flow, {name: read_file(dataset, name, manifest) for name in members}, about)


def packed_flow(flow: str, cases: Mapping[str, CaseFile], facts: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The archive of one flow, from its cases and what is known about each of them."""
    files = {f"{name}.vtkhdf": _uncompressed(file) for name, file in cases.items()}
    files[f"{flow}.json"] = json.dumps({"flow": flow, "compressed": False, "cases": dict(facts)}).encode()
    return lzma.compress(_tar(files.items()), preset=9 | lzma.PRESET_EXTREME)


def write_part(path: Path, flows: Mapping[str, bytes]) -> None:
    """An archive of flows, each as `packed_flow` makes it."""
    write_atomically(path, _tar((flow + _SUFFIX, content) for flow, content in flows.items()))


def _uncompressed(file: CaseFile) -> bytes:
    return pack(file.case, file.times, notes=file.notes, compressed=False)


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


def _without_folders(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a failure without the folders of the machine that had it."""
    return {key: re.sub(r" in /\S+", "", value) if isinstance(value, str) else value for key, value in facts.items()}


def _note_failures(folder: Path, manifest: Manifest) -> None:
    noted = dict(failures(folder))
    noted |= {name.rpartition(".")[0]: _without_folders(facts) for name, facts in manifest.failed.items()}
    noted = {flow: noted[flow] for flow in sorted(noted) if flow not in _found(str(folder))}
    if noted or (folder / FAILURES).exists():
        write_atomically(folder / FAILURES, json.dumps(noted, indent=1) + "\n")
    failures.cache_clear()
