"""`penn predict`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli import mesh_input
from pennpde.cli.conventions import Output, Refusal
from pennpde.cli.mesh_input import Repair
from pennpde.cli.moments import ALL, asked_times, check_folders, check_times, folder_names, implied_times, is_time
from pennpde.files import replacing

if TYPE_CHECKING:
    from pennpde.case import Case
    from pennpde.penn import Physics, Predictor
    from pennpde.penn.physics import Look
    from pennpde.prediction import Outcome
    from pennpde.trust.certificate import Certificate

EXAMPLES = [
    "penn predict duct.vtu --case duct.toml --out flow.vtu --html flow.html",
    "penn predict cavity --out cavity.vtu --png cavity.png        # an OpenFOAM case",
    "penn predict myCase --write-time 4 --strict                  # write the time folder myCase/4",
    "penn predict myCase --times 0.5:4:0.5 --out flow.vtkhdf --animation flow.gif   # eight times, for ParaView",
    "penn predict myCase --times 0.5,1,2 --write-time all         # write the time folders 0.5, 1 and 2",
    "penn predict myCase --steady --write-time 1000               # write the steady state as the folder 1000",
    "penn predict duct.vtu --case duct.toml --out flow.vtu --resolution own   # never remesh",
    "penn predict plate.vtu --case plate.toml --model advection-diffusion --json",
]

_POINTS_OF_A_THREAD = 10_000
_SAME_TIME = 0.05
"""Share of the predicted duration by which the name of a time folder may be off: people round it."""
FIELDS, PICTURES, PAGES = (".vtu", ".vtk", ".vtkhdf", ".pvd"), (".png", ".pdf", ".svg"), (".html",)
ANIMATIONS = (".gif",)


def run(
    output: Output,
    input_path: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="Mesh file (with --case), or folder of an OpenFOAM case.", show_default=False
        ),
    ],
    model: Annotated[
        str, typer.Option(help="Shipped network, folder of your own, packed file, or its https address.")
    ] = "flow",
    case: Annotated[
        Path | None,
        typer.Option(help="TOML file with patches, boundary conditions and parameters.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the fields: .vtu or .vtk; several times as .vtkhdf (one file) or .pvd (with .vtu files in a "
            "folder next to it), which ParaView plays.",
            show_default=False,
        ),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(
            help="Predict the state at this time, in the units of the case (seconds), counted from its start. By "
            "default the network's own time.",
            show_default=False,
        ),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:LAST:INTERVAL",
            help="Predict several times: 0.5:4:0.5, or a list such as 0.5,1,2.",
            show_default=False,
        ),
    ] = None,
    steady: Annotated[
        bool, typer.Option("--steady", help="Predict the steady state; with --time or --times after these.")
    ] = False,
    png: Annotated[Path | None, typer.Option(help="Draw a picture: .png, .pdf or .svg.", show_default=False)] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive page for the browser: .html.", show_default=False)
    ] = None,
    animation: Annotated[
        Path | None,
        typer.Option(help="Draw all times as an animation: .gif; the colours have a fixed range.", show_default=False),
    ] = None,
    write_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Write the state at this time into the OpenFOAM case, as a time folder from which its solvers go on; "
            "all: every predicted time. With --steady it only names the folder.",
            show_default=False,
        ),
    ] = None,
    length: Annotated[float | None, typer.Option(help="Reference length (flow: the inlet width).")] = None,
    speed: Annotated[float | None, typer.Option(help="Reference speed (flow: the inlet speed).")] = None,
    resolution: Annotated[
        Literal["auto", "own", "network"],
        typer.Option(
            help="Mesh to predict on: own (yours), network (remeshed to the network's cell size), or auto (remesh if "
            "your mesh is unlike the training meshes)."
        ),
    ] = "auto",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Treat warnings of the certificate as errors; write nothing, repair nothing."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write the fields even where the expected error is above 50 %.")
    ] = False,
    draw_error: Annotated[
        bool, typer.Option("--draw-error", help="Also draw where the error is expected, in a second row of --png.")
    ] = False,
    repair: Repair = None,
    plugin: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py",
            help="Python file or module that registers your own networks.",
            show_default=False,
        ),
    ] = None,
) -> dict[str, Any]:
    """Predict the fields of a case with a trained network.

    Every prediction comes with an expected error and a grade: good, fair or poor. If the error is expected to be above
    50 %, nothing is written and the exit code is 3, unless --force is given. The certificate measures errors on the
    boundary conditions, mass balance, residual of the solver, and whether the case lies within the training range.
    """
    _check_input(input_path, case)
    _check_targets(input_path, out, png, html, write_time, animation)
    asked = asked_times(time, times, steady)
    _check_series(asked, out, animation)

    from pennpde.prediction import predict

    if case is not None:
        mesh_input.prepare()
    network = _network(model, plugin)
    check_times(network, model, asked)
    start = _start_of(input_path)
    asked = implied_times(network, asked, write_time, start)
    problem = _read(input_path, case, network, (not strict) if repair is None else repair, output)
    _check_drawable(problem, png or animation, html)
    use_threads_for(problem)
    try:
        outcome = predict(network, problem, length=length, speed=speed, resolution=resolution, times=asked)
    except ValueError:
        for remark in problem.remarks:  # they may be the reason
            output.warn(remark.text)
        raise
    folders: dict[int, str] = {}
    if write_time is not None:
        folders = folder_names(write_time, outcome.times, start, network.takes_times)
        check_folders(input_path, list(folders.values()))
        outcome = _compared_with(folders, start, input_path, outcome)
    notes = list(problem.mesh.notes)
    about = {"input": str(input_path), "model": model, "notes": notes, **_record(outcome)}
    _check_usable(outcome, strict)
    if not force:
        _refuse(output, outcome, about)
    if animation is not None and len(outcome.times) < 2:
        raise ValueError(f"--animation needs several times, but {model} predicts one; give --times with a network")
    written = write_files(
        outcome, network.equation.looks, input_path.stem, out, png, html, animation, draw_error=draw_error
    )
    if folders:
        written += _write_times(input_path, folders, outcome, network.equation)
    output.say(*_lines(model, outcome), *(f"Written: {path}" for path in written))
    tell(output, outcome.certificate)
    return about | {"written": written}


def _network(model: str, plugin: str | None) -> "Predictor":
    from pennpde.checkpoints import load_pretrained
    from pennpde.penn import Predictor
    from pennpde.registry import load_plugin

    if plugin is not None:
        load_plugin(plugin)
    network = load_pretrained(model)
    if not isinstance(network, Predictor):
        raise ValueError(f"{model} is a {type(network).__name__}, which is no Predictor; penn predict needs one")
    return network


def _check_drawable(problem: "Case", png: Path | None, html: Path | None) -> None:
    if (png or html) and problem.space != 2:
        option = "--png" if png else "--html"
        raise ValueError(
            f"{option} draws only two-dimensional cases; this one has three. Use --out and open it in ParaView"
        )


def _check_usable(outcome: "Outcome", strict: bool) -> None:
    """Refuse to write fields that are not finite, or, with --strict, that have warnings."""
    certificate = outcome.certificate
    if not all(values.isfinite().all() for values in outcome.fields.values()):
        raise ValueError(
            "the predicted values are not finite, so nothing was written; the certificate:\n"
            + "\n".join(certificate.lines())
        )
    if strict and certificate.warnings:
        raise ValueError(
            "the certificate has warnings, which --strict does not allow; nothing was written:\n  "
            + "\n  ".join(certificate.warnings)
        )


def _refuse(output: Output, outcome: "Outcome", about: Mapping[str, Any]) -> None:
    """Refuse to write fields whose error is expected to be above 50 %."""
    from pennpde.trust.expected_error import REFUSED

    expected = outcome.expected
    if expected.grade == REFUSED:
        for warning in outcome.certificate.warnings:
            if warning not in expected.warnings:  # those are the refusal itself
                output.warn(warning)
        raise Refusal(
            "\n".join(
                [
                    f"refused; nothing was written. {' '.join(expected.warnings)}",
                    expected.advice,
                    "--force writes the fields all the same.",
                ]
            ),
            {**about, "written": []},
        )


def _lines(model: str, outcome: "Outcome") -> list[str]:
    network = outcome.seconds["network"]
    return [
        f"{model} on {outcome.case.number_of_points} points: {network:.2f} s for the network, "
        f"{sum(outcome.seconds.values()) - network:.2f} s for operators and certificate; {_state(outcome)}",
        *outcome.expected.lines(),
        *outcome.certificate.lines(warnings=False),
    ]


def tell(output: Output, certificate: "Certificate") -> None:
    """Print notes and warnings of a certificate to stderr; warnings also with --quiet and --json."""
    for note in certificate.notes:
        output.note(note)
    for warning in certificate.warnings:
        output.warn(warning)


def _state(outcome: "Outcome") -> str:
    """Which times a prediction holds, in words."""
    from pennpde.prediction.series import time_name

    last = time_name(outcome.time)
    after = "" if outcome.time == math.inf else " after the start"
    if len(outcome.times) == 1:
        return f"state at {last}{after}" if after else last
    return f"{len(outcome.times)} times, {time_name(outcome.times[0])} to {last}{after}"


def _record(outcome: "Outcome") -> dict[str, Any]:
    from pennpde.prediction.series import time_value

    companion = outcome.companion
    return {
        "points": outcome.case.number_of_points,
        "companion": None
        if companion is None
        else {"points": companion.number_of_points, "triangles": companion.mesh.number_of_cells},
        "seconds": outcome.seconds,
        "times": [time_value(time) for time in outcome.times],
        "expected": outcome.expected.as_dict()
        | {"by_time": [each.as_dict() for each in outcome.expected_by_time] if len(outcome.times) > 1 else []},
        "certificate": outcome.certificate.as_dict(),
    }


def use_threads_for(case: "Case") -> None:
    """Limit the threads to what the number of points is worth: idle threads slow each other down on a busy machine."""
    import torch

    torch.set_num_threads(max(1, min(torch.get_num_threads(), case.number_of_points // _POINTS_OF_A_THREAD)))


def write_files(
    outcome: "Outcome",
    looks: "Mapping[str, Look]",
    title: str,
    out: Path | None,
    png: Path | None,
    html: Path | None,
    animation: Path | None = None,
    *,
    draw_error: bool = False,
) -> list[str]:
    """Write the requested files, each complete or not at all, and return their names."""
    mesh, fields = outcome.case.mesh, outcome.last
    corner = outcome.expected.in_short
    # The grade is in the corner already.
    others = [each for each in outcome.certificate.warnings if each not in outcome.expected.warnings]
    notes = [f"warning: {each}" for each in others]
    written = []
    if out is not None:
        from pennpde.prediction.series import save

        out.parent.mkdir(parents=True, exist_ok=True)
        save(outcome, out)
        written.append(str(out))
    if png is not None:
        from pennpde.pictures import draw, error_panels, field_panels

        rows = [field_panels(mesh, fields, looks)]
        if draw_error and outcome.expected.local:
            rows.append(error_panels(mesh, outcome.expected.local, looks))
        written.append(_whole(png, lambda path: draw(path, rows, corner=corner, notes=notes)))
    if animation is not None:
        from pennpde.pictures import animate, series_panels
        from pennpde.prediction.series import time_name

        rows = series_panels(mesh, [outcome.at(place).fields for place in range(len(outcome.times))], looks)
        titles = [time_name(time) for time in outcome.times]
        written.append(_whole(animation, lambda path: animate(path, rows, titles, corner=corner, notes=notes)))
    if html is not None:
        from pennpde.viewer.records import record_of, write_page

        subtitle = (
            f"{mesh.number_of_points} points, predicted in {outcome.seconds['network']:.2f} s; {_state(outcome.at(-1))}"
        )
        lines = outcome.expected.lines() + outcome.certificate.lines()
        written.append(_whole(html, lambda path: write_page(path, record_of(mesh, fields), title, subtitle, lines)))
    return written


def _whole(path: Path, write: Callable[[Path], None]) -> str:
    """Write a file under a temporary name and rename it when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        write(temporary)
    return str(path)


