"""`penn info`."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output
from pennpde.cli.mesh_input import Repair, read_mesh
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
    path: Annotated[
        Path | None, typer.Argument(help="Folder of a dataset, case file, or mesh file.", show_default=False)
    ] = None,
    case: Annotated[
        str | None, typer.Option(metavar="NAME", help="Describe only this case of the dataset.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write that case as a separate .vtkhdf file for ParaView and PyVista.", show_default=False),
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Also draw a picture.", show_default=False)] = None,
    repair: Repair = None,
) -> dict[str, Any]:
    """Describe this installation, a dataset, one of its cases, or a mesh file.

    A dataset is read completely and its cases are checked against their hashes. With --case only that case is read.
    """
    _check_options(path, case, out, png)
    if path is None:
        record = _installation()
        pictured = []
    elif case is not None:
        record, pictured = _case_of_dataset(path, case, out)
    elif path.is_dir():
        record, pictured = _dataset(path, output)
    else:
        record, pictured = _file(path, repair is not False, output)
    if png is not None:
        if not pictured:
            raise ValueError("There is nothing to draw: give a dataset, a case file or a mesh file.")
        _draw(png, pictured)
        record["picture"] = str(png)
    width = max(len(name) for name in record)
    for name, value in record.items():
        lines = _words(value)
        output.say(f"{name.replace('_', ' '):{width}}  {lines[0]}", *(" " * (width + 2) + line for line in lines[1:]))
    return record


def _check_options(path: Path | None, case: str | None, out: Path | None, png: Path | None) -> None:
    from pennpde.data.vtkhdf import SUFFIX

    if case is not None and (path is None or not path.is_dir()):
        raise typer.BadParameter("--case names a case of a dataset: give the dataset's folder as well.")
    if out is not None and case is None:
        raise typer.BadParameter("--out writes one case of a dataset: name it with --case.")
    if out is not None and out.suffix != SUFFIX:
        raise typer.BadParameter(f"--out is {str(out)!r}; the file of a case ends in {SUFFIX}.")
    if png is not None and png.suffix not in _PICTURES:
        raise typer.BadParameter(f"{png} must end in one of {', '.join(_PICTURES)}", param_hint="--png")


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
    from pennpde.data.content import summary
    from pennpde.data.storage import bytes_on_disk, dataset_hash, read_files, read_manifest

    manifest = read_manifest(folder)
    names = manifest.names()
    shown = {names[round(place * (len(names) - 1) / (_PICTURED - 1))] for place in range(_PICTURED)} if names else set()
    pictured, sizes, fields, parameters = [], _Ranges(), _Ranges(), _Ranges()
    targets = _Targets()
    for case_file in output.progress(read_files(folder), "reading", total=len(names)):
        case = case_file.case
        targets.add(case_file)
        sizes.add("points", case.mesh.number_of_points)
        sizes.add("cells", case.mesh.number_of_cells)
        for name, values in _all_fields(case).items():
            fields.add(name, values)
        for name, values in case.parameters.items():
            parameters.add(name, values)
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
        **sizes.found,
        **targets.found(),
        "parameters": parameters.found,
        "facts": summary(manifest),
        "fields": fields.found,
        "settings": dict(manifest.settings),
        "written_by": dict(manifest.about),
        "hashes": "all agree",
    }
    return record, pictured


class _Targets:
    """At which times the truth of the cases is known."""

    def __init__(self) -> None:
        self.counts, self.times, self.steady, self.number = _Ranges(), _Ranges(), 0, 0

    def add(self, case_file: "CaseFile") -> None:
        from pennpde.case.moments import moments

        known = moments(case_file.case, case_file.times)
        if not known:
            return
        self.number += 1
        self.steady += any(each.is_steady for each in known)
        times = [each.time for each in known if not each.is_steady]
        self.counts.add("moments_per_case", len(times))
        for time in times:
            if time is not None:
                self.times.add("times", time)

    def found(self) -> dict[str, Any]:
        steady = {"steady_states": self.steady} if self.steady else {}
        return {**self.counts.found, **self.times.found, **steady} if self.number else {}


class _Range(tuple[float, float]):
    __slots__ = ()


class _Ranges:
    """The smallest and the largest of each value, over many cases."""

    def __init__(self) -> None:
        self.found: dict[str, _Range] = {}

    def add(self, name: str, values: "Tensor | float") -> None:
        import torch

        values = torch.tensor(values, dtype=torch.float64) if isinstance(values, float) else torch.as_tensor(values)
        low, high = values.min().item(), values.max().item()
        known = self.found.get(name, (low, high))
        self.found[name] = _Range((min(low, known[0]), max(high, known[1])))


# A case or a mesh


def _file(path: Path, repair: bool, output: Output) -> tuple[dict[str, Any], Sequence["Case | Mesh"]]:
    from pennpde.data.shards import Shard, is_shard
    from pennpde.data.vtkhdf import is_case_file, unpack

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
    record = {**_mesh(mesh, path), "fields": fields, "notes": list(mesh.notes)}
    return record, [mesh]


def _case_of_dataset(folder: Path, name: str, out: Path | None) -> tuple[dict[str, Any], list["Case"]]:
    from pennpde.data import storage

    manifest = storage.read_manifest(folder)
    case_file = storage.read_file(folder, name, manifest)
    entry = manifest.cases[name]
    record, pictured = _case(case_file, folder / entry.file)
    record |= {"splits": [split for split, names in manifest.splits.items() if name in names], "sha256": entry.sha256}
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, storage.checked_content(folder, name, manifest))
        record["written"] = str(out)
    return record, pictured


def _case(case_file: "CaseFile", path: Path) -> tuple[dict[str, Any], list["Case"]]:
    case, fields = case_file.case, _Ranges()
    for name, values in _all_fields(case).items():
        fields.add(name, values)
    return {
        "case": case.name,
        **_mesh(case.mesh, path),
        "conditions": {name: _conditions(case, name) for name in case.initial},
        "parameters": {name: value.tolist() for name, value in case.parameters.items()},
        "times": [0.0, *(time for time in case_file.times if time > 0)],
        "fields": fields.found,
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


def _conditions(case: "Case", name: str) -> dict[str, int]:
    """How many points have which condition."""
    counts = {each.kind: int(each.mask.sum()) for each in case.conditions_of(name)}
    return {kind: counts[kind] for kind in sorted(counts) if counts[kind]}


def _all_fields(case: "Case") -> dict[str, "Tensor"]:
    return {
        **{f"initial {name}": values for name, values in case.initial.items()},
        **{f"target {name}": values for name, values in case.targets.items()},
        **case.features,
    }


def _words(value: Any) -> list[str]:
    """A value in one line, or a table of values in few lines each."""
    if isinstance(value, Mapping) and any(isinstance(item, Mapping | list | tuple | str) for item in value.values()):
        width = max(len(str(name)) for name in value)
        found = []
        for name, item in value.items():
            lines = wrap(_plain(item), 100, max_lines=_MOST_LINES, placeholder=" ...") or [""]
            found += [f"{name:{width}}  {lines[0]}", *(" " * (width + 2) + line for line in lines[1:])]
        return found
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


# Pictures


def _draw(path: Path, shown: Iterable["Case | Mesh"]) -> None:
    from pennpde import pictures
    from pennpde.mesh import Mesh

    rows = []
    for each in shown:
        mesh, fields = (each, each.fields) if isinstance(each, Mesh) else (each.mesh, _drawable(each))
        name = "" if isinstance(each, Mesh) else f"{each.name}: "
        row = [(f"{name}{title}", mesh, _magnitude(values)) for title, values in fields.items()]
        rows.append(row or [(f"{name}mesh", mesh, mesh.points[:, 0])])
    if rows[0][0][1].space == 3:
        pictures.draw_solids(path, rows)
        return
    panels = [
        [
            pictures.Panel(
                title,
                mesh,
                values,
                pictures.DIVERGING if float(values.min()) < 0 else pictures.SEQUENTIAL,
                outline=number == 0,
            )
            for number, (title, mesh, values) in enumerate(row)
        ]
        for row in rows
    ]
    pictures.draw(path, panels)


def _drawable(case: "Case") -> dict[str, "Tensor"]:
    """The targets at their last time, and unknowns without target at the start."""
    fields = {}
    for name, values in {**case.initial, **case.targets}.items():
        with_times = name in case.initial and values.ndim > case.initial[name].ndim
        last = values[..., -1] if with_times else values
        fields[f"|{name}|" if last.ndim > 1 else name] = last
    return fields


def _magnitude(values: "Tensor") -> "Tensor":
    values = values.double()
    return values if values.ndim == 1 else values.flatten(1).norm(dim=1)
