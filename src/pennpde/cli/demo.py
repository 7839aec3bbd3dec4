"""`penn demo`."""

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pennpde.cli.conventions import FILES, Output, Verbose, predictor

EXAMPLES = ["penn demo", "penn demo --out /tmp/demo --json"]

# A ramp between those of the training set (0, 0.1, ... 1), on a mesh finer than the 22.5 cells of training.
_STEP, _CELLS_PER_LENGTH, _SEED = "a_0.37", 24.5, 37


def run(
    output: Output,
    out: Annotated[
        Path,
        Option("--out", "-o", metavar="FOLDER", help="Folder for picture, fields and page.", rich_help_panel=FILES),
    ] = Path("demo"),
    verbose: Verbose = False,
) -> dict[str, Any]:
    """Predict the flow over a step that is absent from the training set: fields, picture, page, certificate.

    Uses the shipped network. Makes the mesh, computes the potential flow at the start, predicts, and measures mass
    balance and boundary conditions.
    """
    output.begin("loading PyTorch")
    from pennpde.cli.predict import Targets, result_lines, tell, use_threads_for, write_files
    from pennpde.models.designs import coarse_mesh, flow_case
    from pennpde.prediction import predict

    network = predictor("flow", None, "the demo needs one")
    start = time.perf_counter()
    case = flow_case(coarse_mesh(_STEP, _SEED, _CELLS_PER_LENGTH), _STEP)
    use_threads_for(case)
    outcome = predict(network, case)
    seconds = time.perf_counter() - start
    written = write_files(
        outcome, "Flow over a step, predicted", Targets(out / "flow.vtu", out / "flow.png", html=out / "flow.html")
    )
    output.say(
        "Flow over a step with a ramp of 0.37 inlet widths, which is not in the training set",
        *result_lines(outcome, "flow", written, verbose=verbose),
        f"Open {written[2]} in a browser: zoom, probe, change the field; {written[0]} in ParaView.",
    )
    tell(output, outcome.certificate, verbose=verbose)
    return {
        "points": case.number_of_points,
        "seconds": seconds,
        "network_seconds": outcome.seconds["network"],
        "expected": outcome.expected.as_dict(),
        "certificate": outcome.certificate.as_dict(),
        **dict(zip(("fields", "picture", "page"), written, strict=True)),
    }
