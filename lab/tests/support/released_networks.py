"""Names of the authors' samples and ablations, and their solver as they describe it."""

import torch
from torch import Tensor

AD_SAMPLES = ("u0.5_d0.5_t0.5", "u0.5_d0.6_t0.6", "u0.6_d0.5_t0.6", "u0.6_d0.6_t0.5")
KINDS = ("PENN", "A", "B", "C", "D", "E", "F", "G")


def made(network_type: type, kind: str, **options) -> torch.nn.Module:
    torch.manual_seed(1)
    return network_type(kind=kind, **options).double()


def plain_solver(residual, start: dict[str, Tensor], iterations: int, divergence: float) -> dict[str, Tensor]:
    """The authors' loop as they describe it, its first residual evaluated twice."""
    state, before, before_residual = start, start, residual(start)
    for _ in range(iterations):
        current, updated, moved = residual(state), {}, 0.0
        for name, values in state.items():
            change, of_residual = values - before[name], current[name] - before_residual[name]
            step = abs(float((change * of_residual).sum() / ((of_residual**2).sum() + 1e-5)))
            if change.abs().max() <= 1e-8 and of_residual.abs().max() <= 1e-8:
                step = 1.0
            updated[name] = values - step * current[name]
            moved += float((updated[name] - values).norm() / (values.norm() + 1e-5))
        before, before_residual, state = state, current, updated
        if moved < 1e-5 or moved > divergence:
            break
    return state
