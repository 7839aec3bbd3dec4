"""`penn study`."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from pennpde.cli.conventions import (
    Accuracy,
    CaseFile,
    Fast,
    Fine,
    Force,
    Length,
    Mesher,
    Model,
    Output,
    Plugin,
    Speed,
    Steady,
    StudyInput,
    Times,
    duration,
    level_of,
)
from pennpde.cli.predict import asked_times

if TYPE_CHECKING:
    from pennpde.study import Study, Table

ABOUT = """Compute one flow in many variants: a table of numbers, and a report.

`penn study study.toml` and `penn study CASE --vary ...` are short for `penn study run ...`."""

EXAMPLES = [
    "penn study study.toml --out drag",
    'penn study myCase --vary "viscosity=1e-3:1e-2:log:20" --vary "inlet.u=0.5,1,2" '
    '--quantity "pressure drop inlet outlet"',
    'penn study duct.vtu --case duct.toml --vary "inlet.u=0.5:2" --design sobol --number 64 --quantity "drag body"',
    'penn study template --vary "height=0.1:0.3:9" --mesher blockMesh --quantity "pressure drop inlet outlet" --fast',
    "penn study verify drag --top 5 --solver icoFoam",
    "penn study verify drag --top 2 --of uncertain --solver simpleFoam",
]
DEFAULT = "run"


class Choice(StrEnum):
    """Which designs a solver gets."""

    BEST, WORST, UNCERTAIN = "best", "worst", "uncertain"


_FEW = 16
"""Designs for which no other processes are started: each takes seconds to start."""


def run(
    output: Output,
    input_path: StudyInput,
    vary: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUES",
            help="What varies, several times: viscosity=1e-3:1e-2:log:20, inlet.u=0.5,1,2, time=1,2, or a number of "
            "the shape such as height=0.1:0.3:5. Values are a list or LOW:HIGH[:log][:NUMBER].",
        ),
    ] = None,
    quantity: Annotated[
        list[str] | None, Option(help='What is measured, several times, such as "pressure drop inlet outlet".')
    ] = None,
    case: CaseFile = None,
    design: Annotated[
        str, Option(help="grid (all combinations), latin-hypercube, sobol, or a .csv file with a line for each design.")
    ] = "grid",
    number: Annotated[int | None, Option(min=1, help="Number of designs that are samples.")] = None,
    seed: Annotated[int, Option(min=0, help="Of the samples.")] = 0,
    times: Times = None,
    steady: Steady = False,
    model: Model = "flow",
    accuracy: Accuracy = None,
    fast: Fast = False,
    fine: Fine = False,
    mesher: Mesher = None,
    length: Length = None,
    speed: Speed = None,
    force: Force = False,
    out: Annotated[
        Path | None, Option("--out", "-o", help="Folder of the study.", show_default="the name of the input")
    ] = None,
    keep_fields: Annotated[
        str | None, Option(metavar="SUFFIX", help="Also write the fields of each design: .vtu, .vtk, .vtkhdf or .pvd.")
    ] = None,
    workers: Annotated[
        int | None,
        Option(
            min=0, help="Processes on this machine; 0: this one.", show_default="one per processor for many designs"
        ),
    ] = None,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="Address of a running Dask scheduler to use instead.")
    ] = None,
    device: Annotated[
        str, Option(metavar="DEVICE", help="Where designs are marched side by side, such as cuda.", show_default="none")
    ] = "",
    plugin: Plugin = None,
) -> dict[str, Any]:
    """Compute all designs of a study; a study that was stopped goes on.

    The folder gets table.csv, table.parquet where pyarrow is installed, and report.html. A design that cannot be
    computed is a row with its reason.
    """
    level = level_of(accuracy, fast=fast, fine=fine)
    if keep_fields is not None and keep_fields not in (".vtu", ".vtk", ".vtkhdf", ".pvd"):
        raise BadParameter(f"{keep_fields!r} is none of .vtu, .vtk, .vtkhdf, .pvd", param_hint="--keep-fields")
    asked = asked_times(None, times, False)
    given: dict[str, Any] = {
        "quantities": quantity, "problem": case, "number": number, "seed": seed or None, "times": asked,
        "steady": steady or None, "accuracy": accuracy, "level": level,
        "mesher": mesher, "length": length, "speed": speed, "force": force or None,
        "design": None if design == "grid" else design, "model": None if model == "flow" else model,
    }  # fmt: skip
    from pennpde.data.workers import processors
    from pennpde.registry import load_plugin

    if plugin is not None:
        load_plugin(plugin)
    study = study_of(input_path, vary, given)
    folder = out or Path(input_path.stem if _is_study(input_path) else f"{input_path.resolve().stem}_study")
    if workers is None and (len(study.designs) < _FEW or processors() == 1):
        workers = 0
    try:
        with output.progress_bar("designs") as bar:
            table = study.run(
                folder,
                workers=workers,
                scheduler=scheduler,
                keep_fields=keep_fields or "",
                device=device,
                on_progress=bar,
            )
    except KeyboardInterrupt:
        output.warn(f"stopped; what is computed is in {folder}, and the same command goes on")
        return {"folder": str(folder), "exit_code": 130}
    return _told(output, study, table, folder)


def _is_study(path: Path) -> bool:
    return path.suffix == ".toml" and not path.is_dir()


def study_of(path: Path, vary: Sequence[str] | None, given: Mapping[str, Any]) -> "Study":
    """The study of a file, which says everything; or of a case, of which options say what varies and more."""
    from pennpde.study import Study
    from pennpde.study.variables import parse_vary

    options = {name: value for name, value in given.items() if value is not None}
    if _is_study(path):
        if vary or options:
            names = ", ".join([*(["vary"] if vary else []), *options])
            raise BadParameter(f"{path} says what varies and all else; set {names} there", param_hint="INPUT")
        return Study.read(path)
    varied = [parse_vary(each) for each in vary or ()]
    study = Study(path, {each.name: each for each in varied}, **options)
    if len(study.vary) < len(varied):
        raise BadParameter("the same name is given twice", param_hint="--vary")
    return study


def _told(output: Output, study: "Study", table: "Table", folder: Path) -> dict[str, Any]:
    from pennpde.study.report import write

    written, missing = write(table, folder, title=str(study.definition["input"]))
    broken = [row for row in table.rows if not row.quantities]
    seconds = sum(row.seconds for row in table.rows)
    output.say(
        f"{len(table.rows)} designs, {len(broken)} without numbers; {duration(seconds)} of computing, "
        f"{seconds / max(len(table.rows), 1):.2g} s each",
        *(f"design {row.design} has no numbers: {row.reason}" for row in broken[:5]),
    )
    for name in table.names:
        for words, largest in (("smallest", False), ("largest", True)):
            row = table.best(name, largest=largest)[0]
            values = ", ".join(f"{key} = {value:.4g}" for key, value in row.values.items())
            output.say(f"{words} {name}: {row.quantities[name][-1]:.4g} at {values} (design {row.design})")
    if missing:
        output.note(missing)
    output.say(*(f"Written: {path}" for path in written))
    return {
        "folder": str(folder),
        "designs": len(table.rows),
        "without_numbers": len(broken),
        "seconds": seconds,
        "rows": [dict(zip(table.columns, row, strict=True)) for row in zip(*table.columns.values(), strict=True)],
        "written": [str(path) for path in written],
    }


def verify(
    output: Output,
    folder: Annotated[Path, Argument(metavar="STUDY", help="Folder of a study of OpenFOAM cases.")],
    solver: Annotated[str, Option(help="OpenFOAM's program, or one of your own, such as icoFoam.")],
    top: Annotated[int, Option(min=1, help="How many designs of each choice.")] = 5,
    of: Annotated[
        list[Choice] | None,
        Option(help="Which designs, several times: the best (smallest), the worst, the most uncertain; default: best."),
    ] = None,
    designs: Annotated[str | None, Option(metavar="1,7,12", help="These designs instead.")] = None,
    by: Annotated[str, Option(metavar="QUANTITY", help="What decides.", show_default="the first quantity")] = "",
    largest: Annotated[bool, Option("--largest", help="The largest number is the best.")] = False,
    timeout: Annotated[float, Option(min=1.0, help="Seconds after which a solver is ended.")] = 3600.0,
    plugin: Plugin = None,
) -> dict[str, Any]:
    """Run your own solver on chosen designs, and add its numbers and the actual errors to the table.

    The cases are written to the folder verified/ of the study, from which `penn collect` takes them for training.
    """
    from pennpde.registry import load_plugin
    from pennpde.study import Study
    from pennpde.study.table import read_definition, read_table
    from pennpde.study.verification import verify as verified

    if plugin is not None:
        load_plugin(plugin)
    study, table = Study.of(read_definition(folder), Path(), str(folder)), read_table(folder)
    if designs is not None:
        try:
            chosen = [int(each) for each in designs.split(",")]
        except ValueError:
            raise BadParameter(f"{designs!r} is no list of numbers", param_hint="--designs") from None
    else:
        pick = {
            Choice.BEST: lambda: table.best(by, top, largest=largest),
            Choice.WORST: lambda: table.best(by, top, largest=not largest),
            Choice.UNCERTAIN: lambda: table.uncertain(by, top),
        }
        chosen = list(dict.fromkeys(row.design for each in of or [Choice.BEST] for row in pick[each]()))
    for found in output.progress(verified(study, table, folder, chosen, solver, timeout), "solving", len(chosen)):
        if found.reason:
            output.warn(f"design {found.design}: {found.reason}")
        else:
            output.say(f"design {found.design}: {solver} took {duration(found.seconds)}")
    record = _told(output, study, read_table(folder), folder)
    return {**record, "verified": chosen}


COMMANDS = {"run": run, "verify": verify}
