"""The released solver steps and stops as described."""

import pytest
import torch

from pennlab.released.layers import ReleasedSolver
from released_networks import plain_solver


@pytest.mark.parametrize("divergence", [1e9, 0.5])
def test_the_solver_steps_and_stops_as_described(divergence: float):
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64) / 6
    target = torch.randn(10, 6, generator=generator, dtype=torch.float64)

    def residual(state):
        # "still" does not move at all, so its steps fall back to one.
        return {
            "p": state["p"] - target - torch.tanh(state["p"] @ matrix),
            "still": torch.zeros_like(state["still"]),
        }

    start = {"p": 0.1 * target, "still": torch.ones(10, 1, dtype=torch.float64)}
    wanted = plain_solver(residual, start, 7, divergence)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients):
            found = ReleasedSolver(7, divergence)(residual, start, (10,))
        torch.testing.assert_close(dict(found), wanted, rtol=1e-10, atol=1e-12)


def test_one_case_that_stops_early_leaves_the_others_of_its_batch_alone():
    generator = torch.Generator().manual_seed(4)
    target = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    far = torch.cat([torch.ones(4, 1), torch.full((5, 1), 1e6)]).double()

    def residual(state):
        return {"p": (state["p"] - torch.sin(state["p"]) - target) * far[: len(state["p"])]}

    def part(rows: slice):
        return lambda state: {"p": (state["p"] - torch.sin(state["p"]) - target[rows]) * far[rows]}

    together = ReleasedSolver(6, 100.0)(residual, {"p": target}, (4, 5))["p"]
    alone = [ReleasedSolver(6, 100.0)(part(rows), {"p": target[rows]}, ())["p"] for rows in (slice(0, 4), slice(4, 9))]
    torch.testing.assert_close(together, torch.cat(alone))
