"""Flows that were computed before, kept in archives: taken from there instead of being computed again.

A folder holds `part_000.tar`, `part_001.tar` ...; each has one compressed archive per flow, with its cases as VTKHDF
files and what is known about them as JSON. Archives are added, never rewritten.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pennpde.datasets.plane_flow.flow import Flow
from pennpde.datasets.recipes import Product

_SUFFIX = ".tar.xz"


def is_finished(folder: Path | str, flow: str) -> bool:
    """Whether the folder has a flow."""
    return flow in _index(str(folder))


def names(folder: Path | str) -> list[str]:
    """The flows of a folder."""
    return sorted(_index(str(folder)))


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


@cache
def _index(folder: str) -> dict[str, Path]:
    found = {}
    for archive in sorted(Path(folder).glob("part_*.tar")):
        with tarfile.open(archive) as part:
            found |= {name.removesuffix(_SUFFIX): archive for name in part.getnames()}
    if not found:
        raise FileNotFoundError(f"{folder} has no finished flows: there is no part_000.tar.")
    return found
