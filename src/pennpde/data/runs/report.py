"""What was collected and what was not: `report.json`, `report.md` and `report.png` in the folder of the dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pennpde import pictures
from pennpde.case import Case
from pennpde.case.moments import STEADY_PREFIX
from pennpde.data.runs.source import FLOW, SCALAR
from pennpde.data.runs.survey import SPLITS
from pennpde.data.storage import Content, Manifest, content_of, read_file
from pennpde.files import plain, replacing, write_atomically, write_json
from pennpde.penn.equation import Look

JSON_FILE, TEXT_FILE, PICTURE_FILE = "report.json", "report.md", "report.png"
MOST_PICTURED = 9


def write(
    folder: Path, manifest: Manifest, skipped: Mapping[str, str], failed: Mapping[str, str], *, draw: bool = True
) -> dict[str, Any]:
    """Write the report of a dataset and return what its JSON file says.

    Args:
        folder: Of the dataset.
        manifest: As it is now.
        skipped: By path that is no run, why.
        failed: By run that could not be collected, why.
        draw: Whether the pictures are drawn, too.
    """
    content = content_of(manifest)
    record = {
        "content": manifest.settings["content"],
        "time": manifest.settings["time"],
        "spacing": manifest.settings["spacing"],
        "cases": {name: _case(manifest, name) for name in manifest.cases},
        "splits": {split: list(manifest.names(split)) for split in manifest.splits},
        "splitting": {**manifest.settings["splitting"], **manifest.about.get("splitting", {})},
        "ranges": _ranges(manifest),
        "failed": dict(failed),
        "skipped": dict(skipped),
    }
    write_json(folder / JSON_FILE, record)
    write_atomically(folder / TEXT_FILE, "\n".join(_text(folder.name, record, content)) + "\n")
    if draw:
        cases = [read_file(folder, name, manifest).case for name in _shown(manifest)]
        with replacing(folder / PICTURE_FILE) as temporary:
            _draw(temporary, cases, content)
    return plain(record)


def _case(manifest: Manifest, name: str) -> dict[str, Any]:
    facts = manifest.cases[name].facts
    split = next((split for split in manifest.splits if name in manifest.splits[split]), None)
    told = {key: value for key, value in facts.items() if key != "state"}
    return {"split": split, **told}


def _ranges(manifest: Manifest) -> dict[str, list[float]]:
    """The lowest and highest value over all cases: of parameters, targets, sizes and characteristic numbers."""
    found: dict[str, list[float]] = {}

    def add(name: str, values: Iterable[float]) -> None:
        known = [*found.get(name, []), *values]
        found[name] = [min(known), max(known)]

    for entry in manifest.cases.values():
        facts = entry.facts
        add("points", [facts["points"]])
        add("cell size", [facts["cell_size"]])
        for name, value in facts["parameters"].items():
            add(name, value if isinstance(value, list) else [value])
        for name, value in facts.get("numbers", {}).items():
            add(name, [value])
        for name, values in facts["ranges"].items():
            add(name, values)
        if "flux_off" in facts:
            add("flux off by", [facts["flux_off"]])
    return found


# Text


def _text(name: str, record: Mapping[str, Any], content: Content) -> list[str]:
    cases, failed, skipped = record["cases"], record["failed"], record["skipped"]
    network = content.network or "none of the shipped ones"
    lines = [
        f"# {name}",
        "",
        f"{len(cases)} runs collected, {len(failed)} failed, {len(skipped)} paths skipped.",
        "",
        f"- Unknowns: {', '.join(content.unknowns)}; parameters: {', '.join(content.parameters)}; "
        f"{content.space} dimensions; network: {network}.",
        f"- Targets: {content.targets} (`--time {record['time']}`).",
        f"- Meshes: {_mesh_words(record['spacing'])}",
        f"- Splits: {', '.join(f'{split} {len(names)}' for split, names in record['splits'].items())}; "
        f"{_twins(record['splitting'])}",
        "",
        f"![some of the cases]({PICTURE_FILE})",
        "",
        "## Ranges",
        "",
        "| | lowest | highest |",
        "| --- | --- | --- |",
    ]
    for what, (low, high) in record["ranges"].items():
        shown = [f"{100 * each:.2g} %" if what == "flux off by" else f"{each:.4g}" for each in (low, high)]
        lines.append(f"| {what} | {shown[0]} | {shown[1]} |")
    if failed:
        lines += ["", "## Failed", "", *(f"- `{path}`: {reason}." for path, reason in failed.items())]
    if skipped:
        lines += ["", "## Skipped", "", *(f"- `{path}`: {reason}." for path, reason in skipped.items())]
    lines += ["", "## Cases", "", "| case | split | run | format | points of the run | points | flux off by | notes |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case, facts in cases.items():
        flux = f"{100 * facts['flux_off']:.2g} %" if "flux_off" in facts else ""
        notes = "; ".join(facts.get("notes", ()))
        lines.append(
            f"| {case} | {facts['split']} | `{facts['source']}` | {facts['format']} | {facts['run']['points']} | "
            f"{facts['points']} | {flux} | {notes} |"
        )
    return lines


def _mesh_words(spacing: str | None) -> str:
    return "those of the runs." if spacing is None else f"triangles of spacing {spacing} where those of runs are finer."


def _twins(splitting: Mapping[str, Any]) -> str:
    nearest, closest = splitting.get("nearest"), splitting.get("closest") or ()
    seed = f"seed {splitting['seed']}"
    if nearest is None:
        return f"{seed}."
    pair = " and ".join(closest)
    if nearest < 1:
        return (
            f"{seed}; **near twins had to be parted**: {pair} are in different splits at a distance of {nearest:.2g} "
            "(below 1: near twins). Errors on the test set are those between neighbours."
        )
    return f"{seed}; the nearest runs of different splits are {pair}, {nearest:.2g} times the distance of near twins."


# Pictures


def _shown(manifest: Manifest) -> list[str]:
    """Cases of all splits, spread over each."""
    chosen: list[str] = []
    for split in SPLITS:
        names = manifest.names(split) if split in manifest.splits else []
        number = min(len(names), MOST_PICTURED // len(SPLITS))
        places = [round(place * (len(names) - 1) / max(number - 1, 1)) for place in range(number)]
        chosen += [names[place] for place in dict.fromkeys(places)]
    return chosen


def _draw(path: Path, cases: Sequence[Case], content: Content) -> None:
    looks = {"flow": FLOW.looks, "advection-diffusion": SCALAR.looks}.get(content.network or "", {})
    rows = []
    for case in cases:
        row = []
        for name, start in case.initial.items():
            values = case.targets.get(name, case.targets.get(STEADY_PREFIX + name, start))
            last = values[..., -1] if values.ndim > start.ndim else values
            look = looks.get(name, Look(f"|{name}|" if start.ndim > 1 else name))
            size = last.flatten(1).norm(dim=1) if last.ndim > 1 else last
            colours = pictures.DIVERGING if look.signed else pictures.SEQUENTIAL
            row.append(pictures.Panel(f"{case.name}: {look.title}", case.mesh, size, colours))
        rows.append(row)
    if content.space == 3:
        pictures.draw_solids(
            path, [[(each.title, each.mesh, each.values) for each in row if each.values is not None] for row in rows]
        )
        return
    # Two cases side by side.
    sheet = [[panel for row in rows[place : place + 2] for panel in row] for place in range(0, len(rows), 2)]
    pictures.draw(path, sheet, panel_width=3.2)
