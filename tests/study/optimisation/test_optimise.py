"""`penn.optimise` on small flows: designs that are known to be best, shapes that stay sound, files that say all."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import pennpde as penn
from pennpde.study.morphing import MorphError
from pennpde.study.optimisation import pareto
from pennpde.study.optimisation.optimise import variants
from steady_flows import duct, square

BUMP = {"bump": {"at": [0.5, 1.0], "direction": [0, 1], "radius": 0.45, "fixed": ["left", "right", "bottom"]}}
"""Moves the middle of the upper wall."""


def case(cells=6):
    return duct(square("triangle", cells, jitter=0.0))


def test_a_speed_is_found_that_loses_what_is_asked_for():
    found = penn.optimise(
        case(),
        {"left.u": (0.5, 3.0)},
        maximise="flow rate right",
        subject_to="pressure drop left right < 1",
        level="fast",
    )
    assert not found.missed
    name = "pressure drop left right < 1"
    assert found.after[name][0] == pytest.approx(1.0, abs=2e-3)
    assert found.after["flow rate right"][0] == pytest.approx(2 / 3 * found.values["left.u"], rel=1e-3)  # a parabola
    assert found.gain > 0


def test_a_constriction_is_opened_until_the_gain_is_lost_in_the_error_or_the_wall_at_its_limit():
    found = penn.optimise(
        case(), {"bump": (-0.3, 0.3)}, "total pressure drop left right", morph=BUMP, start={"bump": -0.2}, level="fast"
    )
    assert found.values["bump"] > 0.05
    assert found.gain > found.expected_error
    again = json.loads(json.dumps(found.as_dict()))
    assert again["flows"] == found.found.trials
    assert again["history"][-1]["bump"] == found.values["bump"]


def test_a_shape_that_inverts_cells_ends_a_step_and_not_the_search():
    # Downwards as far as the wall can go: at -1 it would meet the lower one.
    found = penn.optimise(case(), {"bump": (-1.5, 0.0)}, maximise="pressure drop left right", morph=BUMP, level="fast")
    assert found.found.broken > 0
    assert -1.0 < found.values["bump"] < -0.15
    assert found.case.mesh.cell_volumes.min() > 0
    with pytest.raises(MorphError):
        variants(case(), ["bump"], BUMP)({"bump": -1.2})


def test_numbers_to_choose_from_are_searched_without_gradients():
    found = penn.optimise(
        case(), {"viscosity": [0.05, 0.1, 0.2]}, "pressure drop left right", start={"viscosity": 0.2}, level="fast"
    )
    assert found.values == {"viscosity": 0.05}
    assert np.isnan(found.found.steps[-1].radius)
    with pytest.raises(ValueError, match="choose from"):
        penn.optimise(case(), {"viscosity": [0.05, 0.1]}, "pressure drop left right", gradients=True)


def test_shapes_that_are_meshed_again_are_searched_without_gradients():
    def shape(length):
        cells = max(2, round(6 * length))
        mesh = square("quad", cells, jitter=0.0)
        return duct(mesh.with_points(mesh.points * torch.tensor([length, 1.0])))

    found = penn.optimise(shape, {"length": (0.5, 2.0)}, "pressure drop left right", level="fast", most=20)
    assert found.values["length"] < 0.8
    assert np.isnan(found.found.steps[-1].radius)


def test_a_front_trades_one_quantity_for_the_other():
    front = pareto(
        case(), {"left.u": (0.5, 3.0), "bump": (-0.2, 0.2)}, ["pressure drop left right", "flow rate left"],
        number=4, morph=BUMP, level="fast", start={"left.u": 1.0},
    )  # fmt: skip
    drops = [each.found.best.numbers[0] for each in front[:-1]]
    assert len(front) >= 3
    assert drops == sorted(drops)


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"vary": {}}, "Nothing varies"),
        ({"vary": {"bump": (-1, 1)}}, "cannot vary"),
        ({"vary": {"left.u": (0.5, 1.0)}, "morph": BUMP}, "no range"),
        ({"vary": {"left.u": (0.5, 1.0)}, "maximise": "flow rate right"}, "one quantity"),
        ({"vary": {"left.u": (0.5, 1.0)}, "start": {"left.u": 2.0}}, "starts at left.u"),
        ({"vary": {"left.u": (0.5, 1.0)}, "start": {"u": 2.0}}, "do not vary"),
        ({"vary": {"left.u": (0.5, 1.0)}, "minimise": "uniformity right", "gradients": True}, "whole predictions"),
    ],
)
def test_what_is_wrong_is_said(how, match):
    with pytest.raises(ValueError, match=match):
        penn.optimise(case(), **{"minimise": "pressure drop left right", **how})


def test_a_flow_that_changes_with_time_is_refused():
    given = case()
    table = penn.Table([(0.0, (1.0, 0.0)), (1.0, (2.0, 0.0))], "clamp")
    changing = penn.Case(
        given.mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"left": table, "bottom": 0.0, "top": 0.0}, "p": {"right": 0.0}},
        parameters={"viscosity": 0.05},
    )
    with pytest.raises(ValueError, match="gradients are those of constant conditions"):
        penn.optimise(changing, {"viscosity": (0.05, 0.1)}, "pressure drop left right")


def test_single_precision_does_not_spoil_the_gradients():
    single = case().to(torch.float32)
    single = replace(single, mesh=single.mesh.with_points(single.mesh.points.float()))
    made = variants(single, ["viscosity", "bump"], BUMP)({"viscosity": 0.1, "bump": 0.1})
    assert {made.parameters["viscosity"].dtype, made.mesh.points.dtype, made.initial["u"].dtype} == {torch.float64}