def _check_input(input_path: Path, case: Path | None) -> None:
    if not input_path.exists():
        raise FileNotFoundError(f"there is no {input_path}; give a mesh file or the folder of an OpenFOAM case")
    if input_path.is_dir() and case is not None:
        raise typer.BadParameter("an OpenFOAM case contains its own conditions; leave out --case", param_hint="--case")
    if not input_path.is_dir() and case is None:
        raise typer.BadParameter(
            f"{input_path} is a mesh; give its boundary conditions with --case FILE.toml", param_hint="--case"
        )
    for path in (input_path, case):
        if path is not None and path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is not a regular file; write its content to a file first")
    if case is not None and not case.is_file():
        raise FileNotFoundError(f"there is no case file {case}")


def _check_targets(
    input_path: Path,
    out: Path | None,
    png: Path | None,
    html: Path | None,
    write_time: str | None,
    animation: Path | None = None,
) -> None:
    """Find targets that cannot be written before any work is done."""
    for option, path, suffixes in (
        ("--out", out, FIELDS),
        ("--png", png, PICTURES),
        ("--html", html, PAGES),
        ("--animation", animation, ANIMATIONS),
    ):
        if path is not None and path.suffix not in suffixes:
            raise typer.BadParameter(f"{path} must end in one of {', '.join(suffixes)}", param_hint=option)
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path} is a folder", param_hint=option)
        if path is not None and path.exists() and not path.is_file():
            raise typer.BadParameter(f"{path} is a pipe or a device, not a file", param_hint=option)
        if path is not None and path.exists() and path.samefile(input_path):
            raise typer.BadParameter(f"{path} is the input; choose another name", param_hint=option)
    if write_time is None:
        return
    if not input_path.is_dir():
        raise typer.BadParameter("only an OpenFOAM case can take a time folder", param_hint="--write-time")
    if write_time != ALL:
        if not is_time(write_time):
            raise typer.BadParameter(
                f"{write_time!r} is not a time; give a number such as 4 or 0.01, or all", param_hint="--write-time"
            )
        check_folders(input_path, [write_time])
    if (input_path / "processor0").is_dir():
        if not (input_path / "constant" / "polyMesh").is_dir():
            raise FileNotFoundError(
                f"{input_path} is decomposed and has no constant/polyMesh to write cell values for; run "
                "reconstructParMesh -constant first, or use --out"
            )
        from pennpde.openfoam import time_folders

        if not time_folders(input_path):
            raise FileNotFoundError(
                f"{input_path} is decomposed and has its conditions with the processors only; run reconstructPar "
                "-withZero first, or use --out"
            )


