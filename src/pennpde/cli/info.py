"""`penn info`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from pennpde.cli.conventions import Output, Repair, read_mesh
from pennpde.files import read_regular, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

    from pennpde.case import Case
    from pennpde.data.vtkhdf import CaseFile
    from pennpde.mesh import Mesh

EXAMPLES = [
    "penn info",
    "penn info part.vtu --json",
    "penn info data/flow --png flow.png",
    "penn info data/flow --case a_0.30 --out a_0.30.vtkhdf",
]

_PICTURED = 3
_PICTURES = (".png", ".pdf", ".svg")
_MOST_LINES = 4


def run(
    output: Output,
    path: Annotated[Path | None, Argument(help="Folder of a dataset, case file, or mesh file.")] = None,
    case: Annotated[str | None, Option(metavar="NAME", help="Describe only this case of the dataset.")] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Write that case as a separate .vtkhdf file for ParaView and PyVista.")
    ] = None,
    png: Annotated[Path | None, Option(help="Also draw a picture.")] = None,
    repair: Repair = None,
) -> dict[str, Any]:
    """Describe this installation, a dataset, one of its cases, or a mesh file.

    A dataset is read completely and its cases are checked against their hashes. With --case only that case is read.
    """
    _check_options(path, case, out, png)
    if path is None:
        record, pictured = _installation(), []
    elif case is not None:
        record, pictured = _case_of_dataset(path, case, out)
    elif path.is_dir():
        record, pictured = _dataset(path, output)
    else:
        record, pictured = _file(path, repair is not False, output)
    if png is not None:
        if not pictured:
            raise ValueError("There is nothing to draw: give a dataset, a case file or a mesh file.")
        from pennpde.pictures import draw_all

        draw_all(png, pictured)
        record["picture"] = str(png)
    output.say(*_aligned({name.replace("_", " "): _words(value) for name, value in record.items()}))
    return record


def _check_options(path: Path | None, case: str | None, out: Path | None, png: Path | None) -> None:
    from pennpde.data.vtkhdf import SUFFIX

    if case is not None and (path is None or not path.is_dir()):
        raise BadParameter("--case names a case of a dataset: give the dataset's folder as well.")
    if out is not None and case is None:
        raise BadParameter("--out writes one case of a dataset: name it with --case.")
    if out is not None and out.suffix != SUFFIX:
        raise BadParameter(f"--out is {str(out)!r}; the file of a case ends in {SUFFIX}.")
    if png is not None and png.suffix not in _PICTURES:
        raise BadParameter(f"{png} must end in one of {', '.join(_PICTURES)}", param_hint="--png")


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


# A dataset


def _dataset(folder: Path, output: Output) -> tuple[dict[str, Any], list["Case"]]:
    from pennpde.case.moments import moments
    from pennpde.data.storage import bytes_on_disk, dataset_hash, evenly, read_files, read_manifest, summary

    manifest = read_manifest(folder)
    names = manifest.names()
    shown = evenly(names, _PICTURED)
    pictured: list[Case] = []
    numbers, fields, parameters = _Ranges(), _Ranges(), _Ranges()
    steady = 0
    for case_file in output.progress(read_files(folder), "reading", total=len(names)):
        case = case_file.case
        numbers.add("points", case.mesh.number_of_points)
        numbers.add("cells", case.mesh.number_of_cells)
        if known := moments(case, case_file.times):
            times = [each.time for each in known if each.time is not None and not each.is_steady]
            steady += any(each.is_steady for each in known)
            numbers.add("moments_per_case", sum(not each.is_steady for each in known))
            numbers.add("times", *times)
        fields.add_all(_all_fields(case))
        parameters.add_all(case.parameters)
        if case.name in shown:
            pictured.append(case)
    missing = sum(name not in manifest.cases for split in manifest.splits.values() for name in split)
    record = {
        "dataset": manifest.dataset,
        "folder": str(folder),
        "hash": dataset_hash(folder),
        "cases": len(names),
        "splits": {split: len(manifest.names(split)) for split in manifest.splits},
        "missing": missing,
        "failed": {name: str(facts.get("error")) for name, facts in manifest.failed.items()},
        "files": len(manifest.files),
        "bytes": bytes_on_disk(folder, manifest),
        **numbers,
        **({"steady_states": steady} if steady else {}),
        "parameters": dict(parameters),
        "facts": summary(manifest),
        "fields": dict(fields),
        "settings": dict(manifest.settings),
        "written_by": dict(manifest.about),
        "hashes": "all agree",
    }
    return record, pictured


class _Range(tuple[float, float]):
    __slots__ = ()


class _Ranges(dict[str, _Range]):
    """The smallest and the largest of each value, over many cases."""

    def add(self, name: str, *values: float) -> None:
        if values:
            known = self.get(name, values)
            self[name] = _Range((min(*values, *known), max(*values, *known)))

    def add_all(self, fields: "Mapping[str, Tensor]") -> None:
        for name, values in fields.items():
            self.add(name, values.min().item(), values.max().item())


# A case or a mesh


def _file(path: Path, repair: bool, output: Output) -> tuple[dict[str, Any], Sequence["Case | Mesh"]]:
    from pennpde.data.vtkhdf import Shard, is_case_file, is_shard, unpack

    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a regular file; give a file or the folder of a dataset.")
    if path.exists() and is_case_file(path):
        return _case(unpack(read_regular(path), str(path)), path)
    if path.exists() and is_shard(path):
        with Shard(path) as shard:
            first = shard.read(shard.names[0])
            return {"file": str(path), "cases": shard.names, "folder": str(path.parent)}, [first.case]
    mesh = read_mesh(path, repair, output)
    fields = {name: list(field.shape) for name, field in mesh.fields.items()}
    return {**_mesh(mesh, path), "fields": fields, "notes": list(mesh.notes)}, [mesh]


def _case_of_dataset(folder: Path, name: str, out: Path | None) -> tuple[dict[str, Any], list["Case"]]:
    from pennpde.data import storage

    manifest = storage.read_manifest(folder)
    with storage.CaseReader(folder, manifest) as cases:
        case_file, content = cases.read(name), cases.content(name) if out is not None else b""
    entry = manifest.cases[name]
    record, pictured = _case(case_file, folder / entry.file)
    record |= {"splits": [split for split, names in manifest.splits.items() if name in names], "sha256": entry.sha256}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content)
        record["written"] = str(out)
    return record, pictured


def _case(case_file: "CaseFile", path: Path) -> tuple[dict[str, Any], list["Case"]]:
    case, fields = case_file.case, _Ranges()
    fields.add_all(_all_fields(case))
    counts = {name: {each.kind: int(each.mask.sum()) for each in case.conditions_of(name)} for name in case.initial}
    return {
        "case": case.name,
        **_mesh(case.mesh, path),
        "conditions": {name: {kind: n for kind, n in sorted(found.items()) if n} for name, found in counts.items()},
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
        "times": [0.0, *(time for time in case_file.times if time > 0)],
        "fields": dict(fields),
    }, [case]


def _mesh(mesh: "Mesh", path: Path) -> dict[str, Any]:
    return {
        "file": str(path),
        "space_dimensions": mesh.space,
        "points": mesh.number_of_points,
        "cells": mesh.number_of_cells,
        "lowest_corner": mesh.points.amin(dim=0).tolist(),
        "highest_corner": mesh.points.amax(dim=0).tolist(),
        "patches": {name: len(patch.points) for name, patch in mesh.patches.items()},
    }


def _all_fields(case: "Case") -> dict[str, "Tensor"]:
    return {
        **{f"initial {name}": values for name, values in case.initial.items()},
        **{f"target {name}": values for name, values in case.targets.items()},
        **case.features,
    }


# Words


def _aligned(named: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines with names in a column at the left."""
    width = max(map(len, named))
    return [
        f"{name if place == 0 else '':{width}}  {line}"
        for name, lines in named.items()
        for place, line in enumerate(lines)
    ]


def _words(value: Any) -> list[str]:
    """A value in one line, or a table of values in few lines each."""
    if isinstance(value, Mapping) and any(isinstance(item, Mapping | list | tuple | str) for item in value.values()):
        most: dict[str, Any] = {"width": 100, "max_lines": _MOST_LINES, "placeholder": " ..."}
        return _aligned({str(name): wrap(_plain(item), **most) or [""] for name, item in value.items()})
    return [_plain(value)]


def _plain(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, _Range):
        low, high = map(_plain, value)
        return low if low == high else f"{low} to {high}"
    if isinstance(value, list):
        if len(value) > 8:
            return f"{_plain(value[0])}, {_plain(value[1])} ... {_plain(value[-1])} ({len(value)})"
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name} ({_plain(item)})" for name, item in value.items()) or "none"
    return str(value)
