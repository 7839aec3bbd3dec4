"""Loss functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from pennpde.case import Case

Loss = Callable[[nn.Module, Case, Tensor], Tensor]
"""loss(model, case, weights): what to make small for a batch; `weights` make a sum over points a mean over cases."""


def scaled_squared_error(scales: Mapping[str, float]) -> Loss:
    """The mean over the targets of the mean squared error over the square of the target's scale.

    Every case counts with its own mean: one on a fine mesh does not count for more.
    """

    def loss(model: nn.Module, case: Case, weights: Tensor) -> Tensor:
        fields = model(case)
        terms = []
        for name, target in case.targets.items():
            if name not in fields:
                raise KeyError(f"The network gives {sorted(fields)}, but the target is {name!r}.")
            if fields[name].shape != target.shape:
                raise ValueError(
                    f"The network's {name!r} has shape {list(fields[name].shape)}, the target {list(target.shape)}."
                )
            squares = (fields[name] - target).square().reshape(len(target), -1).mean(dim=1)
            terms.append((weights * squares).sum() / scales[name] ** 2)
        return torch.stack(terms).mean()

    return loss


def standard_deviations(cases: Sequence[Case]) -> dict[str, float]:
    """Of every target, about its mean, over all components, times, points and cases."""
    found = {}
    for name in cases[0].targets:
        values = torch.cat([case.targets[name].double().flatten().cpu() for case in cases])
        deviation = float(values.std(correction=0))
        found[name] = deviation if deviation > 0 else 1.0
    return found
