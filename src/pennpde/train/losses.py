"""Loss functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennpde import registry
from pennpde.case import Case

Loss = Callable[[nn.Module, Case, Tensor], Tensor]
"""loss(model, case, weights): what to make small for a batch; `weights` make a sum over points a mean over cases."""

_JUDGES = 20
"""So many cases tell how wrong a network is at the start."""


def register(name: str, loss: Loss) -> None:
    """Give a loss a name that rows of experiments may ask for."""
    _LOSSES[name] = loss


def named(name: str) -> Loss | None:
    """The loss of this name; None for the scaled squared error, which `fit` takes by itself."""
    if name not in _LOSSES:
        registry.load_installed()
    if name not in _LOSSES:
        raise ValueError(f"There is no loss {name!r}; there are {', '.join(map(repr, _LOSSES))}.")
    return _LOSSES[name]


def scaled_squared_error(scales: Mapping[str, float]) -> Loss:
    """The mean over the targets of the mean squared error over the square of the target's scale.

    Every case counts with its own mean: one on a fine mesh does not count for more.
    """

    def loss(model: nn.Module, case: Case, weights: Tensor) -> Tensor:
        terms = [
            (weights * _mean_square(found - target)).sum() / scales[name] ** 2
            for name, found, target in _predicted(model, case)
        ]
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


def errors_of_start(model: nn.Module, cases: Sequence[Case]) -> dict[str, float]:
    """Root mean square errors of a trained network, as scales of its loss.

    Divided by them, each unknown counts by how much better it becomes. Divided by the standard deviations of the
    fields, the unknown with the largest relative error, usually a pressure, would be all that training sees. A start
    that is of no use says nothing: scales are never larger than the standard deviations.
    """
    chosen = cases[:: max(1, len(cases) // _JUDGES)]
    deviations = standard_deviations(chosen)
    sums = dict.fromkeys(deviations, 0.0)
    with torch.no_grad():
        for case in chosen:
            fields = model(case)
            for name, target in case.targets.items():
                sums[name] += float((fields[name] - target).double().square().mean())
    found = {name: (total / len(chosen)) ** 0.5 for name, total in sums.items()}
    return {name: found[name] if 0 < found[name] < deviation else deviation for name, deviation in deviations.items()}


def _predicted(model: nn.Module, case: Case) -> Iterator[tuple[str, Tensor, Tensor]]:
    """By target its name, what the network predicts, and what it should."""
    fields = model(case)
    for name, target in case.targets.items():
        if name not in fields:
            raise KeyError(f"The network gives {sorted(fields)}, but the target is {name!r}.")
        if fields[name].shape != target.shape:
            raise ValueError(
                f"The network's {name!r} has shape {list(fields[name].shape)}, the target {list(target.shape)}."
            )
        yield name, fields[name], target


def _mean_square(values: Float[Tensor, "points *axes"]) -> Float[Tensor, " points"]:
    return values.square().reshape(len(values), -1).mean(dim=1)


_LOSSES: dict[str, Loss | None] = {"squared error": None}
