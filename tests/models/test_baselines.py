"""The networks that we compare with: sizes as published, a training step of each."""

import numpy as np
import pytest
import torch

from pennpde.conditions import Case, batch, unbatch
from pennpde.datasets.flow import coarse_mesh, flow_case
from pennpde.models.mesh_graph_net import MeshGraphNet
from pennpde.models.mp_pde import FRAMES, MPPDE, radius_graph
from pennpde.testing import assert_dirichlet, assert_equivariant

# Table 6 of the paper. Its row of width 64 and window 2 is the network of window 4: that of window 2 has 171,028.
PUBLISHED = {
    (20, 128): 709_316,
    (10, 128): 673_484,
    (4, 128): 651_972,
    (2, 128): 644_548,
    (20, 64): 204_004,
    (10, 64): 185_356,
    (4, 64): 174_740,
    (20, 32): 63_964,
    (10, 32): 55_348,
    (4, 32): 49_948,
    (2, 32): 47_924,
}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [flow_case(coarse_mesh(name, cells_per_length=5), name) for name in ("a_0.50", "c_0.20_1.00")]


def with_frames(case: Case) -> Case:
    times = torch.linspace(0, 1, FRAMES + 1, dtype=torch.float64)
    u = case.initial["u"][..., None] * (1 + times)
    return Case(
        case.mesh,
        initial=case.initial,
        dirichlet=case.dirichlet,
        neumann=case.neumann,
        parameters=case.parameters,
        features=case.features,
        targets={"u": u, "p": case.mesh.points[:, :1] * times},
    )


@pytest.mark.parametrize("size", PUBLISHED)
def test_mp_pde_has_the_published_number_of_parameters(size):
    model = MPPDE(*size, space=3)
    assert sum(p.numel() for p in model.parameters()) == PUBLISHED[size]


@pytest.mark.parametrize("window", [20, 10, 4, 2])
def test_mp_pde_advances_a_window_of_frames_and_learns_from_it(cases, window):
    torch.manual_seed(0)
    model = MPPDE(window, 32)
    case = with_frames(cases[0]).to(torch.float32)
    weights = torch.full((case.number_of_points,), 1 / case.number_of_points)
    before = model.training_loss(case, weights, unrolled=1)
    before.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    with torch.no_grad():
        fields = model(case)
    assert fields["u"].shape == (case.number_of_points, 2)
    assert fields["p"].shape == (case.number_of_points,)


def test_mp_pde_breaks_equivariance(cases):
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match="Not equivariant"):
        assert_equivariant(MPPDE(20, 32).double(), cases[0], motions=1)


def test_a_radius_graph_without_cap_is_symmetric_and_complete():
    positions = np.random.default_rng(0).random((200, 2))
    edges = radius_graph(positions, 0.2)
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    assert edges.shape[1] == (distance < 0.2).sum() - 200
    capped = radius_graph(positions, 0.2, neighbour_cap=4)
    assert np.bincount(capped[0]).max() <= 4


@pytest.mark.parametrize("model", [MPPDE(2, 32), MeshGraphNet(16, 3)], ids=["mp_pde", "mesh_graph_net"])
def test_a_batch_gives_what_its_cases_give_one_by_one(cases, model):
    model = model.double()
    with torch.no_grad():
        together = unbatch(model(batch(cases)), batch(cases))
        alone = [model(case) for case in cases]
    for joint, single in zip(together, alone, strict=True):
        for name in ("u", "p"):
            # Messages are summed in another order.
            torch.testing.assert_close(joint[name], single[name], rtol=0, atol=1e-9)


def test_mesh_graph_net_has_fifteen_blocks_and_takes_a_step(cases):
    torch.manual_seed(0)
    full = MeshGraphNet()
    assert sum(p.numel() for p in full.parameters()) == 2_333_315
    model = MeshGraphNet(width=16, blocks=3)
    fields = model(cases[0])
    sum(values.square().mean() for values in fields.values()).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())
    assert_dirichlet(model, cases[0])
