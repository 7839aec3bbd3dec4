"""`penn bench`: one command per comparison."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from pennpde.cli.conventions import Output
from pennpde.files import write_atomically, write_json

ABOUT = """Compare networks with OpenFOAM: error against time on one core.

A second run measures only what is missing. Run it on an idle machine.
"""
EXAMPLES = [
    "penn bench openfoam --data data/flow --out bench",
    "penn bench openfoam --data data/flow --out bench --settings tuned,gamg-smooth-45-0.02@3 --limit 5",
    "penn bench tradeoff --data data/flow --models ducts --openfoam bench/openfoam_sweep.json --out bench",
    "penn bench lookup data/flow --out lookup_flow.json",
    "penn bench tradeoff --from bench/tradeoff.json --out bench",
]

Out = Annotated[Path, typer.Option(help="Folder for record, table and figure.", show_default=False)]
Data = Annotated[
    Path | None, typer.Option(help="Folder of the flow dataset whose test cases are used.", show_default=False)
]
Runs = Annotated[Path | None, typer.Option(help="Where measurements are kept and reused.", show_default="OUT/runs")]
Stored = Annotated[
    Path | None,
    typer.Option(
        "--from", help="Make table and figure from this record, without measuring anything.", show_default=False
    ),
]


def openfoam(
    output: Output,
    out: Out,
    data: Data = None,
    runs: Runs = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,...",
            help="Settings FAMILY-CELLS-STEP[@CASES], or the groups default, paper, tuned.",
            show_default="default",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Solve only this case; may be given several times.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Solve at most this many test cases.", show_default=False)
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(help="An earlier record; only what it lacks is solved.", show_default=False),
    ] = None,
    stored: Stored = None,
) -> dict[str, Any]:
    """Solve the test cases of the flow dataset with OpenFOAM in many settings.

    A run that diverges is recorded as diverged.
    """
    if stored is not None:
        _refuse_with_from(data=data, runs=runs, settings=settings, only=only, limit=limit, known=known)
        return _table_again(output, stored, out)
    return _sweep(output, _needed(data, "--data"), out, runs or out / "runs", settings or (), only or (), limit, known)


def tradeoff(
    output: Output,
    out: Out,
    data: Data = None,
    runs: Runs = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL,...",
            help="Networks that come with penn, or folders; may be given several times.",
            show_default=False,
        ),
    ] = None,
    openfoam: Annotated[
        Path | None, typer.Option(help="The record of `penn bench openfoam`.", show_default=False)
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Forward calls per case; the median counts.", show_default="5")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            help="An earlier record; its networks stay, except those with the title of a measured one.",
            show_default=False,
        ),
    ] = None,
    stored: Stored = None,
) -> dict[str, Any]:
    """Measure networks on the test cases of the flow dataset, next to the record of `penn bench openfoam`.

    With --from and --openfoam, the networks of a record stand next to a newer record of OpenFOAM.
    """
    if stored is not None:
        _refuse_with_from(data=data, runs=runs, models=models, repeats=repeats, known=known)
        return _redraw(output, stored, out, openfoam)
    names = [name.strip() for text in models or () for name in text.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("tradeoff needs --models, such as --models ducts; or --from a record.")
    kept = (runs or out / "runs") / "networks"
    return _trade(output, _needed(data, "--data"), names, _needed(openfoam, "--openfoam"), out, kept, repeats, known)


def lookup(
    output: Output,
    train_data: Annotated[Path, typer.Argument(help="Dataset whose training cases are looked up.", show_default=False)],
    data: Annotated[
        Path | None, typer.Option(help="Dataset whose test cases are wanted.", show_default="the same")
    ] = None,
    split: Annotated[str, typer.Option(help="Part of the dataset to predict.")] = "test",
    unrelated: Annotated[
        bool,
        typer.Option("--unrelated", help="Leave out cases that are a mirror image or a multiple of a training case."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="JSON file for the records.", show_default=False)] = None,
) -> dict[str, Any]:
    """Measure floors without a network: the start field, the nearest training case, a quadratic fit to neighbours."""
    from pennlab.paper.lookup import measure

    records = measure(train_data, data, split, unrelated=unrelated)
    for record in records:
        pooled = record.get("pooled", {}).get("domain", {})
        errors = "  ".join(f"{name} {each['mse']:.3e}" for name, each in pooled.items())
        output.say(f"{record['title']:<34} {errors}".rstrip())
        for when, group in record.get("times", {}).items():
            shares = "  ".join(
                f"{name} {100 * share['mean']:.1f} %" for name, share in group.items() if isinstance(share, dict)
            )
            output.say(f"  {when:<14} {group['cases']:4} cases   relative L2: {shares}")
    if out is not None:
        write_json(out, records)
        output.say(f"Written: {out}")
    return {"records": records, "written": [] if out is None else [str(out)]}


COMMANDS = {"openfoam": openfoam, "tradeoff": tradeoff, "lookup": lookup}


def _needed(path: Path | None, option: str) -> Path:
    if path is None:
        raise typer.BadParameter(f"{option} is missing.")
    return path


def _refuse_with_from(**options: Any) -> None:
    if unused := [name for name, value in options.items() if value]:
        raise typer.BadParameter(f"--{unused[0]} has no effect with --from, which measures nothing.")


def _sweep(
    output: Output,
    data: Path,
    out: Path,
    runs: Path,
    settings: Sequence[str],
    only: Sequence[str],
    limit: int | None,
    known: Path | None,
) -> dict[str, Any]:
    from pennlab.paper.openfoam_sweep import sweep as sweeping
    from pennlab.paper.openfoam_sweep.settings import read
    from pennlab.paper.tradeoff.presentation import DISTURBED, disturbance, sweep_markdown
    from pennlab.running import find_installation

    plan = read(settings)
    test_set = sweeping.TestSet.read(data, only, limit)
    if test_set.seen:
        output.warn(f"{', '.join(sorted(test_set.seen))} is not a test case: a network may have been trained on it.")
    programs = dict.fromkeys(each.setting.program for each in plan)
    installation = find_installation(("blockMesh", "potentialFoam", *programs))
    record = sweeping.sweep(
        test_set,
        plan,
        runs,
        measure=lambda case, setting: sweeping.measure(case, setting, installation),
        solver=f"OpenFOAM {installation.version}",
        about={"dataset": _dataset(data)},
        known=None if known is None else sweeping.read_record(known, sweeping.KIND, "penn bench openfoam"),
        watch=lambda left: output.progress(left, "solving", total=len(left)),
    )
    path = out / sweeping.RECORD
    sweeping.write_record(path, record)
    write_atomically(out / sweeping.TABLE, sweep_markdown(record))
    output.say(
        f"{record['runs']['all']} runs of {record['solver']} in {len(plan)} settings, {record['runs']['diverged']} "
        f"diverged; {record['seconds'] / 60:.1f} minutes of one core. Total error, seconds per case:",
        *map(_line, record["rows"]),
        f"Record: {path}, table: {out / sweeping.TABLE}",
    )
    if (busy := disturbance(record["rows"])) > DISTURBED:
        output.warn(
            f"the machine was busy: OpenFOAM's wall time is {busy:.2g} times its processor time. For reliable times, "
            f"remove {runs} and run the command again on an idle machine."
        )
    return record


def _line(row: Mapping[str, Any]) -> str:
    cases = f"{row['cases']} cases"
    diverged = f", {len(row['diverged'])} diverged" if row["diverged"] else ""
    blown_up = f", {len(row['blown_up'])} blew up" if row["blown_up"] else ""
    if row["errors"] is None:
        return f"  {row['setting']:28} diverged   {cases}"
    total, seconds = row["errors"]["total"], row["seconds"]
    return (
        f"  {row['setting']:28} {total['mse']:.2e} ± {total['spread']:.0e}   {seconds['solve']['mean']:8.2f} s (cpu "
        f"{seconds['solve_cpu']['mean']:.2f} s)   {cases}{diverged}{blown_up}"
    )


def _table_again(output: Output, stored: Path, out: Path) -> dict[str, Any]:
    from pennlab.paper.openfoam_sweep import sweep as sweeping
    from pennlab.paper.tradeoff.presentation import sweep_markdown

    text = sweep_markdown(sweeping.read_record(stored, sweeping.KIND, "penn bench openfoam"))
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / sweeping.TABLE, text)
    output.say(text, f"Written: {out / sweeping.TABLE}")
    return {"written": [out / sweeping.TABLE], "markdown": text}


def _trade(
    output: Output,
    data: Path,
    models: Sequence[str],
    sweep: Path,
    out: Path,
    runs: Path,
    repeats: int | None,
    known: Path | None,
) -> dict[str, Any]:
    from pennlab.paper.openfoam_sweep import sweep as sweeping
    from pennlab.paper.tradeoff import measure as tradeoff

    solved = sweeping.read_record(sweep, sweeping.KIND, "penn bench openfoam")
    test_set = sweeping.TestSet.read(data, tuple(solved["cases"]))
    record = tradeoff.compare(
        test_set,
        models,
        solved,
        runs=runs,
        repeats=repeats or tradeoff.REPEATS,
        about={"dataset": _dataset(data)},
        known=None if known is None else sweeping.read_record(known, tradeoff.KIND, "penn bench tradeoff"),
        watch=lambda cases, words: output.progress(cases, words, total=len(cases)),
    )
    sweeping.write_record(out / tradeoff.RECORD, record)
    return _show(output, record, out, [out / tradeoff.RECORD])


def _redraw(output: Output, stored: Path, out: Path, sweep: Path | None) -> dict[str, Any]:
    from pennlab.paper.openfoam_sweep import sweep as sweeping
    from pennlab.paper.tradeoff import measure as tradeoff

    record = sweeping.read_record(stored, tradeoff.KIND, "penn bench tradeoff")
    if sweep is None:
        return _show(output, record, out, [])
    record = tradeoff.with_openfoam(record, sweeping.read_record(sweep, sweeping.KIND, "penn bench openfoam"))
    sweeping.write_record(out / tradeoff.RECORD, record)
    return _show(output, record, out, [out / tradeoff.RECORD])


def _show(output: Output, record: Mapping[str, Any], out: Path, written: list[Path]) -> dict[str, Any]:
    from pennlab.paper.tradeoff import figure, presentation
    from pennlab.paper.tradeoff import measure as tradeoff

    text = presentation.markdown(record)
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / tradeoff.TABLE, text)
    figure.draw(record, out / tradeoff.FIGURE)
    written = [*written, out / tradeoff.TABLE, out / tradeoff.FIGURE]
    output.say(text, *(f"Written: {path}" for path in written))
    lost = [
        {
            "network": each.loser.name,
            "transformed": each.loser.transformed,
            "setting": each.winner.name,
            "with_preparation": not each.prepared,
            "total": list(each.totals),
            "seconds": list(each.seconds),
            "cases": each.cases,
        }
        for prepared in (True, False)
        for each in tradeoff.losses(record, prepared)
    ]
    return {"written": written, "losses": lost, "markdown": text}


def _dataset(folder: Path) -> dict[str, Any]:
    from pennpde.train import dataset_hash

    return {"kind": "flow", "hash": dataset_hash(folder), "folder": str(folder)}
