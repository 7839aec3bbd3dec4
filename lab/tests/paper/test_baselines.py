"""The networks that we compare with: sizes as published, a training step of each."""

import copy
import gc

import numpy as np
import pytest
import torch

from pennlab.paper.baselines import mp_pde
from pennlab.paper.baselines.graphs import GraphStore, radius_graph
from pennlab.paper.baselines.mesh_graph_net import MeshGraphNet
from pennlab.paper.baselines.mp_pde import FRAMES, MPPDE, pushforward
from pennpde.case import Case, batch, unbatch
from pennpde.models.designs import flow_case
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import rectangle

pytestmark = pytest.mark.slow  # baselines are tested by CI

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


def channel(cells: tuple[int, int]) -> Case:
    """A straight duct of cells as the radius graphs expect them."""
    mesh = rectangle(cells, (cells[0] / 22.5, cells[1] / 22.5))
    return flow_case(mesh.with_patches({"wall": mesh.patch("side").points}), f"channel_{cells[0]}")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [channel((9, 5)), channel((7, 6))]


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


def even_weights(case: Case) -> torch.Tensor:
    sizes = case.sizes
    like = case.initial["p"]
    return torch.cat([like.new_full((size,), 1 / size / len(sizes)) for size in sizes])


def gradients(model, loss: torch.Tensor) -> list[torch.Tensor]:
    return [gradient.clone() for gradient in torch.autograd.grad(loss, list(model.parameters()))]


@pytest.mark.parametrize("window", [20, 10, 4, 2])
def test_mp_pde_advances_a_window_of_frames_and_learns_from_it(cases, window):
    torch.manual_seed(0)
    model = MPPDE(window, 32)
    case = with_frames(cases[0]).to(torch.float32)
    found = gradients(model, model.training_loss(case, even_weights(case), start=0, unrolled=1))
    assert all(torch.isfinite(each).all() and each.any() for each in found)
    with torch.no_grad():
        fields = model(case)
    assert fields["u"].shape == (case.number_of_points, 2)
    assert fields["p"].shape == (case.number_of_points,)


def plain_advance(model: MPPDE, window, start: int, surroundings) -> torch.Tensor:
    """The published formula word for word: every edge gets all of its inputs, side by side."""
    flat, graph = window.flatten(1), surroundings.graph
    known = torch.cat([surroundings.known, flat.new_full((len(flat), 1), start / FRAMES)], dim=1)
    x = graph.positions
    hidden = model.embedding(torch.cat([flat, x, known], dim=1))
    i, j = torch.from_numpy(np.repeat(np.arange(len(flat)), np.diff(graph.first_edges))), graph.sources.long()
    for message, update in zip(model.messages, model.updates, strict=True):
        sent = message(torch.cat([hidden[i], hidden[j], flat[i] - flat[j], x[i] - x[j], known[i]], dim=1))
        total = torch.zeros_like(hidden).index_add(0, i, sent)
        mean = total / torch.bincount(i, minlength=len(flat)).clamp_min(1)[:, None]
        hidden = hidden + update(torch.cat([hidden, mean, known], dim=1))
        parts = hidden.split(surroundings.case.sizes)
        hidden = torch.cat([(part - part.mean(0)) / (part.var(0, correction=0) + 1e-5).sqrt() for part in parts])
    steps = 0.1 * torch.arange(1, model.time_window + 1, dtype=window.dtype)
    return window[:, :, -1:] + steps * model.decoder(hidden[:, None])


