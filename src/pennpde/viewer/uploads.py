"""What users upload: mesh files, whose boundary they choose in pieces, and OpenFOAM cases in zip files.

VTK trusts the counts in a file: a wrong one ends the process that reads it, or takes all of its memory. So this runs in
a process of its own (`workers`), with a limit of memory.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from jaxtyping import Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from pennpde import registry
from pennpde.case import Case, problem_files
from pennpde.mesh import Mesh
from pennpde.mesh.boundary import CORNER, Ring, edges_of
from pennpde.mesh.files import WRITABLE
from pennpde.openfoam.cases import read_problem
from pennpde.penn import Equation
from pennpde.viewer.views import MOST_SEGMENTS, ROLES, Role

MOST_POINTS = 200_000
MOST_FILES = 2_000
MOST_BYTES = 400 * 2**20
"""Of all files of an archive together, unpacked."""
DEEPEST = 12
"""Folders inside each other."""
_CHUNK = 2**18
_NAMES: dict[Role, tuple[str, ...]] = {
    "inlet": ("inlet", "inflow", "entrance"),
    "outlet": ("outlet", "outflow", "exit"),
}


# Meshes and cases


def suffixes() -> tuple[str, ...]:
    """Of the mesh files that the page takes."""
    return (*WRITABLE, ".msh", *sorted(registry.formats()))


def read_mesh(path: Path) -> Mesh:
    """A plane mesh from a file; a ValueError says why there is none, with the name of the file."""
    if path.suffix.lower() not in suffixes():
        raise ValueError(
            f"{path.name} is of no known kind: choose a file that ends in {', '.join(suffixes())}, or an "
            "OpenFOAM case as .zip."
        )
    with _named(path):
        mesh = Mesh.read(path)
        _check_size(mesh)
        try:
            return mesh if mesh.space == 2 else Mesh.plane_of(mesh)
        except ValueError as error:
            raise ValueError(
                f"the page draws plane meshes, or those one cell thick in z. {error} Use `penn predict` for bodies."
            ) from None


def read_case(archive: Path, folder: Path, equation: Equation) -> Case:
    """The plane case of a zip file: of OpenFOAM, or a mesh with its problem file.

    It is unpacked into a folder, unless that is there already.
    """
    with _named(archive):
        if not folder.is_dir():
            unpack(archive, folder)
        problems = sorted(folder.glob("**/*.toml"))
        found = problems[0] if len(problems) == 1 else case_folder(folder)
        try:
            case = read_problem(found, equation) if found.is_dir() else _with_problem(found)
        except Exception as error:
            # Users know their case by its own name, not by the folder that it was unpacked to.
            raise ValueError(words_of(error).replace(f"{found}/", "").replace(str(found), "the case")) from error
        if unknown := [each.text for each in case.remarks if each.other_physics]:
            raise ValueError(f"the case has physics that the network does not know: {' '.join(unknown)}")
        _check_size(case.mesh)
        if case.space != 2:
            raise ValueError(
                "the page draws plane cases, those one cell thick between `empty` patches. Use `penn predict`."
            )
        return case


def _with_problem(problem: Path) -> Case:
    """The case of a problem file and the only mesh file next to it."""
    meshes = [each for each in sorted(problem.parent.iterdir()) if each.suffix.lower() in suffixes()]
    if len(meshes) != 1:
        names = ", ".join(each.name for each in meshes) or "none"
        raise ValueError(f"next to {problem.name} there must be one mesh file; there are {len(meshes)}: {names}.")
    return problem_files.read_problem(problem, read_mesh(meshes[0]))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors as one sentence that begins with the name of the file."""
    try:
        yield
    except MemoryError:
        raise ValueError(f"{path.name} needs more memory than the page has for it.") from None
    except (SystemExit, UnicodeDecodeError):  # meshio's ways to say that it cannot read a file
        raise ValueError(f"{path.name} cannot be read: it is not a mesh, or it is damaged.") from None
    except Exception as error:
        # Without the folder that only we know, and without VTK's view of its own inside.
        reason = words_of(error)
        reason = re.sub(r"ERROR: In \S+, line \d+\s+\([^)]*\): ", "", reason).replace(str(path), f" {path.name}")
        reason = re.sub(r":?\s*The VTK reader `.*", ".", reason, flags=re.DOTALL)
        reason = " ".join(reason.split()) or type(error).__name__
        named = reason.startswith(path.name)
        raise ValueError(reason if named else f"{path.name} cannot be read: {reason}") from error


def words_of(error: BaseException) -> str:
    """What went wrong. Errors about wrong input explain themselves; any other needs its kind."""
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    plain = message and isinstance(error, ValueError | KeyError | OSError)
    return message if plain else f"{type(error).__name__}: {message}"


def _check_size(mesh: Mesh) -> None:
    if mesh.number_of_points > MOST_POINTS:
        raise ValueError(
            f"it has {mesh.number_of_points:,} points, and the page takes {MOST_POINTS:,}. Use `penn predict` for it."
        )


