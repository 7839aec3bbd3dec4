"""The potential flow that meets a case's conditions."""

import math

import numpy as np
import pytest
import torch

from meshes import ALL_TYPES, PLANE_TYPES, box
from pennpde.case import Case, batch
from pennpde.mesh import Mesh
from pennpde.models.potential_flow import potential_flow

ENDS = {"inlet": lambda x: np.isclose(x[:, 0], 0.0), "outlet": lambda x: np.isclose(x[:, 0], 1.0)}


def channel(mesh: Mesh, speed: float = 1.0, **conditions) -> Case:
    """Flow through the unit box in x, its sides free."""
    mesh = mesh.with_patches(ENDS)
    inlet = [speed, *[0.0] * (mesh.space - 1)]
    dirichlet = {"u": {"inlet": inlet}, "p": {"outlet": 0.0}}
    return Case(mesh, initial={"u": torch.zeros_like(mesh.points), "p": 0.0}, dirichlet=dirichlet | conditions)


@pytest.mark.parametrize("kind", ALL_TYPES)
def test_a_straight_channel_has_uniform_flow_on_every_cell_type(kind):
    case = channel(box(kind, 3, jitter=0.2 if kind in PLANE_TYPES else 0.0), speed=2.0)
    expected = torch.zeros_like(case.mesh.points)
    expected[:, 0] = 2.0
    # Each facet of the inlet carries its flux by equal shares of its points: exact for linear potentials.
    torch.testing.assert_close(potential_flow(case), expected, atol=1e-10, rtol=0)


def test_prescribed_values_are_met_bit_for_bit():
    mesh = box("quad", 6).with_patches({**ENDS, "wall": lambda x: np.isclose(x[:, 1] % 1.0, 0.0)})
    case = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "wall": 0.0}, "p": {"outlet": 0.0}},
    )
    velocity = potential_flow(case)
    assert torch.equal(velocity[case.dirichlet["u"].mask], case.dirichlet["u"].values[case.dirichlet["u"].mask])
    # Resting corners of the inlet do not take flux away: inside the flow is uniform.
    inside = ~case.dirichlet["u"].mask
    torch.testing.assert_close(
        velocity[inside, 0], torch.ones(int(inside.sum()), dtype=torch.float64), atol=1e-10, rtol=0
    )


def stagnation(cells: int) -> float:
    """Root mean square error of u = (x, -y) inside the unit square, from its values on two sides."""
    sides = {"side": lambda x: np.isclose(x, 1.0).any(axis=1), "pressure": lambda x: np.isclose(x, 0.0).all(axis=1)}
    mesh = box("quad", cells, jitter=0.1, seed=cells).with_patches(sides)
    exact = mesh.points * torch.tensor([1.0, -1.0])
    case = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"side": exact}, "p": {"pressure": 0.0}},
    )
    inside = torch.ones(mesh.number_of_points, dtype=torch.bool)
    inside[mesh.boundary_points] = False
    return float(((potential_flow(case) - exact)[inside] ** 2).mean().sqrt())


def test_flow_towards_a_corner_converges():
    errors = [stagnation(cells) for cells in (8, 32)]
    # On jittered quads the projected gradient is of first order.
    assert math.log(errors[0] / errors[1]) / math.log(4) > 0.9
    assert errors[1] < 0.01


def test_as_much_flows_out_as_flows_in():
    from pennlab.datasets.flow import cases as flow

    case = flow.flow_case(flow.coarse_mesh("b_0.30_0.70", cells_per_length=12, jitter=0.0))
    outlet = case.mesh.patch("outlet").facets
    ends = case.mesh.facets.connectivity.reshape(-1, 2)[outlet]
    free = ~case.dirichlet["u"].mask.numpy()
    speed = case.initial["u"][:, 0].numpy()
    # Walls rest, so the outlet's two end points say nothing; the flow across the other ten twelfths is 10/12.
    middle = free[ends].all(axis=1)
    height = np.abs(np.diff(case.mesh.points[:, 1].numpy()[ends], axis=1))[:, 0]
    flux = (speed[ends].mean(axis=1) * height)[middle].sum()
    assert flux == pytest.approx(height[middle].sum(), rel=2e-3)


@pytest.mark.parametrize("reflected", [False, True])
def test_the_flow_turns_with_the_case(reflected):
    from pennlab.datasets.flow import cases as flow

    case = flow.flow_case(flow.coarse_mesh("a_0.40", cells_per_length=8))
    cosine, sine = math.cos(0.7), math.sin(0.7)
    rotation = torch.tensor([[cosine, -sine], [sine, cosine]], dtype=torch.float64)
    if reflected:
        rotation = rotation @ torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    moved = case.moved(rotation, torch.tensor([3.0, -1.0], dtype=torch.float64))
    torch.testing.assert_close(potential_flow(moved), potential_flow(case) @ rotation.T, atol=1e-9, rtol=0)


def test_a_batch_has_the_flows_of_its_cases():
    cases = [channel(box("quad", 3), 1.0), channel(box("quad", 4), 2.0)]
    torch.testing.assert_close(potential_flow(batch(cases)), torch.cat([potential_flow(case) for case in cases]))


def test_precision_is_that_of_the_case():
    assert potential_flow(channel(box("triangle", 2)).to(torch.float32)).dtype == torch.float32


def test_inflow_that_cannot_leave_is_an_error_and_balanced_flow_needs_no_pressure():
    mesh = box("quad", 4)
    with pytest.raises(ValueError, match="Prescribe the pressure"):
        potential_flow(channel(mesh, p={}))
    through = channel(mesh, u={"inlet": (1.0, 0.0), "outlet": (1.0, 0.0)}, p={})
    torch.testing.assert_close(potential_flow(through)[:, 0], torch.ones(mesh.number_of_points, dtype=torch.float64))


def test_a_case_at_rest_stays_at_rest():
    assert not potential_flow(channel(box("quad", 3), 0.0)).any()


def test_slip_walls_have_no_flow_across():
    mesh = box("quad", 4).with_patches({**ENDS, "top": lambda x: np.isclose(x[:, 1], 1.0)})
    case = Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.5)}, "p": {"outlet": 0.0}},
        slip={"u": ["top"]},
    )
    top = torch.isclose(mesh.points[:, 1], torch.ones(()).double()) & (mesh.points[:, 0] > 0)
    assert not potential_flow(case)[top, 1].abs().max() > 1e-14
