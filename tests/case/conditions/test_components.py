"""Prescribed values of single components: rollers and lines of symmetry."""

from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from flow_problems import square
from pennpde.case import Case, Table, batch
from pennpde.case.conditions import Components
from pennpde.case.problem_files import problem_from
from pennpde.data import vtkhdf
from pennpde.penn import PENN, VECTOR, Equation
from pennpde.penn.encoder import Encoder
from pennpde.penn.nisogcn import Laplacian
from pennpde.testing import assert_equivariant
from problems import rectangle


def rolling(**changes) -> Case:
    """Two rollers that meet in a corner, and a side that is held whole."""
    mesh = rectangle((4, 4)).with_patches({"low": lambda x: np.isclose(x[:, 1], 0.0)})
    dirichlet = {"u": {"inlet": (0.25, None), "low": ("free", -0.5), "outlet": (1.0, 2.0)}}
    return Case(mesh, **{"initial": {"u": (0.1, 0.2)}, "dirichlet": dirichlet, **changes})


class Smoothing(Equation):
    unknowns: ClassVar = {"u": VECTOR}

    def __init__(self, width: int):
        super().__init__()
        self.laplacian = Laplacian(width)

    def rate(self, state, case):
        return {"u": 0.01 * self.laplacian(state["u"], case.operators["u"])}


def field(case: Case, *axes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(case.number_of_points, *axes, dtype=torch.float64, generator=generator)


def at(case: Case, *patches: str) -> torch.Tensor:
    every = [set(case.mesh.patch(name).points.tolist()) for name in patches]
    return torch.tensor(sorted(set.intersection(*every)))


def test_prescribed_components_come_out_bit_for_bit_and_others_stay():
    case = rolling()
    u = field(case, 2)
    there = case.fulfilled({"u": u})["u"]
    inlet, low, outlet = (at(case, name) for name in ("inlet", "low", "outlet"))
    assert (there[inlet, 0] == 0.25).all()
    free = torch.tensor([each for each in inlet.tolist() if each not in low.tolist()])
    assert torch.equal(there[free, 1], u[free, 1])
    assert torch.equal(there[at(case, "inlet", "low")], torch.tensor([[0.25, -0.5]], dtype=torch.float64))
    assert torch.equal(there[outlet], torch.tensor([[1.0, 2.0]], dtype=torch.float64).expand(len(outlet), 2))
    assert torch.equal(case.fulfilled({"u": there})["u"], there)


@pytest.mark.parametrize("encoder", [Encoder.linear(5), Encoder((1, 3, 5), bias=True)], ids=["linear", "MLP"])
def test_what_is_set_in_the_encoded_space_is_what_was_set_before(encoder):
    encoder = encoder.double()
    case = rolling()
    condition = case.conditions[Components.kind]["u"]
    encoded = condition.encoded(encoder, encoder.is_linear, "u")
    u = field(case, 2)
    assert_close(encoded.apply(encoder(u)), encoder(condition.apply(u)), rtol=0, atol=1e-14)


def test_turned_conditions_need_a_linear_encoder():
    turn = torch.linalg.qr(torch.tensor([[1.0, 2.0], [-0.5, 1.0]], dtype=torch.float64))[0]
    condition = rolling().moved(turn, torch.zeros(2, dtype=torch.float64)).conditions[Components.kind]["u"]
    condition.encoded(Encoder.linear(4).double(), True, "u")
    with pytest.raises(ValueError, match="not the axes of space, but the encoder is not linear"):
        condition.encoded(Encoder((1, 3, 4)).double(), False, "u")


def test_a_network_fulfils_them_and_turns_with_them():
    torch.manual_seed(0)
    network = PENN(Smoothing(6), 6).double()
    case = rolling()
    with torch.no_grad():
        u = network(case)["u"]
    assert torch.equal(u, case.fulfilled({"u": u})["u"])
    assert (u[at(case, "inlet"), 0] == 0.25).all()
    assert u[at(case, "inlet"), 1].std() > 0
    assert_equivariant(network, case)


def test_an_unknown_that_is_a_tensor():
    mesh = square("triangle", 3)
    free = ((0.5, None), (None, None))
    case = Case(mesh, initial={"s": [[0.0, 0.0], [0.0, 0.0]], "T": 0.0}, dirichlet={"s": {"inlet": free}})
    values = field(case, 2, 2)
    there = case.fulfilled({"s": values})["s"]
    inlet = at(case, "inlet")
    assert (there[inlet, 0, 0] == 0.5).all()
    untouched = values.clone()
    untouched[inlet, 0, 0] = 0.5
    assert torch.equal(there, untouched)
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    moved = case.moved(turn, torch.zeros(2, dtype=torch.float64))
    rotated = torch.einsum("ij,pjk,lk->pil", turn, values, turn)
    expected = torch.einsum("ij,pjk,lk->pil", turn, there, turn)
    assert_close(moved.fulfilled({"s": rotated})["s"], expected)


def test_batches_files_units_and_times_keep_them():
    case = rolling()
    u = field(case, 2)
    expected = case.fulfilled({"u": u})["u"]
    together = batch([case, case])
    assert torch.equal(together.fulfilled({"u": torch.cat([u, u])})["u"], torch.cat([expected, expected]))
    again = vtkhdf.unpack(vtkhdf.pack(case), "memory").case
    assert torch.equal(again.fulfilled({"u": u})["u"], expected)
    reference = penn.case.conditions.Reference(one=2.0, zero=0.0, length=1.0, time=1.0)
    scaled = case.conditions[Components.kind]["u"].scaled(reference)
    assert_close(2.0 * scaled.apply(u / 2.0), case.conditions[Components.kind]["u"].apply(u))
    later = rolling(dirichlet={"u": {"inlet": Table([(0.0, (0.0, None)), (1.0, (3.0, None))])}}).at(0.5)
    assert (later.fulfilled({"u": u})["u"][at(case, "inlet"), 0] == 1.5).all()


def test_a_problem_file_says_free():
    mesh = rectangle((4, 4))
    case = problem_from({"dirichlet": {"u": {"inlet": ["0.5 * y", "free"], "outlet": [0.0, 0.0]}}}, mesh)
    u = field(case, 2)
    inlet = at(case, "inlet")
    there = case.fulfilled({"u": u})["u"]
    assert torch.equal(there[inlet, 0], 0.5 * mesh.points[inlet, 1])
    assert torch.equal(there[inlet[1:-1], 1], u[inlet[1:-1], 1])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"components\['T'\] prescribes components of a scalar"):
        Case(rectangle((2, 2)), initial={"T": 0.0}, dirichlet={"T": {"inlet": (None, 1.0)}})
    with pytest.raises(ValueError, match=r"components are not those of 'u': it has \[2\]"):
        Case(rectangle((2, 2)), initial={"u": (0.0, 0.0)}, dirichlet={"u": {"inlet": (None, 1.0, 2.0)}})
