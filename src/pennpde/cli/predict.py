"""`penn predict`."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pennpde.cli import mesh_input
from pennpde.cli.conventions import Output
from pennpde.cli.mesh_input import Repair
from pennpde.files import replacing

if TYPE_CHECKING:
    from pennpde.case import Case
    from pennpde.network import Physics, Predictor
    from pennpde.network.hooks import Look
    from pennpde.prediction import Outcome

EXAMPLES = [
    "penn predict duct.vtu --case duct.toml --out flow.vtu --html flow.html",
    "penn predict cavity --out cavity.vtu --png cavity.png        # an OpenFOAM case",
    "penn predict myCase --write-time 4 --strict                  # write the time folder myCase/4",
    "penn predict duct.vtu --case duct.toml --out flow.vtu --resolution own   # never remesh",
    "penn predict plate.vtu --case plate.toml --model advection-diffusion --json",
]

_POINTS_OF_A_THREAD = 10_000
FIELDS, PICTURES, PAGES = (".vtu", ".vtk", ".vtkhdf"), (".png", ".pdf", ".svg"), (".html",)


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
        Path | None, typer.Option(help="Write the fields: .vtu, .vtk or .vtkhdf.", show_default=False)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Draw a picture: .png, .pdf or .svg.", show_default=False)] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write an interactive page for the browser: .html.", show_default=False)
    ] = None,
    write_time: Annotated[
        str | None,
        typer.Option(
            help="Write the fields into the OpenFOAM case, as a time folder of this name.", show_default=False
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

    Every prediction comes with a certificate: errors on the boundary conditions, mass balance, residual of the solver,
    and whether the case lies within the training range.
    """
    _check_input(input_path, case)
    _check_targets(input_path, out, png, html, write_time)

    from pennpde.prediction import predict

    if case is not None:
        mesh_input.prepare()
    network = _network(model, plugin)
    problem = _read(input_path, case, network, (not strict) if repair is None else repair, output)
    _check_drawable(problem, png, html)
    use_threads_for(problem)
    outcome = predict(network, problem, length=length, speed=speed, resolution=resolution)
    _check_usable(outcome, strict)
    written = write_files(outcome, network.equation.looks, input_path.stem, out, png, html)
    if write_time is not None:
        written.append(_write_time(input_path, write_time, outcome, network.equation))
    output.say(*_lines(model, outcome), *(f"Written: {path}" for path in written))
    notes = list(problem.mesh.notes)
    return {"input": str(input_path), "model": model, "notes": notes, **_record(outcome), "written": written}


def _network(model: str, plugin: str | None) -> "Predictor":
    from pennpde.checkpoints import load_pretrained
    from pennpde.models.registry import load_plugin
    from pennpde.network import Predictor

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


def _lines(model: str, outcome: "Outcome") -> list[str]:
    network = outcome.seconds["network"]
    return [
        f"{model} on {outcome.case.number_of_points} points: {network:.2f} s for the network, "
        f"{sum(outcome.seconds.values()) - network:.2f} s for operators and certificate; state at t = "
        f"{outcome.time:.4g} after the start",
        *outcome.certificate.lines(),
    ]


def _record(outcome: "Outcome") -> dict[str, Any]:
    companion = outcome.companion
    return {
        "points": outcome.case.number_of_points,
        "companion": None
        if companion is None
        else {"points": companion.number_of_points, "triangles": companion.mesh.number_of_cells},
        "seconds": outcome.seconds,
        "times": outcome.times,
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
) -> list[str]:
    """Write the requested files, each complete or not at all, and return their names."""
    mesh, fields = outcome.case.mesh, outcome.last
    written = []
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        outcome.mesh().save(out)
        written.append(str(out))
    if png is not None:
        from pennpde.pictures import draw, field_panels

        panels = field_panels(mesh, fields, looks)
        written.append(_whole(png, lambda path: draw(path, [panels])))
    if html is not None:
        from pennpde.viewer.records import record_of, write_page

        subtitle = (
            f"{mesh.number_of_points} points, predicted in {outcome.seconds['network']:.2f} s; state at t = "
            f"{outcome.time:.4g} after the start"
        )
        lines = outcome.certificate.lines()
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
    input_path: Path, out: Path | None, png: Path | None, html: Path | None, write_time: str | None
) -> None:
    """Find targets that cannot be written before any work is done."""
    for option, path, suffixes in (("--out", out, FIELDS), ("--png", png, PICTURES), ("--html", html, PAGES)):
        if path is not None and path.suffix not in suffixes:
            raise typer.BadParameter(f"{path} must end in one of {', '.join(suffixes)}", param_hint=option)
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path} is a folder", param_hint=option)
        if path is not None and path.exists() and path.samefile(input_path):
            raise typer.BadParameter(f"{path} is the input; choose another name", param_hint=option)
    if write_time is None:
        return
    if not input_path.is_dir():
        raise typer.BadParameter("only an OpenFOAM case can take a time folder", param_hint="--write-time")
    try:
        time = float(write_time)
    except ValueError:
        time = math.nan
    if not (math.isfinite(time) and time >= 0) or write_time.strip() != write_time or "_" in write_time:
        raise typer.BadParameter(
            f"{write_time!r} is not a time; give a number such as 4 or 0.01", param_hint="--write-time"
        )
    if (input_path / write_time).exists():
        raise FileExistsError(f"{input_path / write_time} exists already; choose another time, or remove it")
    if not (input_path / "constant" / "polyMesh").is_dir() and (input_path / "processor0").is_dir():
        raise FileNotFoundError(
            f"{input_path} is decomposed and has no constant/polyMesh to write cell values for; run "
            "reconstructParMesh -constant first, or use --out"
        )


def _read(input_path: Path, case: Path | None, network: Any, repair: bool, output: Output) -> "Case":
    if case is not None:
        from pennpde.case.problem_files import read_problem

        return read_problem(case, mesh_input.read_mesh(input_path, repair, output))
    from pennpde.openfoam import read_problem as read_foam_problem

    return read_foam_problem(input_path, network.equation)


def _write_time(folder: Path, time: str, outcome: "Outcome", equation: "Physics") -> str:
    from pennpde.openfoam import write_time

    return str(write_time(folder, time, outcome.case.mesh, outcome.last, equation.foam_fields))