@pytest.mark.parametrize(("kept_edges", "at_once"), [(2**21, 2**17), (2**21, 100), (0, 100)])
def test_messages_split_between_points_and_edges_are_those_of_the_formula(cases, monkeypatch, kept_edges, at_once):
    monkeypatch.setattr(mp_pde, "_EDGES_AT_ONCE", at_once)
    torch.manual_seed(0)
    model = MPPDE(10, 32, kept_edges=kept_edges).double()
    surroundings = model.surroundings(batch(cases))
    assert (len(surroundings.stretches) > 10) == (at_once == 100)
    window = torch.randn(surroundings.case.number_of_points, 3, 10, dtype=torch.float64)
    found, plain = (
        advance(window, 7, surroundings) for advance in (model.advance, lambda *a: plain_advance(model, *a))
    )
    torch.testing.assert_close(found, plain, rtol=0, atol=1e-11)
    for one, other in zip(*(gradients(model, each.square().mean()) for each in (found, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kept_edges", [2**21, 0])
def test_what_is_worked_out_again_is_not_kept(cases, kept_edges):
    model = MPPDE(20, 32, kept_edges=kept_edges)
    case = with_frames(cases[0]).to(torch.float32)
    edges, kept = model.surroundings(case).graph.number_of_edges, []

    def pack(tensor):
        kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.training_loss(case, even_weights(case), start=0, unrolled=0)
    of_edges = sum(shape == (edges, 32) for shape in kept)
    assert of_edges == (3 * 6 if kept_edges else 0)  # three for each layer


def test_pushforward_learns_from_the_last_window_alone(cases):
    torch.manual_seed(0)
    model = MPPDE(4, 32).double()
    case = with_frames(cases[0])
    surroundings = model.surroundings(case)
    found = gradients(model, model.training_loss(case, even_weights(case), start=3, unrolled=2))

    def by_hand(detached: bool) -> list[torch.Tensor]:
        frames = torch.cat([case.targets["u"], case.targets["p"][:, None]], dim=1) / model.scale[:, None]
        window = frames[:, :, :4]
        for start in (3, 7):
            window = model.advance(window, start, surroundings)
        window = model.advance(window.detach() if detached else window, 11, surroundings)
        return gradients(model, (window - frames[:, :, 12:16]).square().mean().sqrt())

    for one, other in zip(found, by_hand(detached=True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)
    assert any(not torch.allclose(one, other, rtol=0.1) for one, other in zip(found, by_hand(False), strict=True))


@pytest.mark.parametrize(("window", "latest"), [(20, {0: 20, 1: 0}), (10, {0: 30, 1: 20})])
def test_pushforward_draws_every_start_and_both_numbers_of_windows(monkeypatch, cases, window, latest):
    drawn = set()
    monkeypatch.setattr(
        MPPDE, "training_loss", lambda self, case, weights, *drawing: drawn.add(drawing) or torch.zeros(())
    )
    torch.manual_seed(0)
    model = MPPDE(window, 32)
    for _ in range(600):
        pushforward(model, cases[0], even_weights(cases[0]))
    assert drawn == {(start, unrolled) for unrolled in (0, 1) for start in range(latest[unrolled] + 1)}


def test_training_starts_where_a_prediction_starts(cases):
    """Frame 0 of the truth is the potential flow on another mesh."""
    torch.manual_seed(0)
    model = MPPDE(20, 32).double()
    case = with_frames(cases[0])
    frames = {name: target.clone() for name, target in case.targets.items()}
    for target in frames.values():
        target[..., 0] = 1e6
    spoilt = Case(case.mesh, case.initial, case.dirichlet, case.neumann, features=case.features, targets=frames)
    losses = [model.training_loss(each, even_weights(case), 0, 0) for each in (case, spoilt)]
    assert losses[0] == losses[1]


def test_frames_that_are_missing_and_windows_that_do_not_fit_are_refused(cases):
    model, case = MPPDE(20, 32).double(), with_frames(cases[0])
    with pytest.raises(ValueError, match="2 windows of 20 frames from frame 1 on end at 41; there are 40"):
        model.training_loss(case, even_weights(case), start=1, unrolled=1)
    last = Case(case.mesh, case.initial, features=case.features, targets={"u": case.targets["u"][..., -1]})
    with pytest.raises(ValueError, match=r"learns from 41 frames, but the target 'u' .*penn generate flow --frames"):
        model.training_loss(last, even_weights(case), start=0, unrolled=0)
    with pytest.raises(ValueError, match='"pushforward" is that of the network mp-pde; got a MeshGraphNet'):
        pushforward(MeshGraphNet(8, 1), case, even_weights(case))


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


def test_a_graph_is_made_once_a_mesh_and_forgotten_with_it():
    made = []

    def edges_of(mesh):
        made.append(mesh.number_of_points)
        return mesh.edges

    store, like = GraphStore(edges_of), torch.zeros(1, dtype=torch.float64)
    one, other = channel((3, 2)), channel((4, 2))
    together = batch([one, other, one])
    graph = store.of(together.mesh, like)
    assert made == [12, 15]
    receivers = np.repeat(np.arange(39), np.diff(graph.first_edges))
    assert np.array_equal(np.stack([receivers, graph.sources.numpy()]), together.mesh.edges)
    torch.testing.assert_close(graph.normals, together.mesh.normals)
    torch.testing.assert_close(graph.positions, together.mesh.points)
    assert store.of(one.mesh, like) is store.of(one.mesh, like)
    assert store.of(one.mesh, like.float()).positions.dtype == torch.float32
    assert made == [12, 15]
    assert len(copy.deepcopy(store)._kept) == 0
    assert len(store._kept) == 2
    del one, other, together
    gc.collect()
    assert len(store._kept) == 0


def test_sums_and_repetitions_along_edges_are_each_others_derivative(cases):
    graph = GraphStore(lambda mesh: mesh.edges).of(cases[0].mesh, torch.zeros(1, dtype=torch.float64))
    (edges,) = graph.stretches()
    at_points = torch.randn(len(graph.positions), 2, dtype=torch.float64, requires_grad=True)
    at_edges = torch.randn(graph.number_of_edges, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(edges.to_edges, at_points)
    assert torch.autograd.gradcheck(edges.summed, at_edges)
    torch.testing.assert_close((edges.summed(at_edges) * at_points).sum(), (at_edges * edges.to_edges(at_points)).sum())


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
