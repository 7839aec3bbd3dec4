"""What each facet of the boundary prescribes, also where the points of the mesh cannot hold it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from foam_cases import RESTING, WALLS, write_brick, write_conditions
from pennpde import load_pretrained
from pennpde.case import Case, Table
from pennpde.flow.grid import Grid
from pennpde.mesh import Mesh
from pennpde.models.flow_physics import PlaneFlowPhysics, boundary_flux, reference
from pennpde.models.inlet import BoundaryProfile
from pennpde.openfoam.cases import read_problem
from pennpde.prediction import predict

EMPTY = {"front": "type empty;", "back": "type empty;"}


def _square(cells: int = 6) -> Mesh:
    x, y = np.meshgrid(np.linspace(0, 1, cells + 1), np.linspace(0, 1, cells + 1))
    corner = (np.arange(cells)[:, None] * (cells + 1) + np.arange(cells)).ravel()
    quads = np.stack([corner, corner + 1, corner + cells + 2, corner + cells + 1], axis=1)
    return Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), {"quad": quads})


def _slot_jet(cells: int = 6) -> Case:
    """A jet through one facet of the left side, an outlet of one facet on the right, walls elsewhere."""
    mesh = _square(cells)
    ends = mesh.facets.connectivity.reshape(-1, 2)
    middle = mesh.points.numpy()[ends].mean(axis=1)
    row = abs(middle[:, 1] - 2.5 / cells) < 1e-9
    jet, outlet = ((middle[:, 0] < 1e-9) & row, (middle[:, 0] > 1 - 1e-9) & row)
    parts = {"jet": jet, "outlet": outlet, "walls": ~(jet | outlet)}
    mesh = mesh.with_patch_facets({name: ends[chosen].tolist() for name, chosen in parts.items()})
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"jet": (1.0, 0.0), "walls": (0.0, 0.0)}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 0.01},
    )


def _listed(folder, values: list[float], outlet: str = "type zeroGradient;", pressed: bool = True):
    """A square whose left side has a list of inflow velocities, face by face from below."""
    write_brick(folder, (6, len(values), 1), types={"front": "empty", "back": "empty"})
    rows = " ".join(f"({value:.12g} 0 0)" for value in values)
    inlet = f"type fixedValue; value nonuniform List<vector> {len(values)}({rows});"
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | EMPTY | {"left": inlet, "right": outlet})
    pressure = {"right": "type fixedValue; value uniform 0;"} if pressed else {}
    write_conditions(folder, "p", "uniform 0", WALLS | EMPTY | pressure)
    (folder / "system" / "fvSolution").write_text("PISO { pRefCell 0; pRefValue 0; }")
    return read_problem(folder, PlaneFlowPhysics())


def test_a_jet_and_an_outlet_of_one_facet_keep_their_conditions():
    boundary = BoundaryProfile.of(_slot_jet())
    assert boundary.fluxes.sum() == pytest.approx(-1 / 6, rel=1e-12)
    assert boundary.opened.sum() == 1
    assert boundary.lost.sum() == 2
    assert reference(_slot_jet()) == pytest.approx((1 / 6, 1.0))


@pytest.mark.parametrize("splits", [0, 1, 2])
def test_splitting_keeps_the_flux_of_a_jet_of_one_facet(splits):
    grid = Grid.of(_slot_jet())
    for _ in range(splits):
        grid = grid.split()
    assert grid.boundary_flux().sum() == pytest.approx(-1 / 6, rel=1e-12)
    assert grid.facet_open.sum() == 2**splits


def test_the_fluid_of_a_jet_of_one_facet_reaches_the_outlet():
    outcome = predict(load_pretrained("flow"), _slot_jet(12), times=[1.0])
    crossing = outcome.case.mesh.points[:, 0].sub(0.5).abs() < 1e-9
    # What enters crosses the middle of the square, up to the trapezoidal rule on twelve cells.
    assert float(outcome.fields["u"][crossing, 0].sum()) / 12 == pytest.approx(1 / 12, rel=0.1)


@pytest.mark.parametrize("values", [[1, 1, 1, 0, 0, 0], [1, 0, 1, 0, 1, 0], [0, 0, 2, 0, 0, 0]])
def test_lists_with_steps_are_kept_face_by_face(tmp_path, values):
    boundary = BoundaryProfile.of(_listed(tmp_path / "case", values))
    left = boundary.outward[:, 0] < 0
    assert sorted(boundary.means[left, 0]) == pytest.approx(sorted(values))
    assert boundary.lost.any()


def test_a_smooth_list_stays_smooth_and_has_the_flux_of_its_faces(tmp_path):
    centres = (np.arange(10) + 0.5) / 10
    values = 6 * centres * (1 - centres)
    boundary = BoundaryProfile.of(_listed(tmp_path / "case", values.tolist()))
    assert -boundary.fluxes.sum() == pytest.approx(values.mean(), rel=1e-12)
    assert not boundary.lost.any()


def test_an_inlet_without_an_outlet_is_refused_with_both_fluxes(tmp_path):
    case = _listed(tmp_path / "case", [1.0] * 4, outlet="type noSlip;", pressed=False)
    with pytest.raises(ValueError, match=r"1 flows in and 0 flows out .*outward through left -1\)"):
        PlaneFlowPhysics().complete(case)


def test_an_outlet_velocity_that_contradicts_the_inflow_is_refused_and_one_that_fits_is_not(tmp_path):
    outlet = "type fixedValue; value uniform ({} 0 0);"
    wrong = _listed(tmp_path / "wrong", [1.0] * 4, outlet=outlet.format(0.5), pressed=False)
    with pytest.raises(ValueError, match=r"1 flows in and 0.5 flows out .*outward through left -1, right \+0.5\)"):
        PlaneFlowPhysics().complete(wrong)
    PlaneFlowPhysics().complete(_listed(tmp_path / "right", [1.0] * 4, outlet=outlet.format(1.0), pressed=False))


def test_the_certificate_balances_a_jet_and_an_outlet_of_one_facet():
    outcome = predict(load_pretrained("flow"), _slot_jet(12), times=[1.0])
    balance = outcome.certificate.check("flux imbalance")
    assert balance.value == pytest.approx(0.0, abs=1e-12)
    assert "(0.08333 in, 0.08333 out)" in balance.text
    assert float(outcome.fluxes("jet")) == pytest.approx(-1 / 12, rel=1e-12)
    assert float(outcome.fluxes("outlet")) == pytest.approx(1 / 12, rel=1e-12)
    assert not outcome.fluxes("walls").any()
    assert not any("differ by" in each for each in outcome.certificate.warnings)


def test_the_inflow_of_a_certificate_is_the_integral_of_the_profile(tmp_path):
    y = (np.arange(8) + 0.5) / 8
    case = _listed(tmp_path / "case", (6 * y * (1 - y)).tolist())
    flux = boundary_flux(case.initial["u"], case)
    assert flux.inward == pytest.approx(float((6 * y * (1 - y)).mean()), rel=1e-12)
    # What leaves is a parabola as well: its integral is that of its values at the points.
    height = case.mesh.points[:, 1]
    profile = torch.stack([6 * height * (1 - height), torch.zeros_like(height)], dim=1)
    assert boundary_flux(profile, case).outward == pytest.approx(1.0, rel=1e-12)


def _ramped_jet() -> Case:
    ramp = {"jet": Table([(0.0, (0.0, 0.0)), (2.0, (4.0, 0.0))], outside="clamp"), "walls": (0.0, 0.0)}
    return Case(
        _slot_jet(12).mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": ramp, "p": {"outlet": 0.0}},
        parameters={"viscosity": 0.01},
    )


def test_a_jet_that_begins_at_rest_has_the_units_of_its_fastest_time_and_is_lost_by_the_points():
    case = _ramped_jet()
    assert PlaneFlowPhysics().units(case).speed == 4.0
    assert not BoundaryProfile.of(case).means.any()
    assert BoundaryProfile.loses(case)


def test_the_flux_of_conditions_that_change_with_time_is_that_of_its_time():
    case = _ramped_jet()
    later = case.over([0.5, 1.5])
    velocity = later.dirichlet["u"].last().values
    assert boundary_flux(velocity, later).inward == pytest.approx(3.0 / 12)


@pytest.mark.parametrize(("speed", "told"), [(-1.0, True), (1.0, False), (0.0, False)])
def test_a_wall_that_moves_inwards_beside_an_outlet_is_warned_of(tmp_path, speed, told):
    lid = f"type fixedValue; value uniform ({speed} 0 0);"
    write_brick(tmp_path / "case", (6, 6, 1), types={"front": "empty", "back": "empty"})
    velocity = {"left": "type fixedValue; value uniform (1 0 0);", "right": "type zeroGradient;", "top": lid}
    write_conditions(tmp_path / "case", "U", "uniform (0 0 0)", RESTING | EMPTY | velocity)
    outlet = {"right": "type fixedValue; value uniform 0;"}
    write_conditions(tmp_path / "case", "p", "uniform 0", WALLS | EMPTY | outlet)
    case = PlaneFlowPhysics().complete(read_problem(tmp_path / "case", PlaneFlowPhysics()))
    assert [each.severe for each in case.remarks if "moves into the domain" in each.text] == [True] * told


def test_the_level_of_the_pressure_at_an_outlet_changes_no_expected_error():
    low = _slot_jet(12)
    high = Case(
        low.mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"jet": (1.0, 0.0), "walls": (0.0, 0.0)}, "p": {"outlet": 1000.0}},
        parameters={"viscosity": 0.01},
    )
    first, second = (predict(load_pretrained("flow"), case, times=[0.2]) for case in (low, high))
    assert second.expected.errors["p"].bound == pytest.approx(first.expected.errors["p"].bound, rel=1e-3)


def test_a_uniform_velocity_at_the_start_that_is_not_used_is_told(tmp_path):
    case = _listed(tmp_path / "case", [1.0] * 4)
    moving = replace(case, initial={**case.initial, "u": torch.ones_like(case.initial["u"])})
    told = [[each.text for each in PlaneFlowPhysics().complete(one).remarks] for one in (case, moving)]
    assert told[0] == []
    assert told[1] == ["The uniform initial velocity (1, 1) is taken as a first guess: the flow starts from rest."]


def test_a_network_of_values_at_points_refuses_conditions_of_one_facet():
    with pytest.raises(ValueError, match="on one facet, or changes from facet to facet"):
        predict(load_pretrained("ducts"), _slot_jet(40))
