"""Files that are whole or not there, and values that JSON can hold.

Whatever stops a writer (a full disk, a kill, a power cut), the file of that name is the new one or the old one, never a
part of either.
"""

from __future__ import annotations

import errno
import glob
import json
import math
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PART = ".part"
_HOST = re.sub(r"\W", "", platform.node())[:32] or "host"
MOST_PACKED = 1100
"""How many bytes one byte can stand for: deflate reaches 1032, and points of a mesh never come near it."""
ALWAYS_FINE = 1_000_000
"""Bytes that a file may announce whatever it holds."""


def write_atomically(path: Path | str, content: bytes | str) -> None:
    """Write a file so that under its name there is, at all times, all of it or what was there before.

    Text is encoded as UTF-8. The folder must exist.
    """
    path = _target(Path(path))
    content = content.encode() if isinstance(content, str) else content
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as stream:  # a name that is taken, also by a link, is an error
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        if temporary.stat().st_size != len(content):  # some network file systems say nothing
            raise OSError(errno.EIO, "Not all of it was written")
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


def read_regular(path: Path | str, most: int | None = None) -> bytes:
    """The content of a file; one that is a pipe, a device or a folder, or has too many bytes, is an OSError.

    Reading a pipe that nobody writes to, or a device such as /dev/zero, would never end.
    """
    path = Path(path)
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind):
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe" if stat.S_ISFIFO(kind) else "a device or a socket"
        raise OSError(f"{path} is {what}, not a file.")
    if most is not None and path.stat().st_size > most:
        raise OSError(f"{path} has {path.stat().st_size:,} bytes; at most {most:,} are read here. Is it another file?")
    return path.read_bytes()


def check_stored(dataset: Any, label: str) -> None:
    """Refuse an array of HDF5 that has more values than its bytes can hold.

    Args:
        dataset: `h5py.h5d.DatasetID` of the array.
        label: Begins the message, as the subject of a sentence.
    """
    size, stored = math.prod(dataset.shape) * dataset.dtype.itemsize, dataset.get_storage_size()
    if size > max(MOST_PACKED * stored, ALWAYS_FINE):
        rows = dataset.shape[0] if dataset.shape else 1
        raise ValueError(f"{label} announces {rows:,} rows, {size:,} bytes, and stores {stored:,} bytes.")


def write_json(path: Path | str, value: Any, indent: int | None = 2) -> None:
    """Write a value as a JSON file, see `plain`."""
    write_atomically(path, json.dumps(plain(value), indent=indent, allow_nan=False) + "\n")


@contextmanager
def replacing(path: Path | str) -> Iterator[Path]:
    """For libraries that write files by themselves: another name to write to, which becomes `path` at the end.

    The name has the same suffix, from which libraries choose the format. Whatever is raised inside, such as by a check
    of what was written, leaves the old file in place.
    """
    path = _target(Path(path))
    temporary = _temporary(path, path.suffix)
    try:
        temporary.touch(exist_ok=False)  # VTK does not raise where it cannot write, it only complains on the terminal
        yield temporary
        if not temporary.is_file() or not temporary.stat().st_size:
            raise OSError(f"{path} could not be written completely; is the disk full? What was there before is kept.")
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _settle_folder(path.parent)


@contextmanager
def replacing_folder(path: Path | str) -> Iterator[Path]:
    """An empty folder to fill, which becomes `path` at the end; what was there before is kept until then."""
    path = Path(path)
    temporary = _temporary(path)
    try:
        temporary.mkdir()
        yield temporary
        if path.exists():
            # Two names cannot be exchanged at once: for a moment the old folder has the other one.
            old = temporary.with_name(temporary.name + ".old")
            path.rename(old)
            temporary.rename(path)
            shutil.rmtree(old, ignore_errors=True)
        else:
            temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _settle_folder(path.parent)


def remove_leftovers(folder: Path | str) -> None:
    """Remove the parts of files whose writer was killed. Nobody else may be writing into the folder."""
    for path in Path(folder).glob(f".*{_PART}*"):
        path.unlink(missing_ok=True)


@contextmanager
def locked_folder(folder: Path | str, what: str) -> Iterator[None]:
    """Only one process at a time holds a folder; for another one it is a ValueError. The lock ends with the process.

    Args:
        folder: Which must exist; nothing is written into it.
        what: Is going on in it, such as "a training".
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"In {folder} {what} is going on; wait for its end, or choose another folder.") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.EINVAL):
                raise  # some network file systems know no locks, or none of folders
        yield
    finally:
        os.close(descriptor)


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


def _target(path: Path) -> Path:
    """What a name stands for: a link is written through, not replaced; a pipe or a device is no place for a file."""
    if path.is_symlink():
        try:
            path = path.resolve()
        except RuntimeError as error:  # Python's word for links that lead to each other
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(f"{path} is a pipe, a device or a socket, not a file; choose another name.")
    return path


def _temporary(path: Path, suffix: str = "") -> Path:
    """A name for the file until it is complete; parts of it that killed processes left behind are removed."""
    start = f".{path.name}.{_HOST}-"
    for part in path.parent.glob(f"{glob.escape(start)}*{_PART}{suffix}"):
        writer = part.name.removeprefix(start).partition("-")[0]
        if writer.isdigit() and not _is_running(int(writer)):
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part, ignore_errors=True)
            else:
                part.unlink(missing_ok=True)
    # In the same folder, as a file cannot be renamed into another file system. Nobody else can know the name before
    # and leave a link there, through which a file of the writer's would be overwritten.
    return path.with_name(f"{start}{os.getpid()}-{secrets.token_hex(6)}{_PART}{suffix}")


def _is_running(process: int) -> bool:
    if os.name != "posix":
        return True  # there, asking might end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _settle_folder(folder: Path) -> None:
    """Make new names in a folder outlive a power cut."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
