"""The flow network as the paper writes it."""

import pytest
import torch

from pennlab.paper.flow_as_written import flow_as_written
from pennpde.case import Case
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.penn.encoder import Encoder
from pennpde.testing import assert_dirichlet, assert_equivariant


@pytest.fixture(scope="module")
def case() -> Case:
    return flow_case(coarse_mesh("b_0.30_0.70", cells_per_length=5), "b_0.30_0.70")


def test_it_obeys_symmetry_and_conditions(case):
    torch.manual_seed(0)
    model = flow_as_written(width=4, iterations=2, pressure_iterations=2)
    assert_dirichlet(model, case)
    assert_equivariant(model.double(), case, tolerance=1e-10)


def test_pressure_has_an_mlp_with_leaky_relu_and_comes_out_of_its_own_loop(case):
    torch.manual_seed(0)
    model = flow_as_written(width=8, iterations=1, pressure_iterations=3).double()
    encoder = model.encoders["p"]
    assert isinstance(encoder, Encoder)
    assert encoder.network.activations == ("leaky_relu", "identity")
    values = torch.randn(50, dtype=torch.float64)
    torch.testing.assert_close(encoder.decode(encoder(values)), values)
    assert model.solver.taken == ("p",)


def test_the_poisson_loop_lowers_the_residual_of_equation_61(case):
    """The loop of `models.flow` solves another equation, of which more iterations leave 94 % of this residual."""
    torch.manual_seed(0)
    residuals = []
    for iterations in (1, 40):
        torch.manual_seed(0)
        model = flow_as_written(width=4, iterations=1, pressure_iterations=iterations).double()
        loop, seen = model.equation.pressure_solver, []
        original = type(loop).__call__

        def watched(self, step, start, case, project=None, *, record=True, original=original, seen=seen):
            solution = original(self, step, start, case, project, record=True)
            last = solution.state
            residual = last["p"] - step(last, start, 1.0)["p"]
            seen.append(float(residual[~case.dirichlet["p"].mask].square().mean()))
            return solution

        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(type(loop), "__call__", watched)
            model(case)
        residuals.append(seen[-1])
    assert residuals[1] < 0.2 * residuals[0]


def test_it_trains(case):
    torch.manual_seed(0)
    model = flow_as_written(width=4, iterations=2, pressure_iterations=2)
    fields = model(case)
    sum(values.square().mean() for values in fields.values()).backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
