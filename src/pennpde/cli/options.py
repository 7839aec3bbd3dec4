"""Options of `penn predict`, in the groups of its help."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from pennpde.cli.conventions import FILES, TRUST, WHAT, WHEN

Input = Annotated[
    Path,
    Argument(metavar="CASE", help="Mesh file (with --case), or folder of an OpenFOAM case."),
]
CaseFile = Annotated[
    Path | None,
    Option(metavar="FILE.toml", help="Patches, boundary conditions and parameters for a mesh.", rich_help_panel=WHAT),
]
Length = Annotated[
    float | None,
    Option(metavar="LENGTH", help="Reference length (flow: the inlet width).", rich_help_panel=WHAT),
]
Speed = Annotated[
    float | None,
    Option(metavar="SPEED", help="Reference speed (flow: the inlet speed).", rich_help_panel=WHAT),
]
Resolution = Annotated[
    Literal["auto", "own", "network"],
    Option(
        help="Mesh to predict on: own (yours), network (remeshed to the network's cell size), or auto (remesh if "
        "your mesh is unlike the training meshes).",
        rich_help_panel=WHAT,
    ),
]
Quantity = Annotated[
    list[str] | None,
    Option(
        metavar="QUANTITY",
        help='Print a number with its expected error, such as "drag cylinder" or "pressure drop inlet outlet"; may '
        "be repeated. With --write-time also into the case's folder postProcessing.",
        rich_help_panel=WHAT,
    ),
]
Time = Annotated[
    float | None,
    Option(
        metavar="TIME",
        help="Predict the state at this time, in the units of the case (seconds), counted from its start. By "
        "default the network's own time.",
        rich_help_panel=WHEN,
    ),
]
Times = Annotated[
    str | None,
    Option(
        metavar="FIRST:LAST:INTERVAL",
        help="Predict several times: 0.5:4:0.5, or a list such as 0.5,1,2.",
        rich_help_panel=WHEN,
    ),
]
Steady = Annotated[
    bool,
    Option("--steady", help="Predict the steady state; with --time or --times after these.", rich_help_panel=WHEN),
]
Iterations = Annotated[
    int | None,
    Option(
        metavar="NUMBER",
        min=1,
        help="Iterations to the steady state at most, on each size of cells.",
        rich_help_panel=WHEN,
    ),
]
Residual = Annotated[
    float | None,
    Option(
        metavar="RESIDUAL",
        help="Residual at which the steady state has converged: the unbalanced acceleration (root mean square), in "
        "reference speeds squared per reference length.",
        rich_help_panel=WHEN,
    ),
]
MaxSeconds = Annotated[
    float | None,
    Option(
        metavar="SECONDS",
        help="Stop then, at a time or a level of accuracy that is done; what was reached is written, exit code 4.",
        rich_help_panel=WHEN,
    ),
]
Out = Annotated[
    Path | None,
    Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Write the fields: .vtu or .vtk; several times as .vtkhdf (one file) or .pvd (with .vtu files in a "
        "folder next to it), which ParaView plays.",
        rich_help_panel=FILES,
    ),
]
Png = Annotated[
    Path | None,
    Option(metavar="FILE", help="Draw a picture: .png, .pdf or .svg.", rich_help_panel=FILES),
]
DrawError = Annotated[
    bool,
    Option(
        "--draw-error",
        help="Also draw where the error is expected, in a second row of --png.",
        rich_help_panel=FILES,
    ),
]
Html = Annotated[
    Path | None,
    Option(metavar="FILE.html", help="Write an interactive page for the browser.", rich_help_panel=FILES),
]
Animation = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="Draw all times as an animation: .mp4, .webm or .gif; the colours have a fixed range.",
        rich_help_panel=FILES,
    ),
]
WriteTime = Annotated[
    str | None,
    Option(
        metavar="TIME",
        help="Write the state at this time into the OpenFOAM case, as a time folder from which its solvers go on; "
        "all: every predicted time. With --steady it only names the folder.",
        rich_help_panel=FILES,
    ),
]
Accuracy = Annotated[
    float | None,
    Option(
        metavar="PER_CENT",
        help="Expected error that is good enough, of the first unknown (flow: the velocity): the cheapest level of "
        "accuracy is taken on which it holds. For networks with such levels; flow: 2.",
        rich_help_panel=TRUST,
    ),
]
Fast = Annotated[
    bool,
    Option("--fast", help="The fastest level of accuracy, whatever its error.", rich_help_panel=TRUST),
]
Fine = Annotated[
    bool,
    Option("--fine", help="The most accurate level.", rich_help_panel=TRUST),
]
Strict = Annotated[
    bool,
    Option(
        "--strict",
        help="Treat warnings of the certificate as errors; write nothing, repair nothing.",
        rich_help_panel=TRUST,
    ),
]
Force = Annotated[
    bool,
    Option(
        "--force",
        help="Write the fields even where the expected error is above 50 %.",
        rich_help_panel=TRUST,
    ),
]
