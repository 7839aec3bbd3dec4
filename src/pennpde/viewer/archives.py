"""OpenFOAM cases that users upload as a zip file: unpacked within limits, wherever the case lies inside."""

from __future__ import annotations

import re
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

MOST_FILES = 2_000
MOST_BYTES = 400 * 2**20
"""Of all files together, unpacked."""
DEEPEST = 12
"""Folders inside each other."""
_CHUNK = 2**18


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip file into a new folder. A ValueError says why not; then nothing stays behind.

    What the file announces about itself is not believed: bytes are counted while they are unpacked.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = [each for each in opened.infolist() if not each.is_dir()]
            if len(members) > MOST_FILES:
                raise ValueError(
                    f"it has {len(members):,} files, and the page takes {MOST_FILES:,}. Leave out the times after the "
                    "first and the folders of processors."
                )
            for member in members:
                _check(member)
            folder.mkdir()
            room = MOST_BYTES
            for member in members:
                room -= _extract(opened, member, folder / _name(member), room)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ValueError(f"it is damaged or no zip file: {error}") from None
    except ValueError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def case_folder(folder: Path) -> Path:
    """The OpenFOAM case in a folder, at its top or further inside."""
    meshes = sorted(folder.glob("**/constant/polyMesh"), key=lambda path: (len(path.parts), str(path)))
    cases = [path.parent.parent for path in meshes if not re.fullmatch(r"processor\d+", path.parent.parent.name)]
    cases += [path.parent.parent.parent for path in meshes if path.parent.parent.name == "processor0"]
    others = [each for each in dict.fromkeys(cases) if not each.is_relative_to(cases[0])]
    if others:
        names = ", ".join(str(each.relative_to(folder)) for each in [cases[0], *others][:3])
        more = " ..." if len(others) > 2 else ""
        raise ValueError(f"it holds {len(others) + 1} cases ({names}{more}): pack one of them.")
    if cases:
        return cases[0]
    if next(folder.glob("**/blockMeshDict"), None) is not None:
        raise ValueError("it has a blockMeshDict, but no mesh in constant/polyMesh: run blockMesh before you pack it.")
    raise ValueError("it has no folder constant/polyMesh, so it holds no OpenFOAM case with a mesh.")


def _name(member: zipfile.ZipInfo) -> str:
    """Its path, with the separators of zip files: some programs of Windows write their own."""
    return member.filename.replace("\\", "/")


def _check(member: zipfile.ZipInfo) -> None:
    name = _name(member)
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name or not path.parts:
        raise ValueError(f"its file {name[:80]!r} leads out of the archive.")
    if len(path.parts) > DEEPEST:
        raise ValueError(f"its file {name[:80]!r} lies more than {DEEPEST} folders deep.")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise ValueError(f"{name[:80]!r} is a link or a device; an archive for the page has plain files.")
    if member.flag_bits & 1:
        raise ValueError("it is encrypted; pack it without a password.")
    if member.file_size > MOST_BYTES:
        raise ValueError(_too_large())


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, room: int) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with opened.open(member) as source, target.open("xb") as stream:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > room:
                raise ValueError(_too_large())
            stream.write(chunk)
    return written


def _too_large() -> str:
    return f"it unpacks to more than {MOST_BYTES >> 20} MB. Leave out the times after the first."
