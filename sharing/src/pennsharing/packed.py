"""Networks in one file, from a path or from an https address: checked, within limits, and only data.

A packed network is a .zip file of known kinds of files with `pack.json`, which lists them with sizes and hashes. It is
unpacked into a cache, under its own hash; what is there already is not fetched again. Nothing in it is run.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import os
import re
import stat
import time
import urllib.error
import urllib.request
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pennpde.files import replacing_folder

SUFFIX = ".zip"
MANIFEST = "pack.json"
FORMAT, FORMAT_VERSION = "pennpde packed network", 1
MOST_BYTES = 512 * 2**20
"""Of the file, and of all that is in it. Networks of this package have some hundred kilobytes."""
MOST_FILES = 100
SUFFIXES = (".json", ".safetensors", ".md", ".png", ".txt")
BARE_NAMES = ("LICENSE", "NOTICE")
CACHE = "PENN_CACHE"
"""The environment variable that names another folder than ~/.cache/pennpde."""
_NAME = re.compile(r"(pictures/)?[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_SECONDS_OF_SILENCE, _SECONDS = 30.0, 900.0
_CHUNK = 2**18


class PackedError(ValueError):
    """A packed network is damaged, not what was asked for, or has something in it that it must not have."""


def folder_of(name: str) -> Path:
    """The folder of a packed network, from its path or its address: what `load_pretrained` asks for."""
    return fetched(name) if "://" in name else unpacked(Path(name))


# Unpacking


def unpacked(path: Path) -> Path:
    """The folder of a packed network, in the cache."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.stat().st_size > MOST_BYTES:
        raise PackedError(f"{path} has {path.stat().st_size:,} bytes; a packed network has at most {MOST_BYTES:,}.")
    return _unpacked(path.read_bytes(), str(path))


def _unpacked(archive: bytes, name: str, sha256: str | None = None) -> Path:
    """The folder of a packed network.

    Args:
        archive: the content of the .zip file.
        name: what messages call it.
        sha256: what its hash must be.
    """
    digest = hashlib.sha256(archive).hexdigest()
    if sha256 is not None and digest != sha256:
        raise PackedError(
            f"{name} has the sha256 {digest}, expected is {sha256}: it is damaged, or not the network that was meant. "
            "Nothing of it was used."
        )
    if (known := _cached(digest)) is not None:
        return known
    return _settle(_content_of(archive, name), digest)


def _content_of(packed: bytes, name: str) -> dict[str, bytes]:
    """All files of an archive, checked against its list, in memory: nothing is written before all of it is right."""
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            entries = _checked_entries(archive, name)
            content = {}
            for entry in entries:
                with archive.open(entry) as stream:
                    # One byte more than announced shows an entry that announces too little.
                    content[entry.filename] = stream.read(entry.file_size + 1)
                if len(content[entry.filename]) != entry.file_size:
                    raise PackedError(f"{name} is damaged: {entry.filename!r} is not as long as it announces.")
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, KeyError) as error:
        raise PackedError(f"{name} is damaged, or not a packed network: {error}.") from None
    if MANIFEST not in content:
        raise PackedError(f"{name} is not a packed network: it has no {MANIFEST}. `penn pack` makes one.")
    listed = files_of(content[MANIFEST], f"{MANIFEST} of {name}")
    if wrong := sorted(listed.keys() ^ (content.keys() - {MANIFEST})):
        raise PackedError(f"{name} and its {MANIFEST} do not have the same files: {', '.join(wrong[:5])}.")
    for each, (size, sha256) in listed.items():
        if len(content[each]) != size or hashlib.sha256(content[each]).hexdigest() != sha256:
            raise PackedError(f"{name} is damaged: {each!r} does not have the size or hash that {MANIFEST} lists.")
    return content


def _checked_entries(archive: zipfile.ZipFile, name: str) -> list[zipfile.ZipInfo]:
    entries = archive.infolist()
    if len(entries) > MOST_FILES:
        raise PackedError(f"{name} holds {len(entries):,} files; a packed network has at most {MOST_FILES}.")
    for entry in entries:
        suffix = Path(entry.filename).suffix.lower()
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if not _NAME.fullmatch(entry.filename) or kind not in (0, stat.S_IFREG):
            raise PackedError(f"{name} holds {entry.filename!r}, which is no file that may be in a packed network.")
        if suffix not in SUFFIXES and entry.filename not in BARE_NAMES:
            raise PackedError(
                f"{name} holds {entry.filename!r}; a packed network has only files that end in {', '.join(SUFFIXES)}."
            )
    if len({entry.filename.lower() for entry in entries}) < len(entries):
        raise PackedError(f"{name} holds two files of one name.")
    size = sum(entry.file_size for entry in entries)
    if size > MOST_BYTES:
        raise PackedError(f"{name} unpacks to {size:,} bytes; a packed network has at most {MOST_BYTES:,}.")
    return entries


