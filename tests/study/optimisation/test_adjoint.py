"""The adjoint's gradients are those of the whole steady solve."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pennpde.study.optimisation.adjoint import gradients, value_of
from pennpde.study.optimisation.flows import Family, NoSteadyStateError, UnsoundShapeError
from pennpde.study.optimisation.measures import FlowRate, Force, Misfit, PressureDrop
from steady_flows import cavity, duct, slip_duct, square

PROBES = Misfit(np.array([[0.3, 0.4], [0.7, 0.6]]), np.array([[1.0, 0.0], [1.0, 0.1]]))
RANGES = np.array([0.02, 1.0, 0.5])


def designs_of(case):
    """Cases by viscosity, by a factor of all prescribed velocities, and by the height of a bump in the upper wall."""
    x = case.mesh.points
    near = torch.exp(-(x - torch.tensor([0.5, 1.0])).square().sum(dim=1) / 0.05) * 4 * x[:, 0] * (1 - x[:, 0])
    bump = torch.stack([torch.zeros_like(near), near * x[:, 1]], dim=1)

    def faster(name, each, factor):
        if name != "u" or each.kind != "dirichlet":
            return each
        facets = each.on_facets.mapped(lambda values: values * factor)
        return replace(each, values=each.values * factor, on_facets=facets)

    def case_at(design):
        viscosity, factor, height = (float(each) for each in design)
        mesh = case.mesh.with_points(x + height * bump)
        moved = replace(case, mesh=mesh, parameters={"viscosity": torch.tensor(viscosity, dtype=torch.float64)})
        return moved.with_conditions(lambda name, each: faster(name, each, factor))

    return case_at


@pytest.mark.parametrize("kind", ["triangle", "quad", "mixed_plane"])
@pytest.mark.parametrize(
    ("make", "measures"),
    [
        (
            duct,
            [PressureDrop("left", "right"), PressureDrop("left", "right", total=True), Force("top", (1, 0)), PROBES],
        ),
        (slip_duct, [PressureDrop("left", "right"), Force("bottom", (1, 0))]),
        (cavity, [Force("bottom", (1, 0)), PROBES]),
    ],
)
def test_gradients_are_those_of_the_whole_solve(make, measures, kind):
    viscosity = 0.02
    case_at = designs_of(make(square(kind, 8), viscosity))
    # A slip wall's normals are those of the straight wall: there the shape stays.
    design = np.array([viscosity, 1.0, 0.0 if make is slip_duct else 0.1])
    count = 2 if make is slip_duct else 3
    answer = Family.of(case_at(design)).flow(case_at(design)).solved()
    found = gradients(answer, measures, case_at, design, RANGES)
    for place in range(count):
        step = 1e-4 * RANGES[place] * np.eye(3)[place]
        ends = [
            answer.flow.family.flow(case_at(design + sign * step), like=answer.flow).solved(answer) for sign in (1, -1)
        ]
        differences = [(value_of(ends[0], each) - value_of(ends[1], each)) / (2 * step[place]) for each in measures]
        np.testing.assert_allclose(found[:, place], differences, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["triangle", "quad"])
@pytest.mark.parametrize("make", [duct, cavity])
def test_gradients_of_a_flow_on_its_way_are_those_of_its_whole_march(make, kind):
    """Of viscosity, prescribed velocities and points of the mesh, through all steps."""
    measures = [Force("top" if make is duct else "bottom", (1, 0)), PROBES]
    measures += [PressureDrop("left", "right"), PressureDrop("left", "right", total=True)] if make is duct else []
    case_at, design = designs_of(make(square(kind, 6), 0.02)), np.array([0.02, 1.0, 0.1])
    family = Family.of(case_at(design), "fast", time=0.7)
    assert sum(family.steps) == pytest.approx(0.7 / family.units.time)
    answer = family.flow(case_at(design)).solved()
    found = gradients(answer, measures, case_at, design, RANGES)
    for place in range(3):
        step = 1e-4 * RANGES[place] * np.eye(3)[place]
        ends = [family.flow(case_at(design + sign * step), like=answer.flow).solved() for sign in (1, -1)]
        differences = [(value_of(ends[0], each) - value_of(ends[1], each)) / (2 * step[place]) for each in measures]
        np.testing.assert_allclose(found[:, place], differences, rtol=1e-4, atol=1e-6)


def test_what_flows_out_grows_with_what_flows_in():
    case_at = designs_of(duct(square("triangle", 8)))
    design = np.array([0.05, 1.0, 0.0])
    answer = Family.of(case_at(design)).flow(case_at(design)).solved()
    rates = [FlowRate("left"), FlowRate("right"), FlowRate("right", ("right",))]
    assert value_of(answer, rates[0]) == pytest.approx(-1.0, abs=1e-9)
    assert value_of(answer, rates[1]) == pytest.approx(1.0, abs=1e-9)
    found = gradients(answer, rates, case_at, design, RANGES)
    np.testing.assert_allclose(found, [[0, -1, 0], [0, 1, 0], [0, 0, 0]], atol=1e-6)


def test_the_walls_of_a_channel_carry_its_pressure_drop():
    answer = Family.of(duct(square("quad", 12, jitter=0.0))).flow(duct(square("quad", 12, jitter=0.0))).solved()
    drop = value_of(answer, PressureDrop("left", "right"))
    assert drop == pytest.approx(12 * 0.05, rel=0.02)  # Poiseuille's
    friction = value_of(answer, Force("top", (1, 0))) + value_of(answer, Force("bottom", (1, 0)))
    assert friction == pytest.approx(drop, rel=0.02)
    assert value_of(answer, Force("top", (0, 1))) == pytest.approx(drop / 2, rel=0.02)  # pushed outwards


def test_an_inverted_cell_is_an_unsound_shape():
    case_at = designs_of(duct(square("triangle", 8)))
    with pytest.raises(UnsoundShapeError, match="inverted"):
        Family.of(case_at([0.05, 1.0, 0.0])).flow(case_at([0.05, 1.0, -5.0]))


def test_a_flow_without_a_steady_state_says_so(monkeypatch):
    case = duct(square("triangle", 8), viscosity=0.01)
    monkeypatch.setattr("pennpde.flow.steady.MOST_ITERATIONS", 1)
    monkeypatch.setattr("pennpde.study.optimisation.flows.TOLERANCE", 1e-30)
    with pytest.raises(NoSteadyStateError, match="larger viscosity"):
        Family.of(case).flow(case).solved()