# Archives


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
            paths = [_checked(member) for member in members]
            folder.mkdir()
            room = MOST_BYTES
            for member, path in zip(members, paths, strict=True):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, (folder / path).open("xb") as stream:
                    while chunk := source.read(_CHUNK):
                        room -= len(chunk)
                        if room < 0:
                            raise ValueError(_too_large())
                        stream.write(chunk)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise ValueError(f"it is damaged or no zip file: {error}") from None
    except ValueError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _checked(member: zipfile.ZipInfo) -> PurePosixPath:
    """The path of a file in an archive that leads nowhere else."""
    name = member.filename.replace("\\", "/")  # as some programs of Windows write it
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or ":" in name or "\0" in name or not path.parts:
        raise ValueError(f"its file {name[:80]!r} leads out of the archive.")
    if len(path.parts) > DEEPEST:
        raise ValueError(f"its file {name[:80]!r} lies more than {DEEPEST} folders deep.")
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
        raise ValueError(f"{name[:80]!r} is a link or a device; an archive for the page has plain files.")
    if member.flag_bits & 1:
        raise ValueError("it is encrypted; pack it without a password.")
    if member.file_size > MOST_BYTES:
        raise ValueError(_too_large())
    return path


def _too_large() -> str:
    return f"it unpacks to more than {MOST_BYTES >> 20} MB. Leave out the times after the first."


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


# The boundary in pieces that a person can point at: inlet, outlet, wall


@dataclass(frozen=True, eq=False)
class Segment:
    """Exterior facets that follow each other without a corner and belong to the same patch of the file.

    Attributes:
        facets: Indices into `Mesh.facets`.
        place: Where it lies, in words.
        length: Of all its facets together.
        patch: The patch of the mesh that it belongs to.
    """

    facets: Int64[np.ndarray, " facets"]
    place: str
    length: float
    patch: str | None

    @property
    def role(self) -> Role:
        """What the name of its patch says it is."""
        name = (self.patch or "").lower()
        for role, words in _NAMES.items():
            if any(word in name for word in words):
                return role
        return "wall"


def segments(mesh: Mesh, corner: float = CORNER) -> list[Segment]:
    """The boundary of a plane mesh in segments, from left to right.

    Args:
        mesh: A plane mesh.
        corner: The least angle, in radians, by which the boundary turns at a corner.
    """
    ring = Ring.of(mesh)
    edges, positions = ring.edges, mesh.points.numpy()
    label = np.full(len(edges), -1)
    names = list(mesh.patches)
    for number, name in enumerate(names):
        facets = mesh.patches[name].facets
        label[facets[label[facets] < 0]] = number
    first, second = ring.before, ring.after
    together = (np.abs(ring.turns(positions)) < corner) & (label[first] == label[second])
    graph = coo_array((np.ones(together.sum(), bool), (first[together], second[together])), shape=2 * (len(edges),))
    number, owner = connected_components(graph, directed=False)
    if number > MOST_SEGMENTS:
        raise ValueError(
            f"The boundary has {number} segments between its corners, too many to choose from on a page. Name the "
            "patches in the file, or use `penn predict` with a case file."
        )
    pieces = [np.flatnonzero(owner == piece) for piece in range(number)]
    pieces.sort(key=lambda facets: tuple(positions[edges[facets]].mean(axis=(0, 1)).round(9)))
    return [
        Segment(
            facets,
            _place(positions, edges[facets]),
            float(mesh.facet_areas[facets].norm(dim=1).sum()),
            names[label[facets[0]]] if label[facets[0]] >= 0 else None,
        )
        for facets in pieces
    ]


def with_roles(mesh: Mesh, pieces: Sequence[Segment], roles: Sequence[Role]) -> Mesh:
    """The mesh with the patches inlet, outlet and wall, as far as any segment has that role."""
    edges = edges_of(mesh)
    chosen = {
        role: np.concatenate([piece.facets for piece, own in zip(pieces, roles, strict=True) if own == role])
        for role in ROLES
        if role in roles
    }
    return mesh.with_patch_facets({role: edges[facets] for role, facets in chosen.items()})


def _place(everywhere: np.ndarray, edges: np.ndarray) -> str:
    points, count = np.unique(edges, return_counts=True)
    positions = everywhere[points]
    low, high = positions.min(axis=0), positions.max(axis=0)
    nearness = 1e-6 * float(np.ptp(everywhere, axis=0).max())
    for axis, other in ((0, 1), (1, 0)):
        if high[axis] - low[axis] <= nearness:
            names = "xy"
            return f"{names[axis]} = {low[axis]:.3g}, {names[other]} from {low[other]:.3g} to {high[other]:.3g}"
    ends = positions[count == 1]
    if len(ends) != 2:
        centre = (low + high) / 2
        return f"closed, around ({centre[0]:.3g}, {centre[1]:.3g})"
    (a, b), (c, d) = sorted(map(tuple, ends))
    return f"({a:.3g}, {b:.3g}) to ({c:.3g}, {d:.3g})"
