"""`penn report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output
from pennpde.files import write_atomically

if TYPE_CHECKING:
    from pennlab.paper.tables import Record, Times

EXAMPLES = [
    "penn report lab/records --out results.md",
    "penn report lab/records/flow/shipped/0.json --pictures pictures --case b_0.80_0.70",
    "penn report lab/records/flow/penn lab/records/flow/C --pictures pictures --case b_0.80_0.70",
]


def run(
    output: Output,
    records: Annotated[
        list[Path],
        typer.Argument(help="Records from `penn evaluate --json`, or folders of records.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(help="Markdown file for the tables.", show_default="print them")] = None,
    times: Annotated[
        Path | None,
        typer.Option(
            help="Record of `penn bench tradeoff`, whose times the tables take.", show_default="the records' own times"
        ),
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(help="Folder for pictures of reference, prediction and error.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Dataset for the pictures.", show_default="the one named in the record")
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Case to draw; may be given several times.", show_default="the case of median error"),
    ] = None,
) -> dict[str, Any]:
    """Make tables from records, next to the published values, and pictures like the paper's figures.

    In an existing file, only the part between the lines `<!-- tables -->` and `<!-- end of tables -->` is replaced.
    A picture shows all networks of a dataset side by side, and the moved case if the records of moved cases are given.
    Weights are taken from where a record says, or from the folder next to it; networks without weights are left out.
    """
    from pennlab.paper.tables import markdown, read_files, within

    files = read_files(records)
    text = markdown([record for _, record in files], None if times is None else _times(times))
    written = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, within(out.read_text(encoding="utf-8"), text) if out.exists() else text)
        written.append(str(out))
    elif pictures is None:
        output.say(text)
    if pictures is not None:
        groups: dict[tuple[str, str], list[tuple[Path, Record]]] = {}
        for path, record in files:
            if not record.get("test_set"):
                groups.setdefault((record["dataset"]["folder"], record["split"]), []).append((path, record))
        for (folder, split), group in groups.items():
            written += _draw(output, group, data or Path(folder), split, case, pictures)
    output.say(*(f"Written: {path}" for path in written))
    return {"records": len(files), "written": written, "markdown": text}


def _times(path: Path) -> "Times":
    from pennlab.paper.openfoam_sweep import sweep
    from pennlab.paper.tradeoff import measure as tradeoff

    return tradeoff.times_of_networks(sweep.read_record(path, tradeoff.KIND, "penn bench tradeoff"))


def _draw(
    output: Output,
    files: "Sequence[tuple[Path, Record]]",
    data: Path,
    split: str,
    names: list[str] | None,
    folder: Path,
) -> list[str]:
    import torch

    from pennlab.paper.figures import draw_comparison, networks_of
    from pennlab.targets import read_at_end
    from pennpde.pictures import draw_case

    networks, missing = networks_of(files)
    if missing:
        output.warn(f"left out, because their weights are not here: {', '.join(missing)}")
    if not networks:
        return []
    record = files[0][1]
    cases = {each.name: each for each in read_at_end(data, split)}
    target = next(iter(record["pooled"]["domain"]))
    ordered = sorted(record["records"], key=lambda each: each[target])
    chosen = names or [ordered[len(ordered) // 2]["name"]]
    if unknown := [name for name in chosen if name not in cases]:
        raise KeyError(f"{data} has no case {unknown[0]!r} in its split {split!r}.")
    motion = any(each["transformed"] for _, each in files)
    written = []
    for name in output.progress(chosen, "drawing", total=len(chosen)):
        if len(networks) == 1 and not motion:
            path = folder / f"{networks[0].row}_{name}.png"
            with torch.no_grad():
                draw_case(cases[name], networks[0].network(cases[name]), path)
        else:
            path = folder / f"{record['dataset']['kind']}_{name}.png"
            draw_comparison(cases[name], networks, path, motion=motion)
        written.append(str(path))
    return written
