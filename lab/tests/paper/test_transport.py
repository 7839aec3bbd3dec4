"""The advection-diffusion network as the paper writes it."""

import torch

from pennlab.paper.transport_as_written import transport_as_written
from pennpde.models.advection_diffusion import complete_transport
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import heated_plate


def test_it_obeys_symmetry_and_conditions_at_all_four_times():
    torch.manual_seed(0)
    model = transport_as_written(width=8, iterations=2)
    case = complete_transport(heated_plate((0.6, 0.2)))
    assert model(case.to(torch.float32))["T"].shape == (case.number_of_points, 4)
    assert_dirichlet(model, case.to(torch.float32))
    assert_equivariant(model.double(), case, tolerance=1e-9)


def test_one_iteration_is_the_equation_in_the_encoded_space():
    torch.manual_seed(0)
    model = transport_as_written(width=8, iterations=1, steps=1, time_step=0.25).double()
    case = complete_transport(heated_plate((0.6, 0.2), 0.3))
    with torch.no_grad():
        encoded = model._encode(case)
        start = {"T": model._encode_initial("T", case)}
        start = encoded.project(start)
        moved, _, _ = model.iterate(encoded, start, start, None)
        rate = model.equation.rate(start, encoded)["T"]
        expected = encoded.project({"T": start["T"] + 0.25 * rate})["T"]
    torch.testing.assert_close(moved["T"], expected)
