"""`penn info`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pennpde.cli.conventions import Output

EXAMPLES = ["penn info", "penn info part.vtu --json"]


def run(
    output: Output,
    mesh: Annotated[Path | None, typer.Argument(help="A mesh file to describe.", show_default=False)] = None,
) -> dict[str, Any]:
    """Describe this installation, or a mesh file."""
    record = _installation() if mesh is None else _mesh(mesh)
    width = max(len(name) for name in record)
    for name, value in record.items():
        output.say(f"{name.replace('_', ' '):{width}}  {_words(value)}")
    return record


def _installation() -> dict[str, Any]:
    import os
    import platform
    import shutil
    from importlib.metadata import version

    import torch

    from pennpde import __version__

    return {
        "pennpde": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processors": os.cpu_count(),
        "vtk": version("vtk"),
        "pyvista": version("pyvista"),
        "openfoam": shutil.which("icoFoam"),
    }


def _mesh(path: Path) -> dict[str, Any]:
    from pennpde.mesh import Mesh

    mesh = Mesh.read(path)
    low, high = mesh.points.amin(dim=0), mesh.points.amax(dim=0)
    return {
        "file": str(path),
        "space_dimensions": mesh.space,
        "points": mesh.number_of_points,
        "cells": mesh.number_of_cells,
        "lowest_corner": low.tolist(),
        "highest_corner": high.tolist(),
        "patches": {name: len(patch.points) for name, patch in mesh.patches.items()},
        "fields": {name: list(field.shape) for name, field in mesh.fields.items()},
    }


def _words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(f"{item:g}" for item in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} ({item})" for name, item in value.items()) or "none"
    return str(value)