def files_of(manifest: bytes, source: str) -> dict[str, tuple[int, str]]:
    """The sizes and hashes of the files that a list names; a PackedError where it is none."""
    try:
        found: Any = json.loads(manifest.decode())
        if found["format"] != FORMAT or found["format_version"] > FORMAT_VERSION:
            raise PackedError(
                f"{source} has format {found['format']!r}, version {found['format_version']!r}; this is {FORMAT!r}, "
                f"version {FORMAT_VERSION}. Install a newer pennpde."
            )
        listed = {str(name): (int(each["bytes"]), str(each["sha256"])) for name, each in found["files"].items()}
        if any(size < 0 for size, _ in listed.values()):
            raise PackedError(f"{source} lists a file of a negative size.")
        return listed
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise PackedError(f"{source} is damaged: {error}.") from None


def listing(content: Mapping[str, bytes]) -> dict[str, Any]:
    """The list of files, as `pack.json` has it."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "files": {
            name: {"bytes": len(each), "sha256": hashlib.sha256(each).hexdigest()}
            for name, each in sorted(content.items())
        },
    }


def check_folder(folder: Path) -> None:
    """Refuse a packed folder in which a file is not what its list says. Folders without a list are not packed."""
    if not (folder / MANIFEST).is_file():
        return
    for name, (size, sha256) in files_of((folder / MANIFEST).read_bytes(), str(folder / MANIFEST)).items():
        path = folder / name
        if not _NAME.fullmatch(name) or not path.is_file() or path.stat().st_size != size:
            raise PackedError(f"{folder} is not complete: {name} is missing, or not as long as {MANIFEST} lists it.")
        if hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise PackedError(f"{path} was changed: it does not have the hash that {MANIFEST} lists.")


# The cache


def cache_folder() -> Path:
    """Where fetched and unpacked networks are kept; may be removed at any time."""
    if given := os.environ.get(CACHE):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pennpde"


def _cached(digest: str) -> Path | None:
    folder = cache_folder() / "networks" / digest
    try:
        check_folder(folder)
    except PackedError:
        return None
    return folder if (folder / MANIFEST).is_file() else None


def _settle(content: Mapping[str, bytes], digest: str) -> Path:
    """Write the files into a folder of the cache, which appears there complete."""
    folder = cache_folder() / "networks" / digest
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(folder) as temporary:
            for each, data in content.items():
                (temporary / each).parent.mkdir(exist_ok=True)
                (temporary / each).write_bytes(data)
    except OSError as error:
        if _cached(digest) is None:  # else another program was quicker
            raise OSError(
                error.errno, f"{error.strerror}: set {CACHE} to a folder for networks", str(folder)
            ) from error
    return folder


# Fetching


def fetched(address: str) -> Path:
    """The folder of a packed network at an https address, such as https://example.org/mine.zip#sha256=...

    With a hash the network is fetched once, and it is the one that was meant. Without one a warning tells the hash.
    http is taken only from this machine itself.
    """
    plain, _, fragment = address.partition("#")
    _check_address(plain)
    if fragment and re.fullmatch("sha256=[0-9a-fA-F]{64}", fragment) is None:
        raise PackedError(f"{address!r} ends in #{fragment}; a hash is given as #sha256= and 64 digits.")
    sha256 = fragment.removeprefix("sha256=").lower() or None
    if sha256 is not None and (known := _cached(sha256)) is not None:
        return known
    archive = _download(plain)
    found = _unpacked(archive, plain, sha256)
    if sha256 is None:
        warnings.warn(
            f"{plain} was not compared with a hash. To be sure to get this very network again, give "
            f"{plain}#sha256={hashlib.sha256(archive).hexdigest()}",
            stacklevel=2,
        )
    return found


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError as error:
        raise PackedError(f"{address!r} is not an address: {error}.") from None
    if parts.scheme != "https" and not (parts.scheme == "http" and host in ("localhost", "127.0.0.1", "::1")):
        raise PackedError(f"{address!r} is refused: networks are fetched from https addresses only.")
    if not host or parts.username is not None or any(character.isspace() for character in address):
        raise PackedError(f"{address!r} is refused: write https://HOST/PATH.zip, without user name and spaces.")


class _CarefulRedirects(urllib.request.HTTPRedirectHandler):
    """Follows only to addresses that could have been given."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        _check_address(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _download(address: str) -> bytes:
    received, deadline = bytearray(), time.monotonic() + _SECONDS
    try:
        with urllib.request.build_opener(_CarefulRedirects).open(address, timeout=_SECONDS_OF_SILENCE) as response:
            announced = int(response.headers.get("Content-Length") or 0)
            while part := response.read1(_CHUNK):  # what is there, without waiting for the rest of the chunk
                received += part
                if max(len(received), announced) > MOST_BYTES or time.monotonic() > deadline:
                    raise PackedError(
                        f"{address} was given up: it has more than {MOST_BYTES:,} bytes, or takes more than "
                        f"{_SECONDS:.0f} s."
                    )
    except PackedError:
        raise
    except urllib.error.HTTPError as error:
        with error:
            raise PackedError(f"{address} cannot be fetched: the server says {error.code} {error.reason}.") from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise PackedError(f"{address} cannot be fetched: {getattr(error, 'reason', error)}.") from None
    if len(received) < announced:
        raise PackedError(f"{address} cannot be fetched: {len(received):,} of {announced:,} bytes came.")
    return bytes(received)
