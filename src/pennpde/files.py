"""Files that are whole or not there, and values that JSON can hold.

Whatever stops a writer (a full disk, a kill, a power cut), the file of that name is the new one or the old one, never a
part of either.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PART = ".part"


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Write a file so that under its name there is, at all times, all of it or what was there before.

    Text is encoded as UTF-8. The folder must exist.
    """
    path = Path(path)
    content = content.encode() if isinstance(content, str) else content
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise OSError(
            error.errno,
            f"{error.strerror}: {path} ({len(content)} bytes) could not be written. What was complete before is kept; "
            "make room or mend the folder, then start again.",
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    _settle_folder(path.parent)


def write_json(path: Path | str, value: Any, indent: int | None = 2) -> None:
    """Write a value as a JSON file, see `plain`."""
    write_atomically(path, json.dumps(plain(value), indent=indent, allow_nan=False) + "\n")


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """For libraries that write files by themselves: another name to write to, which becomes `path` at the end.

    The name has the same suffix, from which libraries choose the format. Whatever is raised inside, such as by a check
    of what was written, leaves the old file in place.
    """
    path = Path(path)
    temporary = _temporary(path, path.suffix)
    try:
        temporary.touch()  # VTK does not raise where it cannot write, it only complains on the terminal
        yield temporary
        if not temporary.is_file() or temporary.stat().st_size == 0:
            raise OSError(f"{path} could not be written; is the disk full?")
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _settle_folder(path.parent)


def remove_leftovers(folder: Path | str) -> None:
    """Remove the parts of files whose writer was killed. Nobody else may be writing into the folder."""
    for path in Path(folder).glob(f".*{_PART}*"):
        path.unlink(missing_ok=True)


def plain(value: Any) -> Any:
    """The value in JSON's terms: numbers that JSON does not have (nan, inf) become null, arrays become lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        # A NumPy scalar is a float too; JSON writes it like any other.
        return value if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # arrays, tensors and their scalars
        return plain(value.tolist())
    return str(value)


def _temporary(path: Path, suffix: str = "") -> Path:
    # In the same folder, as a file cannot be renamed into another file system.
    return path.with_name(f".{path.name}.{os.getpid()}{_PART}{suffix}")


def _settle_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
