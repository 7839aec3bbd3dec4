"""`penn collect`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from pennpde.cli.conventions import Output, Repair, duration

if TYPE_CHECKING:
    from pennpde.data.runs.collect import Collection

EXAMPLES = [
    "penn collect runs/* --out data/mine",
    "penn collect runs/* --out data/mine --time 0:4:0.5 --spacing 0.1L",
    "penn collect runs/* --out data/steady --time steady --workers 8",
    "penn collect runs/*.pvd --out data/mine --case case.toml --fields u=velocity,p=pressure",
    "penn collect plumes/* --out data/plumes --fields T --time 1,2,4",
]

_MOST_LINES = 20


def run(
    output: Output,
    runs: Annotated[
        list[Path],
        Argument(
            help="Folders of OpenFOAM cases; files or series (.pvd, .vtu, .vtkhdf, .cgns ...) with a problem file "
            "next to them (NAME.toml or case.toml)."
        ),
    ],
    out: Annotated[Path, Option("--out", "-o", help="Folder of the dataset; runs are added to an older one.")],
    time: Annotated[
        str,
        Option(
            metavar="TIME",
            help="Which times become targets: latest, steady (the latest, as a steady state), 4, 1,2,4 or "
            "first:last:step as 0:4:0.5.",
        ),
    ] = "latest",
    fields: Annotated[
        str,
        Option(metavar="NAMES", help="Fields of the runs, such as U,p or T or u=U,p=p_rgh.", show_default="U,p or T"),
    ] = "",
    parameters: Annotated[
        str, Option(metavar="NAMES", help="Parameters of the runs, as viscosity=nu.", show_default="nu, or DT and U")
    ] = "",
    case: Annotated[Path | None, Option(help="Problem file of files that have none next to them.")] = None,
    spacing: Annotated[
        str | None,
        Option(
            metavar="LENGTH",
            help="Put finer meshes on triangles of this size, in the units of the runs, or as 0.1L in inlet widths.",
            show_default="the runs' own meshes",
        ),
    ] = None,
    test_share: Annotated[float, Option(min=0.0, max=0.9, help="Share of the runs for the test.")] = 0.1,
    validation_share: Annotated[float, Option(min=0.0, max=0.9, help="Share of the runs for the validation.")] = 0.1,
    seed: Annotated[int, Option(min=0, help="Random seed of the splits.")] = 0,
    mixed: Annotated[
        bool, Option("--mixed", help="Allow runs with different patches, and of very different size.")
    ] = False,
    unfinished: Annotated[bool, Option("--unfinished", help="Take runs that have not come to their endTime.")] = False,
    strict: Annotated[bool, Option("--strict", help="Fail if any run could not be collected; repair no mesh.")] = False,
    repair: Repair = None,
    workers: Annotated[
        int | None,
        Option(
            min=0,
            help="Number of processes on this machine; 0: this process.",
            show_default="one per processor for many runs",
        ),
    ] = None,
) -> dict[str, Any]:
    """Make a dataset of your own finished simulations.

    Conditions and parameters come from each run. Values of cells are brought to the points, with the prescribed values
    on the boundary. Runs that are nearly the same go into the same split. A run that cannot be used is named, and the
    others go on. The folder gets report.md, report.json and report.png. The same command again reads only what is new
    or has changed.
    """
    from pennpde.data.runs.collect import collect_runs
    from pennpde.data.runs.survey import Shares

    with output.progress_bar("collecting") as show:
        collection = collect_runs(
            runs,
            out,
            time=time,
            fields=_names(fields),
            parameters=_names(parameters),
            problem=case,
            spacing=spacing,
            mixed=mixed,
            unfinished=unfinished,
            repair=(not strict) if repair is None else repair,
            shares=Shares(validation_share, test_share, seed),
            workers=workers,
            on_progress=None if show is None else lambda _, status: show(status),
        )
    _tell(output, collection)
    if strict and collection.failed:
        raise RunsFailedError(
            f"{len(collection.failed)} runs could not be collected, which --strict does not allow; the dataset holds "
            "the others"
        )
    told = {name: value for name, value in vars(collection).items() if name != "report"}
    return told | {name: collection.report[name] for name in ("splits", "ranges")}


class RunsFailedError(RuntimeError):
    """Some runs could not be collected; the dataset holds the others."""


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def _tell(output: Output, collection: "Collection") -> None:
    from pennpde.data.runs.collect import PICTURE_FILE, TEXT_FILE

    for names, word in ((collection.failed, "not collected"), (collection.skipped, "skipped")):
        for name, reason in list(names.items())[:_MOST_LINES]:
            output.warn(f"{name} {word}: {reason}")
        if len(names) > _MOST_LINES:
            output.warn(f"... and {len(names) - _MOST_LINES} more {word}; {TEXT_FILE} names them")
    record = collection.report
    not_known = _not_known(record)
    noted = {
        name: others[0]
        for name, facts in record["cases"].items()
        if (others := [note for note in facts.get("notes", ()) if note not in not_known])
    }
    for name, note in list(noted.items())[:1]:
        more = f" (and {len(noted) - 1} more runs with notes, see {TEXT_FILE})" if len(noted) > 1 else ""
        output.warn(f"{name}: {note}{more}")
    splits = ", ".join(f"{split} {len(names)}" for split, names in record["splits"].items())
    output.say(
        f"{collection.folder}: {len(collection.collected)} runs collected in {duration(collection.seconds)}, "
        f"{len(collection.kept)} were there, {len(collection.failed)} failed; now {len(record['cases'])} cases "
        f"({splits})",
        f"Report: {collection.folder / TEXT_FILE}, pictures: {collection.folder / PICTURE_FILE}",
    )
    for note, names in not_known.items():
        runs = f"{len(names)} runs" if len(names) > 1 else names[0]
        output.warn(f"{runs}: {note}")
    nearest = record["splitting"].get("nearest")
    if nearest is not None and nearest < 1:
        output.warn(
            f"near twins had to be parted: {' and '.join(record['splitting']['closest'])} are in different splits. "
            "Errors on the test set are those between close neighbours"
        )


def _not_known(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """What some runs were computed with and no case can hold, with the names of the cases."""
    from pennpde.data.runs.source import NOT_KNOWN

    found: dict[str, list[str]] = {}
    for name, facts in record["cases"].items():
        for note in facts.get("notes", ()):
            if note.startswith(NOT_KNOWN):
                found.setdefault(note, []).append(name)
    return found
