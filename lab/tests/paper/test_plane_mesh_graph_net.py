"""MeshGraphNet for plane flows: its graph, its conditions, its times."""

import numpy as np
import pytest
import torch

from pennlab.paper.baselines.plane_mesh_graph_net import STEADY, PlaneGraph, PlaneMeshGraphNet
from pennpde.case import Case
from problems import rectangle

pytestmark = pytest.mark.slow  # baselines are tested by CI


def duct() -> Case:
    """With an inlet that is not the same upside down, and a slip wall."""
    mesh = rectangle((12, 6), (2.0, 1.0)).with_patches(
        {
            "inlet": lambda x: np.isclose(x[:, 0], 0.0),
            "outlet": lambda x: np.isclose(x[:, 0], 2.0),
            "wall": lambda x: np.isclose(x[:, 1], 0.0),
            "slip": lambda x: np.isclose(x[:, 1], 1.0),
        }
    )
    inflow = torch.stack([0.5 + mesh.points[:, 1], 0.2 * mesh.points[:, 1]], dim=1)
    return Case(
        mesh,
        initial={"u": torch.zeros_like(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": inflow, "wall": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "wall": 0.0, "slip": 0.0}},
        slip={"u": ["slip"]},
        parameters={"viscosity": 0.01},
        features={"wall_distance": mesh.distance_to(["wall"])},
    )


def network(time: str = "late") -> PlaneMeshGraphNet:
    torch.manual_seed(0)
    return PlaneMeshGraphNet(width=8, blocks=2, time=time)


def test_a_mirrored_graph_is_the_graph_of_the_mirrored_case():
    case = duct()
    mirrored = case.moved(torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64)), torch.zeros(2))
    found, expected = PlaneGraph.of(case).mirrored(), PlaneGraph.of(mirrored)
    for name in ("points", "edges", "start", "slip_normals"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.prescribed[1], expected.prescribed[1])


@pytest.mark.parametrize("time", ["late", "early"])
def test_conditions_hold_exactly_and_times_do_not_disturb_each_other(time):
    case, model = duct(), network(time)
    graph = PlaneGraph.of(case)
    velocity, pressure = model(graph, [0.5, 3.0, STEADY])
    assert velocity.shape == (case.number_of_points, 2, 3)
    mask = case.dirichlet["u"].mask
    assert torch.equal(velocity[mask][..., 1], case.dirichlet["u"].values[mask].float())
    assert torch.equal(pressure[case.dirichlet["p"].mask], torch.zeros(int(case.dirichlet["p"].mask.sum()), 3))
    only_slip = case.slip["u"].mask & ~mask
    assert velocity[only_slip, 1].abs().max() < 1e-6
    one, _ = model(graph, [3.0])
    torch.testing.assert_close(one[..., 0], velocity[..., 1])
    assert (velocity[..., 0] - velocity[..., 1]).abs().max() > 1e-4


def test_it_learns_a_flow_by_heart():
    graph, model = PlaneGraph.of(duct()), network()
    goal = graph.start * 0.7
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(graph, [1.0])[0][..., 0] - goal)[~graph.prescribed[0]].square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]
