"""Mesh files as subcommands take them: read in a process that a damaged file may crash, with notes on repairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from pennpde.mesh import Mesh

Repair = Annotated[
    bool | None,
    typer.Option(
        "--repair/--no-repair",
        help="Repair the mesh, with a note for each change: cells of second order become linear, points of no cell are "
        "left out, points at the same place are merged where the mesh falls apart. Default: repair.",
        show_default=False,
    ),
]


def prepare() -> None:
    """Have the process load its libraries while this one loads its own."""
    from pennpde.mesh import reader_process

    reader_process.shared().start()


def read_mesh(path: Path, repair: bool, output: Output) -> "Mesh":
    """The mesh of a file; what was repaired is printed as notes."""
    from pennpde.mesh import Mesh, reader_process

    try:
        mesh = Mesh.from_contents(reader_process.shared().read(path), repair)
    except ValueError as error:
        named = str(error).startswith(str(path))
        raise ValueError(str(error) if named else f"{path} cannot be used. {error}") from error
    for note in mesh.notes:
        output.note(f"{path}: {note}")
    return mesh
