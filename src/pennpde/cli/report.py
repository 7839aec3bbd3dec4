"""`penn report`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pennpde.cli.conventions import Output
from pennpde.files import write_atomically

EXAMPLES = [
    "penn report records --out results.md",
    "penn report records/flow/shipped/0.json --pictures pictures --case b_0.80_0.70",
]


def run(
    output: Output,
    records: Annotated[
        list[Path],
        typer.Argument(help="Records from `penn evaluate --json`, or folders of records.", show_default=False),
    ],
    out: Annotated[Path | None, typer.Option(help="Markdown file for the tables.", show_default="print them")] = None,
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
    """
    from pennpde.paper.tables import markdown, read_records, within

    found = read_records(records)
    text = markdown(found)
    written = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, within(out.read_text(encoding="utf-8"), text) if out.exists() else text)
        written.append(str(out))
    else:
        output.say(text)
    if pictures is not None:
        for record in output.progress(found, "drawing", total=len(found)):
            if not record["transformed"]:
                written += _draw(record, data, case, pictures)
    output.say(*(f"Written: {path}" for path in written))
    return {"records": len(found), "written": written, "markdown": text}


def _draw(record: dict[str, Any], data: Path | None, names: list[str] | None, folder: Path) -> list[str]:
    import torch

    from pennpde.checkpoints import load_pretrained
    from pennpde.datasets import storage
    from pennpde.paper.tables import draw_case

    network = load_pretrained(record["model"])
    place = data or Path(record["dataset"]["folder"])
    cases = {each.name: each for each in storage.read(place, record["split"], frames=False)}
    target = next(iter(record["pooled"]["domain"]))
    ordered = sorted(record["records"], key=lambda each: each[target])
    chosen = names or [ordered[len(ordered) // 2]["name"]]
    if unknown := [name for name in chosen if name not in cases]:
        raise KeyError(f"{place} has no case {unknown[0]!r} in its split {record['split']!r}.")
    written = []
    for name in chosen:
        path = folder / f"{record['row'] or Path(record['model']).name}_{name}.png"
        with torch.no_grad():
            draw_case(cases[name], network(cases[name]), path)
        written.append(str(path))
    return written
