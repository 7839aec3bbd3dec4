"""`penn predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from pennpde.conditions import Case
    from pennpde.prediction import Outcome

EXAMPLES = [
    "penn predict duct.vtu --case duct.toml --model flow --out result.vtu",
    "penn predict pitzDaily --model flow --out result.vtu --png result.png",
    "penn predict pitzDaily --model flow --write-time 0.01 --strict",
    "penn predict plate.vtu --case plate.toml --model advection-diffusion --out plate.vtkhdf --json",
]

_SUFFIXES = (".vtu", ".vtk", ".vtkhdf")


def run(
    output: Output,
    input_path: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT", help="A mesh file (with --case), or the folder of an OpenFOAM case.", show_default=False
        ),
    ],
    model: Annotated[str, typer.Option(help="A network that comes with penn, or the folder of one of yours.")] = "flow",
    case: Annotated[
        Path | None, typer.Option(help="TOML file with patches, conditions and parameters.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the fields go: .vtu, .vtk or .vtkhdf.", show_default=False)
    ] = None,
    png: Annotated[Path | None, typer.Option(help="Draw a picture, too.", show_default=False)] = None,
    write_time: Annotated[
        str | None,
        typer.Option(help="Write the fields into the OpenFOAM case, as the folder of this time.", show_default=False),
    ] = None,
    length: Annotated[
        float | None, typer.Option(help="Length that counts as one; default: width of the inlet.", show_default=False)
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Speed that counts as one; default: that of the inlet.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on any warning of the certificate.")] = False,
) -> dict[str, Any]:
    """Predict the fields of your case with a trained network.

    Every prediction comes with a certificate: what was measured of conditions, mass, solver and training range.
    """
    is_case_folder = input_path.is_dir()
    _check_targets(input_path, case, out, write_time, is_case_folder)

    from pennpde.checkpoints import config_of, load_pretrained
    from pennpde.network import PENN
    from pennpde.prediction import predict
    from pennpde.similarity import Units, inlet_units

    network = load_pretrained(model)
    if not isinstance(network, PENN):
        raise ValueError(f"{model} is a {type(network).__name__}, not a PENN: it solves no boundary value problem")
    problem = _read(input_path, case, is_case_folder)
    units = None
    if length is not None or speed is not None:
        own = Units(1.0, 1.0) if length is not None and speed is not None else inlet_units(problem)
        units = Units(own.length if length is None else length, own.speed if speed is None else speed)
    config = config_of(network)
    outcome = predict(network, problem, config.training_range if config else None, units)
    warnings = outcome.certificate.warnings
    if strict and warnings:
        raise ValueError("the certificate has warnings, and --strict forbids them:\n  " + "\n  ".join(warnings))
    written = _write(outcome, input_path, out, png, write_time)
    record = {
        "input": str(input_path),
        "model": model,
        "points": problem.number_of_points,
        "seconds": outcome.seconds,
        "time": outcome.time,
        "certificate": outcome.certificate.as_dict(),
        "written": written,
    }
    after = "" if outcome.time is None else f", {outcome.time:.4g} time units after the start"
    output.say(
        f"{model} on {problem.number_of_points} points: {outcome.seconds['network']:.2f} s for the network, "
        f"{outcome.seconds['prepare'] + outcome.seconds['operators']:.2f} s to prepare{after}",
        *outcome.certificate.lines(),
        *(f"Written: {path}" for path in written),
    )
    return record


def _check_targets(input_path: Path, case: Path | None, out: Path | None, write_time: str | None, folder: bool) -> None:
    """Every wrong combination is found before any work is done."""
    if not input_path.exists():
        raise FileNotFoundError(f"there is no {input_path}; give a mesh file or the folder of an OpenFOAM case")
    if folder and case is not None:
        raise typer.BadParameter("an OpenFOAM case has its own conditions; leave --case out", param_hint="--case")
    if not folder and case is None:
        raise typer.BadParameter(
            f"{input_path} is a mesh; give its conditions with --case FILE.toml", param_hint="--case"
        )
    if write_time is not None and not folder:
        raise typer.BadParameter("only an OpenFOAM case can take a time folder", param_hint="--write-time")
    if out is not None and out.suffix not in _SUFFIXES:
        raise typer.BadParameter(f"{out} must end in one of {', '.join(_SUFFIXES)}", param_hint="--out")


def _read(input_path: Path, case: Path | None, folder: bool) -> "Case":
    if folder:
        from pennpde.openfoam import read_case

        return read_case(input_path)
    from pennpde.mesh import Mesh
    from pennpde.problem_files import read_problem

    assert case is not None
    return read_problem(case, Mesh.read(input_path))


def _write(
    outcome: "Outcome", input_path: Path, out: Path | None, png: Path | None, write_time: str | None
) -> list[str]:
    written = []
    if out is not None:
        outcome.mesh().save(out)
        written.append(str(out))
    if write_time is not None:
        from pennpde.openfoam import write_time as write_time_folder

        written.append(str(write_time_folder(input_path, write_time, outcome.case.mesh, outcome.fields)))
    if png is not None:
        from pennpde.pictures import Panel, draw, flow_panels

        mesh, fields = outcome.case.mesh, outcome.fields
        if fields.keys() >= {"u", "p"}:
            panels = flow_panels(mesh, fields)
        else:
            panels = [
                Panel(name, mesh, values if values.ndim == 1 else values[:, -1]) for name, values in fields.items()
            ]
        draw(png, [panels])
        written.append(str(png))
    return written