def _check_series(asked: Sequence[float] | None, out: Path | None, animation: Path | None) -> None:
    """Refuse several times in a file that holds one."""
    if asked is not None and len(asked) > 1 and out is not None and out.suffix in (".vtu", ".vtk"):
        raise typer.BadParameter(
            f"{out.name} holds one time, but {len(asked)} are asked for; choose .vtkhdf (one file) or .pvd (a list of "
            ".vtu files), which ParaView plays",
            param_hint="--out",
        )
    if animation is not None and asked is not None and len(asked) < 2:
        raise typer.BadParameter("an animation needs several times; give --times", param_hint="--animation")


def _start_of(input_path: Path) -> float:
    """When a case starts, in its own time."""
    if not input_path.is_dir():
        return 0.0
    from pennpde.openfoam import start_time

    return start_time(input_path)


def _read(input_path: Path, case: Path | None, network: Any, repair: bool, output: Output) -> "Case":
    if case is not None:
        from pennpde.case.problem_files import read_problem

        return read_problem(case, mesh_input.read_mesh(input_path, repair, output))
    from pennpde.openfoam import read_problem as read_foam_problem

    return read_foam_problem(input_path, network.equation)


def _compared_with(names: Mapping[int, str], start: float, folder: Path, outcome: "Outcome") -> "Outcome":
    """The outcome with a warning where a time folder would have the name of another time than the predicted one."""
    from pennpde.openfoam import is_steady

    warnings = []
    for place, name in names.items():
        after = outcome.times[place]
        # A steady state holds at any time, and the times of a steady solver count iterations.
        other = math.isfinite(after) and abs(float(name) - start - after) > _SAME_TIME * after
        if other and not is_steady(folder):
            warnings.append(
                f"--write-time {name} is not the predicted time: the fields are the state at t = {start + after:.4g}, "
                f"{after:.4g} after the start at {start:g}."
            )
    certificate = replace(outcome.certificate, warnings=(*outcome.certificate.warnings, *warnings))
    return replace(outcome, certificate=certificate)


def _write_times(folder: Path, names: Mapping[int, str], outcome: "Outcome", equation: "Physics") -> list[str]:
    from pennpde.openfoam import TimeWriter

    writer = TimeWriter.of(folder, outcome.case.mesh)
    return [str(writer.write(name, outcome.at(place).fields, equation.foam_fields)) for place, name in names.items()]
