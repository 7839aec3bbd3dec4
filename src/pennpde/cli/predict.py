"""`penn predict`."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option

from pennpde import progress, registry
from pennpde.cli.conventions import (
    FILES,
    TRUST,
    WHAT,
    WHEN,
    Accuracy,
    CaseFile,
    Fast,
    Fine,
    Force,
    Length,
    Model,
    Output,
    Plugin,
    Refusal,
    Repair,
    Resolution,
    Speed,
    Steady,
    Times,
    Verbose,
    level_of,
    predictor,
    read_mesh,
)
from pennpde.files import write_atomically

if TYPE_CHECKING:
    from pennpde.case import Case, Remark
    from pennpde.prediction import Outcome
    from pennpde.trust.certificate import Certificate

EXAMPLES = [
    "penn predict duct.vtu --case duct.toml --out flow.vtu --html flow.html",
    "penn predict cavity --out cavity.vtu --png cavity.png        # an OpenFOAM case",
    "penn predict myCase --write-time 4 --strict                  # write the time folder myCase/4",
    "penn predict myCase --times 0.5:4:0.5 --out flow.vtkhdf --animation flow.mp4   # eight times, for ParaView",
    "penn predict myCase --times 0.5,1,2 --write-time all         # write the time folders 0.5, 1 and 2",
    "penn predict myCase --steady --write-time 1000               # write the steady state as the folder 1000",
    "penn predict duct.vtu --case duct.toml --out flow.vtu --resolution own   # never remesh",
    "penn predict myCase --times 1,2,4 --accuracy 1               # as cheap as possible within an expected 1 %",
    "penn predict plate.vtu --case plate.toml --model advection-diffusion --json",
]

_ACCURACY = 2.0
"""Expected error of the first unknown, in per cent, that is good enough unless a user asks for another one."""
ALL = "all"
"""`--write-time all`: every predicted time becomes a folder."""
_MOST_TIMES = 1000
_SAME, _ROUNDED = 1e-6, 0.05
"""Share of a time by which two numbers may differ that mean the same one; people round the names of folders."""


@dataclass(frozen=True)
class Targets:
    """The files that are asked for."""

    out: Path | None = None
    png: Path | None = None
    animation: Path | None = None
    html: Path | None = None


_SUFFIXES = {
    "out": (".vtu", ".vtk", ".vtkhdf", ".pvd"),
    "png": (".png", ".pdf", ".svg"),
    "animation": (".mp4", ".webm", ".gif"),
    "html": (".html",),
}


def run(
    output: Output,
    input_path: Annotated[
        Path,
        Argument(metavar="CASE", help="Mesh file (with --case), or folder of an OpenFOAM case."),
    ],
    # What
    case: CaseFile = None,
    model: Model = "flow",
    length: Length = None,
    speed: Speed = None,
    resolution: Resolution = "auto",
    repair: Repair = None,
    plugin: Plugin = None,
    quantity: Annotated[
        list[str] | None,
        Option(
            metavar="QUANTITY",
            help='Print a number with its expected error, such as "drag cylinder" or "pressure drop inlet outlet"; may '
            "be repeated. With --write-time also into the case's folder postProcessing.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    # When
    time: Annotated[
        float | None,
        Option(
            metavar="TIME",
            help="Predict the state at this time, in the units of the case (seconds), counted from its start. By "
            "default the network's own time.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    times: Times = None,
    steady: Steady = False,
    iterations: Annotated[
        int | None,
        Option(
            metavar="NUMBER",
            min=1,
            help="Iterations to the steady state at most, on each size of cells.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    residual: Annotated[
        float | None,
        Option(
            metavar="RESIDUAL",
            help="Residual at which the steady state has converged: the unbalanced acceleration (root mean square), in "
            "reference speeds squared per reference length.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    max_seconds: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            help="Stop then, at a time or a level of accuracy that is done; what was reached is written, exit code 4.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    # Files
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the fields: .vtu or .vtk; several times as .vtkhdf (one file) or .pvd (with .vtu files in a "
            "folder next to it), which ParaView plays.",
            rich_help_panel=FILES,
        ),
    ] = None,
    png: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.", rich_help_panel=FILES),
    ] = None,
    draw_error: Annotated[
        bool,
        Option(
            "--draw-error",
            help="Also draw where the error is expected, in a second row of --png.",
            rich_help_panel=FILES,
        ),
    ] = False,
    html: Annotated[
        Path | None,
        Option(metavar="FILE.html", help="Write an interactive page for the browser.", rich_help_panel=FILES),
    ] = None,
    animation: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="Draw all times as an animation: .mp4, .webm or .gif; the colours have a fixed range.",
            rich_help_panel=FILES,
        ),
    ] = None,
    write_time: Annotated[
        str | None,
        Option(
            metavar="TIME",
            help="Write the state at this time into the OpenFOAM case, as a time folder from which its solvers go on; "
            "all: every predicted time. With --steady it only names the folder.",
            rich_help_panel=FILES,
        ),
    ] = None,
    # Accuracy and trust
    accuracy: Accuracy = None,
    fast: Fast = False,
    fine: Fine = False,
    strict: Annotated[
        bool,
        Option(
            "--strict",
            help="Treat warnings of the certificate as errors; write nothing, repair nothing.",
            rich_help_panel=TRUST,
        ),
    ] = False,
    force: Force = False,
    # General
    verbose: Verbose = False,
) -> dict[str, Any]:
    """Predict the fields of a case with a trained network.

    Every prediction comes with an expected error and a grade: good, fair or poor. If the error is expected to be above
    50 %, nothing is written and the exit code is 3, unless --force is given. The certificate measures errors on the
    boundary conditions, mass balance, residual of the solver, and whether the case lies within the training range.
    """
    targets = Targets(out, png, animation, html)
    _check_input(input_path, case)
    _check_targets(input_path, targets)
    if write_time is not None:
        _check_write_time(input_path, write_time)
    level = level_of(accuracy, fast=fast, fine=fine)
    asked = asked_times(time, times, steady)
    _check_limits(iterations, residual, max_seconds, steady=steady)
    _check_series(asked, targets)
    registry.check_exists(model)
    output.begin("loading PyTorch")
    if case is not None:
        from pennpde.mesh import reader_process

        reader_process.shared().start()  # it loads its libraries while this process loads its own
    from pennpde.prediction import predict
    from pennpde.progress import OutOfTimeError, limited
    from pennpde.quantities import parse

    wanted = [parse(each) for each in quantity or []]
    network = predictor(model, plugin, "penn predict needs one")
    if not network.levels and (level or accuracy is not None):
        raise ValueError(f"{model} has no levels of accuracy; leave out --accuracy, --fast and --fine")
    if level is not None:
        network.set_level(network.levels[-1 if fine else 0])
    elif network.levels and accuracy is None:
        accuracy = _ACCURACY
    if asked is not None and not network.takes_times:
        raise ValueError(
            f"{model} predicts only the times that it was trained for, not any time: leave out --time, --times and "
            "--steady, or choose a network for any time with --model"
        )
    start = 0.0  # in the time of the case
    if input_path.is_dir():
        from pennpde.openfoam import start_time

        start = start_time(input_path)
    if asked is None and write_time not in (None, ALL) and network.takes_times:
        asked = (_implied_time(write_time, start),)
    about: dict[str, Any] = {"input": str(input_path), "model": model}
    if input_path.is_dir() and not force:
        from pennpde.openfoam import other_physics

        _refuse_other_physics(other_physics(input_path, network.equation), about)
    progress.tell(f"reading {input_path}")
    problem = _read(input_path, case, network, (not strict) if repair is None else repair, output)
    if not force:
        _refuse_other_physics(problem.remarks, about)
    for each in wanted:
        each.check(problem)
    if problem.space != 2 and (html or animation):
        option = "--animation" if animation else "--html"
        raise ValueError(
            f"{option} draws only two-dimensional cases; this one has three. Use --png for a slice, or --out and open "
            "it in ParaView"
        )
    use_threads_for(problem)
    seconds = math.inf if max_seconds is None else max_seconds
    try:
        with limited(seconds=seconds, iterations=iterations, residual=residual):
            outcome = predict(
                network,
                problem,
                length=length,
                speed=speed,
                resolution=resolution,
                times=asked,
                accuracy=accuracy,
                quantities=wanted,
            )
    except OutOfTimeError as error:
        output.warn(f"--max-seconds {seconds:g}: nothing was written. {error}")
        return about | {"written": [], "stopped": str(error), "exit_code": 4}
    except ValueError:
        for remark in problem.remarks:  # they may be the reason
            output.warn(remark.text)
        raise
    outcome = replace(outcome, si=input_path.is_dir())
    folders: dict[int, str] = {}
    if write_time is not None:
        folders = folder_names(write_time, outcome.times, start, network.takes_times)
        _check_folders(input_path, list(folders.values()))
        outcome = _compared_with(folders, start, input_path, outcome)
    refused_times: tuple[float, ...] = ()
    if not force:
        outcome, refused_times, folders = _usable(outcome, folders)
    notes = list(problem.mesh.notes)
    about |= {"notes": notes, **_record(outcome), "refused_times": _as_json(refused_times)}
    _check_usable(outcome, strict)
    if not force:
        _refuse(output, outcome, about)
    if animation is not None and len(outcome.times) < 2:
        raise ValueError(f"--animation needs several times, but {model} predicts one; give --times with a network")
    measured = outcome.quantities(wanted)
    about |= {"quantities": [each.as_dict() for each in measured]} if measured else {}
    progress.tell("writing files")
    written = write_files(outcome, input_path.stem, targets, draw_error=draw_error)
    if folders:
        from pennpde.openfoam import TimeWriter

        writer, foam_fields = TimeWriter.of(input_path, outcome.case.mesh), network.equation.foam_fields
        for place, name in folders.items():
            now = outcome.at(place)
            written.append(str(writer.write(name, now.fields, foam_fields, finer=now.finer)))
        if wanted:
            from pennpde.quantities.foam import write_tables

            written += write_tables(input_path, outcome, wanted, folders, start)
    lines = result_lines(outcome, model, written, verbose=verbose)
    width = max((len(each.name) for each in wanted), default=0)
    output.say(*lines[:-1], *(each.line(width) for each in measured), lines[-1])
    tell(output, outcome.certificate, verbose=verbose)
    return about | {"written": written} | ({"stopped": outcome.stopped, "exit_code": 4} if outcome.stopped else {})


# What is asked, checked before any work


def _check_limits(iterations: int | None, residual: float | None, max_seconds: float | None, *, steady: bool) -> None:
    if not steady and (iterations is not None or residual is not None):
        raise BadParameter("only --steady iterates", param_hint="--iterations" if residual is None else "--residual")
    for name, value in (("--residual", residual), ("--max-seconds", max_seconds)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise BadParameter(f"{value:g} is not a positive number", param_hint=name)


def _check_input(input_path: Path, case: Path | None) -> None:
    if not input_path.exists():
        raise FileNotFoundError(f"there is no {input_path}; give a mesh file or the folder of an OpenFOAM case")
    if input_path.is_dir() and case is not None:
        raise BadParameter("an OpenFOAM case contains its own conditions; leave out --case", param_hint="--case")
    if not input_path.is_dir() and case is None:
        raise BadParameter(
            f"{input_path} is a mesh; give its boundary conditions with --case FILE.toml", param_hint="--case"
        )
    for path in (input_path, case):
        if path is not None and path.exists() and not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} is not a regular file; write its content to a file first")
    if case is not None and not case.is_file():
        raise FileNotFoundError(f"there is no case file {case}")


def _check_targets(input_path: Path, targets: Targets) -> None:
    """Find files that cannot be written."""
    for name, suffixes in _SUFFIXES.items():
        path: Path | None = getattr(targets, name)
        if path is None:
            continue
        wrong = None
        if path.suffix not in suffixes:
            wrong = f"must end in one of {', '.join(suffixes)}"
        elif path.is_dir():
            wrong = "is a folder"
        elif path.exists() and not path.is_file():
            wrong = "is a pipe or a device, not a file"
        elif path.exists() and path.samefile(input_path):
            wrong = "is the input; choose another name"
        if wrong is not None:
            raise BadParameter(f"{path} {wrong}", param_hint=f"--{name}")


def _check_write_time(case: Path, write_time: str) -> None:
    """Find out whether a case can take a time folder."""
    if not case.is_dir():
        raise BadParameter("only an OpenFOAM case can take a time folder", param_hint="--write-time")
    if write_time != ALL:
        if not _is_time(write_time):
            raise BadParameter(
                f"{write_time!r} is not a time; give a number such as 4 or 0.01, or all", param_hint="--write-time"
            )
        _check_folders(case, [write_time])
    if not (case / "processor0").is_dir():
        return
    if not (case / "constant" / "polyMesh").is_dir():
        raise FileNotFoundError(
            f"{case} is decomposed and has no constant/polyMesh to write cell values for; run reconstructParMesh "
            "-constant first, or use --out"
        )
    from pennpde.openfoam import time_folders

    if not time_folders(case):
        raise FileNotFoundError(
            f"{case} is decomposed and has its conditions with the processors only; run reconstructPar -withZero "
            "first, or use --out"
        )


def _check_series(asked: Sequence[float] | None, targets: Targets) -> None:
    """Refuse several times in a file that holds one."""
    out = targets.out
    if asked is not None and len(asked) > 1 and out is not None and out.suffix in (".vtu", ".vtk"):
        raise BadParameter(
            f"{out.name} holds one time, but {len(asked)} are asked for; choose .vtkhdf (one file) or .pvd (a list of "
            ".vtu files), which ParaView plays",
            param_hint="--out",
        )
    if targets.animation is not None and asked is not None and len(asked) < 2:
        raise BadParameter("an animation needs several times; give --times", param_hint="--animation")


def asked_times(time: float | None, times: str | None, steady: bool) -> tuple[float, ...] | None:
    """The times that a user asks for, counted from the start; infinity is the steady state; None: not asked for."""
    if time is not None and times is not None:
        raise BadParameter("give --time for one time or --times for several, not both", param_hint="--times")
    if time is not None and not (math.isfinite(time) and time > 0):
        raise BadParameter(f"{time:g} is not after the start; give a positive number", param_hint="--time")
    found = () if times is None else _parsed(times)
    found = found if time is None else (time,)
    return (*found, *([math.inf] if steady else [])) or None


def _parsed(text: str) -> tuple[float, ...]:
    """The times of `0.5:4:0.5` (first, last, interval) or `0.5,1,2`."""
    parts = text.split(":" if ":" in text else ",")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = [math.nan]
    usable = all(math.isfinite(number) for number in numbers) and "_" not in text
    if not usable or (":" in text and len(numbers) != 3):
        raise _wrong_times(text, "is neither FIRST:LAST:INTERVAL such as 0.5:4:0.5 nor a list such as 0.5,1,2")
    if ":" in text:
        first, last, interval = numbers
        if interval <= 0 or last < first:
            raise _wrong_times(text, "must have a positive interval, and a last time that is not before the first")
        # The last time belongs to them where the interval divides the distance.
        number = (last - first) / interval * (1 + 1e-9)
        if number >= _MOST_TIMES:
            raise _wrong_times(text, f"has more than {_MOST_TIMES} times; take a longer interval")
        # Twelve digits: 3 * 0.1 is 0.30000000000000004, and would be the name of a folder.
        numbers = [float(f"{first + place * interval:.12g}") for place in range(int(number + 1e-9) + 1)]
    if numbers[0] <= 0 or any(later <= earlier for earlier, later in pairwise(numbers)):
        raise _wrong_times(text, "must give positive times that increase; the start itself, t = 0, is not predicted")
    return tuple(numbers)


def _wrong_times(text: str, why: str) -> BadParameter:
    return BadParameter(f"{text!r} {why}", param_hint="--times")


# The network and the case


def _read(input_path: Path, case: Path | None, network: Any, repair: bool, output: Output) -> "Case":
    if case is not None:
        from pennpde.case.problem_files import read_problem

        return read_problem(case, read_mesh(input_path, repair, output))
    from pennpde.openfoam import read_problem as read_foam_problem

    return read_foam_problem(input_path, network.equation)


def use_threads_for(case: "Case") -> None:
    """Limit the threads to what the number of points is worth: idle threads slow each other down on a busy machine."""
    import torch

    from pennpde.machine import threads_for

    torch.set_num_threads(threads_for(case.number_of_points, torch.device("cpu")))


# Time folders of OpenFOAM


def _implied_time(write_time: str, start: float) -> float:
    """The time to predict where only its folder is named."""
    later = float(write_time) - start
    if later <= 0:
        raise ValueError(
            f"--write-time {write_time} is not after the start of the case, {start:g}; give a later time, or --steady "
            f"to write the steady state into the folder {write_time}"
        )
    return later


def folder_names(write_time: str, times: Sequence[float], start: float, takes_times: bool) -> dict[int, str]:
    """By place of a time, the name of its folder.

    Args:
        write_time: What the user gave: the name of a folder, or `ALL`.
        times: That were predicted, counted from the start.
        start: Of the case, in OpenFOAM's time.
        takes_times: Whether the network predicts any time: then a name must be one of them.
    """
    if write_time == ALL:
        if math.inf in times:
            raise ValueError(
                "a steady state has no time to name its folder by; leave out --steady, or give its folder a name, as "
                "in --steady --write-time 1000"
            )
        return {place: f"{start + time:.10g}" for place, time in enumerate(times)}
    asked = float(write_time) - start
    share = _SAME if takes_times else _ROUNDED
    finite = [(abs(time - asked), place) for place, time in enumerate(times) if math.isfinite(time)]
    distance, place = min(finite, default=(math.inf, 0))
    if distance <= share * max(times[place], abs(asked), abs(start) if takes_times else 0.0):
        return {place: write_time}
    if times[-1] == math.inf or not takes_times:
        return {len(times) - 1: write_time}
    known = ", ".join(f"{start + time:.10g}" for time in times)
    raise ValueError(f"--write-time {write_time} is not among the predicted times, {known}; add it to them")


def _is_time(name: str) -> bool:
    """Whether OpenFOAM would take the name of a folder for a time: digits, at most one point, an exponent."""
    return re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,2})?", name) is not None


def _check_folders(case: Path, names: Sequence[str]) -> None:
    """Refuse to write into time folders that are there already, also under another spelling of the same time."""
    there = {float(path.name): path for path in case.iterdir() if _is_time(path.name)}
    for name in names:
        if float(name) in there:
            raise FileExistsError(f"{there[float(name)]} exists already; choose another time, or remove it")


# What comes out


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


def _refuse_other_physics(remarks: "Sequence[Remark]", about: Mapping[str, Any]) -> None:
    """Refuse a case whose equations have terms that the network does not know, before anything is computed."""
    found = [each.text for each in remarks if each.other_physics]
    if found:
        raise Refusal(
            "\n  ".join(["refused, nothing was computed: the case has physics that the network does not know.", *found])
            + "\n--force predicts the flow without it all the same; how wrong the fields are is then not known.",
            {**about, "expected": {"grade": "refused", "ignored": found}, "written": []},
        )


def _usable(outcome: "Outcome", folders: Mapping[int, str]) -> "tuple[Outcome, tuple[float, ...], dict[int, str]]":
    """The prediction at the times that are not refused, those that are, and the time folders that are left.

    Where the one time folder that is asked for would be of a refused time, the prediction stays as it is: refused.
    """
    part, refused = outcome.usable()
    left = {part.times.index(time): folders[place] for place, time in enumerate(outcome.times)
            if place in folders and time in part.times}  # fmt: skip
    if folders and not left:
        return outcome, (), dict(folders)
    return part, refused, left


def _refuse(output: Output, outcome: "Outcome", about: Mapping[str, Any]) -> None:
    """Refuse to write fields whose error is expected to be above 50 %."""
    from pennpde.trust.expected_error import REFUSED

    expected = outcome.expected
    if expected.grade == REFUSED:
        for warning in outcome.certificate.warnings:
            if warning not in expected.warnings:  # those are the refusal itself
                output.warn(warning)
        raise Refusal(
            f"refused; nothing was written. {' '.join(expected.warnings)}\n{expected.advice}\n"
            "--force writes the fields all the same.",
            {**about, "written": []},
        )


def _compared_with(names: Mapping[int, str], start: float, folder: Path, outcome: "Outcome") -> "Outcome":
    """The outcome with a warning where a time folder would have the name of another time than the predicted one."""
    from pennpde.openfoam import is_steady

    warnings = []
    for place, name in names.items():
        after = outcome.times[place]
        # A steady state holds at any time, and the times of a steady solver count iterations.
        other = math.isfinite(after) and abs(float(name) - start - after) > _ROUNDED * after
        if other and not is_steady(folder):
            warnings.append(
                f"--write-time {name} is not the predicted time: the fields are the state at t = {start + after:.4g}, "
                f"{after:.4g} after the start at {start:g}."
            )
    certificate = replace(outcome.certificate, warnings=(*outcome.certificate.warnings, *warnings))
    return replace(outcome, certificate=certificate)


def result_lines(outcome: "Outcome", model: str, written: Sequence[str], *, verbose: bool) -> list[str]:
    """The result for people: how good, of what, and where; with the certificate in between."""
    seconds, numbers = sum(outcome.seconds.values()), outcome.numbers
    parts = [
        f"{model}{f' ({outcome.level})' if outcome.level else ''} on {outcome.case.number_of_points:,} points",
        *(f"{name} {value:.4g}" for name, value in numbers.items() if name.endswith("number")),
        outcome.when,
        f"{seconds:.1f} s" + (f", {outcome.seconds['network']:.2f} s of them for the network" if verbose else ""),
    ]
    lines = [f"{outcome.expected.in_short}{outcome.expected.bounds}", ", ".join(parts)]
    notes = outcome.certificate.notes
    more = f"; -v shows {len(notes)} {'note' if len(notes) == 1 else 'notes'}" if notes else ""
    if verbose:
        more, lines = "", [*lines, *outcome.expected.lines(), *outcome.certificate.lines(warnings=False)]
    files = f"Written: {', '.join(written)}" if written else "Nothing is written: give --out FILE or --png FILE"
    return [*lines, files + more]


def tell(output: Output, certificate: "Certificate", *, verbose: bool) -> None:
    """Print warnings of a certificate to stderr, also with --quiet and --json; its notes only where they are wanted."""
    for note in certificate.notes if verbose else ():
        output.note(note)
    for warning in certificate.warnings:
        output.warn(warning)


def _as_json(times: Sequence[float]) -> list[float | str]:
    """Times as JSON can hold them."""
    return ["steady" if time == math.inf else time for time in times]


def _record(outcome: "Outcome") -> dict[str, Any]:
    mesh = None if outcome.companion is None else outcome.companion.mesh
    return {
        "points": outcome.case.number_of_points,
        "level": outcome.level or None,
        "companion": None if mesh is None else {"points": mesh.number_of_points, "triangles": mesh.number_of_cells},
        "seconds": outcome.seconds,
        "times": _as_json(outcome.times),
        "expected": outcome.expected.as_dict()
        | {"by_time": [each.as_dict() for each in outcome.expected_by_time] if len(outcome.times) > 1 else []},
        "certificate": outcome.certificate.as_dict(),
    }


def write_files(outcome: "Outcome", title: str, targets: Targets, *, draw_error: bool = False) -> list[str]:
    """Write the requested files, each complete or not at all, and return their names."""
    files = [path for path in astuple(targets) if path is not None]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    if targets.out is not None:
        outcome.save(targets.out)
    if targets.png is not None:
        outcome.plot(path=targets.png, error=draw_error)
    if targets.animation is not None:
        outcome.animate(targets.animation)
    if targets.html is not None:
        from pennpde.viewer.records import page_of

        write_atomically(targets.html, page_of(outcome, title))
    return [str(path) for path in files]
