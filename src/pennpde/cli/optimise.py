"""`penn optimise`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter, Option

from pennpde.cli.conventions import CaseFile, Fast, Fine, Mesher, Output, StudyInput, duration, level_of
from pennpde.cli.study import study_of

if TYPE_CHECKING:
    from pennpde.study.optimisation import Optimum

EXAMPLES = [
    'penn optimise study.toml --minimise "total pressure drop inlet outlet" --out best',
    'penn optimise manifold.toml --minimise "pressure drop inlet a" --subject-to "flow split a b within 5 %"',
    'penn optimise myCase --vary "inlet.u=0.5:2" --maximise "flow rate outlet" --subject-to "drag body < 0.3"',
    'penn optimise duct.vtu --case duct.toml --vary "inlet.u=0.5:2" --minimise "misfit measured.csv"',
    'penn optimise study.toml --minimise "drag body" --minimise "pressure drop inlet outlet"   # Pareto front',
]


def run(
    output: Output,
    input_path: StudyInput,
    minimise: Annotated[
        list[str] | None,
        Option(help='The quantity, such as "total pressure drop inlet outlet"; twice for the Pareto front of two.'),
    ] = None,
    maximise: Annotated[str | None, Option(help="A quantity to maximise instead.")] = None,
    subject_to: Annotated[
        list[str] | None,
        Option(
            help='Constraints, several times: "flow split a b within 5 %", or QUANTITY < 0.3, > 0.3, between 1 and 2.'
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        Option(metavar="NAME=LOW:HIGH", help="What varies, several times, as in `penn study`: viscosity, inlet.u ..."),
    ] = None,
    case: CaseFile = None,
    mesher: Mesher = None,
    start: Annotated[
        list[str] | None,
        Option(metavar="NAME=NUMBER", help="The first design, several times.", show_default="zero or the middle"),
    ] = None,
    fast: Fast = False,
    fine: Fine = False,
    time: Annotated[
        float | None, Option(help="When the quantities are taken.", show_default="of the steady state")
    ] = None,
    no_gradients: Annotated[bool, Option("--no-gradients", help="Search by differential evolution.")] = False,
    flows: Annotated[
        int | None, Option(min=2, help="Flows solved at most.", show_default="60; 200 without gradients")
    ] = None,
    points: Annotated[int, Option(min=3, help="Points of a Pareto front.")] = 7,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder for optimum.json and best.vtu.")] = None,
) -> dict[str, Any]:
    """Find the best design of a plane flow, steady or at a time.

    What varies is said as for `penn study`: parameters, boundary values, control points, numbers of a shape. Gradients
    come from the adjoint, one linear equation per quantity; shapes that are meshed again and numbers to choose from are
    searched without. The search ends where a step gains less than it changes the expected error.
    """
    if (minimise is None) == (maximise is None) or len(minimise or ()) > 2:
        raise BadParameter("give one quantity to minimise or to maximise, or two to minimise", param_hint="--minimise")
    level = level_of(None, fast=fast, fine=fine)
    study = study_of(input_path, vary, {"problem": case, "mesher": mesher})
    from pennpde.study.optimisation import optimise, pareto

    def told(step: Any) -> None:
        values = ", ".join(f"{name} {value:.4g}" for name, value in step.trial.values.items())
        output.note(f"{step.trials} flows: {step.objective:.5g} at {values}")

    how: dict[str, Any] = {
        "start": dict(_assigned(each) for each in start or ()),
        "level": level or study.level or "standard",
        "time": time,
        "gradients": False if no_gradients else None,
        "most": flows,
        "watch": told,
    }
    if minimise and len(minimise) == 2:
        front = pareto(study, None, minimise, number=points, subject_to=subject_to or (), **how)
        for place, each in enumerate(front, 1):
            _say(output, each)
            if out is not None:
                each.save(out / f"{place}")
        return {"front": [each.as_dict() for each in front], "written": None if out is None else str(out)}
    best = optimise(study, None, minimise[0] if minimise else None, subject_to or (), maximise=maximise, **how)
    _say(output, best)
    if out is not None:
        output.say(f"Written: {best.save(out)}")
    return {**best.as_dict(), "written": None if out is None else str(out)}


def _assigned(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        raise BadParameter(f"{text!r} is not NAME=NUMBER", param_hint="--start") from None


def _say(output: Output, best: "Optimum") -> None:
    name = best.objective
    (first, _), (last, error) = best.before[name], best.after[name]
    output.say(
        f"{name}: {first:.5g} -> {last:.5g} (gain {best.gain:.3g} ± {best.expected_error:.2g}) at "
        + ", ".join(f"{key} = {value:.4g}" for key, value in best.values.items()),
        f"{best.found.trials} flows in {duration(best.seconds)}. {best.reason}",
    )
    for text in best.missed:
        output.warn(f"not kept: {text}")
    if abs(error) > 0.1 * abs(last):
        output.warn(
            f"the cells alone are expected to change {name} by {abs(error / last):.0%}; --fine is more accurate"
        )
