"""Training steps and validation: losses, their gradients, and Adam and SOAP on them.

A step whose gradient is not finite changes nothing instead of raising. SOAP (Vyas et al. 2024) is Adam in the
eigenbasis of Shampoo's preconditioner: for each matrix of the network it follows the second moments G G^T and G^T G,
turns the gradient into their eigenvectors, where the entries are nearly uncorrelated, and lets Adam scale them there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pennpde import registry
from pennpde.case import Case
from pennpde.metrics import rank_of, squared_error
from pennpde.train.cases import Batches, at_once
from pennpde.train.settings import Settings

_EPSILON = 1e-8
_SMALL = 128
"""Rows or columns of a matrix whose eigenvectors can be followed every few steps."""

# Losses

Loss = Callable[[nn.Module, Case, Tensor], Tensor]
"""loss(model, case, weights): what to make small for a batch; `weights` make a sum over points a mean over cases."""

_JUDGES = 20
"""So many cases tell how wrong a network is at the start."""
_LOSSES: dict[str, Loss | None] = {"squared error": None}
"""By the name that rows of experiments give."""


def register_loss(name: str, loss: Loss) -> None:
    """Give a loss a name that rows of experiments may ask for."""
    _LOSSES[name] = loss


def loss_of(name: str) -> Loss | None:
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


# Steps


class Steps:
    """Trains a network step by step."""

    def __init__(self, model: nn.Module, batches: Batches, loss: Loss, settings: Settings, targets: Sequence[str]):
        self.model, self.batches, self.loss, self.clip = model, batches, loss, settings.clip
        self.targets = tuple(targets)
        self.together = at_once(model, settings.batch_size)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if not parameters:
            raise ValueError(f"{type(model).__name__} has no parameter that could be trained.")
        self.gradient = _one_gradient(parameters)
        self.optimizer = (
            Adam(parameters, settings.betas)
            if settings.optimizer == "adam"
            else Soap(parameters, self.gradient, settings.betas)
        )

    @classmethod
    def of(cls, model: nn.Module, cases: Sequence[Case], device: torch.device, loss: Loss, settings: Settings) -> Self:
        """Steps on these cases, the network being on the device already."""
        return cls(model, Batches.of(model, cases, device), loss, settings, tuple(cases[0].targets))

    def run(self, first: int, chosen: Int[Tensor, "steps batch"], rates: Sequence[float]) -> list[float]:
        """Take some steps from number `first` on; returns their losses."""
        self.model.train()
        losses = []
        for step, (row, rate) in enumerate(zip(chosen, rates, strict=True), first):
            losses.append(self._gradients(row))
            self._update(rate)
            if self.optimizer.refresh_every and (step + 1) % self.optimizer.refresh_every == 0:
                self.optimizer.refresh()
        return torch.stack(losses).double().tolist()  # waits for the device once, at the end

    @torch.no_grad()
    def errors(self, numbers: Sequence[int]) -> dict[str, list[float]]:
        """The mean squared error of each target, case by case, in physical units as in the paper's tables."""
        self.model.eval()
        found = [self._errors_of(row) for row in torch.tensor(numbers).split(self.together)]
        self.model.train()
        return dict(zip(self.targets, torch.cat(found, dim=1).double().tolist(), strict=True))

    def weights(self) -> dict[str, Tensor]:
        """A copy of the network's weights and buffers."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.model.state_dict().items():
            tensor.copy_(weights[name])

    def load_optimizer(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self.optimizer.tensors().items():
            tensor.copy_(tensors[name])

    def _gradients(self, row: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        losses = [self._gradient(part) for part in row.split(self.together)]
        if len(losses) == 1:
            return losses[0]
        self.gradient.div_(len(losses))
        return torch.stack(losses).mean()

    def _gradient(self, row: Int[Tensor, " batch"]) -> Float[Tensor, ""]:
        case, weights = self.batches.draw(row)
        loss = self.loss(self.model, case, weights)
        loss.backward()
        return loss.detach()

    def _update(self, rate: float) -> None:
        if self.clip is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
        # A sum is not finite where any of its terms is not: then the whole gradient is left out.
        finite = torch.isfinite(self.gradient.sum())
        self.gradient.copy_(torch.where(finite, self.gradient, 0.0))
        self.optimizer.step(rate)
        self.gradient.zero_()

    def _errors_of(self, row: Int[Tensor, " batch"]) -> Float[Tensor, "targets batch"]:
        case, weights = self.batches.draw(row)
        fields = self.model(case)
        pairs = ((name, fields[name], case.targets[name]) for name in self.targets)
        at_points = (squared_error(found, target, rank_of(name, case)) for name, found, target in pairs)
        return torch.stack([case.sum(weights * errors) for errors in at_points]) * len(case.sizes)


def _one_gradient(parameters: Sequence[nn.Parameter]) -> Float[Tensor, " numbers"]:
    """One vector whose parts are the parameters' gradients: it is clipped, exchanged and reset in one operation."""
    first = parameters[0]
    if other := next((each for each in parameters if (each.dtype, each.device) != (first.dtype, first.device)), None):
        raise ValueError(
            f"The network has parameters in {first.dtype} on {first.device} and in {other.dtype} on {other.device}; "
            "training takes one precision on one device."
        )
    whole = first.new_zeros(sum(each.numel() for each in parameters))
    for parameter, part in zip(parameters, whole.split([each.numel() for each in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)
    return whole


# Optimizers; all their state lies in tensors that are changed in place


class Adam:
    """PyTorch's fused Adam."""

    refresh_every = 0

    def __init__(self, parameters: Sequence[nn.Parameter], betas: tuple[float, float]):
        self.parameters = parameters
        self.optimizer = torch.optim.Adam(parameters, lr=0.0, betas=betas, fused=True)
        # The moments exist from the start, so that loading and resetting them is always a copy in place.
        self.optimizer.step()
        self.reset()

    def step(self, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()

    def refresh(self) -> None:
        """There is nothing to refresh."""

    def reset(self) -> None:
        for tensor in self.tensors().values():
            tensor.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """All state."""
        return {
            f"{number}.{name}": tensor.detach()
            for number, parameter in enumerate(self.parameters)
            for name, tensor in self.optimizer.state[parameter].items()
        }


class Soap:
    """SOAP, all matrices of the network side by side in one batch: a step is a handful of batched products.

    Args:
        parameters: Of the network; what has no second axis is scaled as by Adam.
        gradient: The flat vector whose parts are the parameters' gradients.
        betas: Of momentum and second moments.
        memory: Of the preconditioner, a share a step.
        refresh_every: Steps between two turns of the eigenvectors; None: more for large matrices, of which a
            factorisation takes long.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        gradient: Float[Tensor, " numbers"],
        betas: tuple[float, float],
        memory: float = 0.95,
        refresh_every: int | None = None,
    ):
        self.parameters, self.gradient, self.betas, self.memory = list(parameters), gradient, betas, memory
        shapes = [(each.shape[0], each[0].numel()) if each.ndim > 1 else (each.numel(), 1) for each in parameters]
        self.height, self.width = (max(shape[axis] for shape in shapes) for axis in (0, 1))
        largest = max(self.height, self.width)
        self.refresh_every = refresh_every or (10 if largest <= _SMALL else largest // 4)
        places = []
        for number, (rows, columns) in enumerate(shapes):
            at = torch.arange(rows)[:, None] * self.width + torch.arange(columns)
            places.append((number * self.height * self.width + at).flatten())
        device, dtype = gradient.device, gradient.dtype
        self.places = torch.cat(places).to(device)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(len(shapes), *shape, device=device, dtype=dtype)

        self.count = torch.zeros((), device=device)
        self.momentum, self.second = zeros(self.height, self.width), zeros(self.height, self.width)
        self.left, self.left_vectors = zeros(self.height, self.height), zeros(self.height, self.height)
        self.right, self.right_vectors = zeros(self.width, self.width), zeros(self.width, self.width)
        # A single row or column has nothing to be turned into: its basis stays as it is.
        self.turns = torch.tensor([min(shape) > 1 for shape in shapes], device=device).to(dtype)[:, None, None]
        self.reset()

    def step(self, rate: float | Tensor) -> None:
        first, second = self.betas
        matrices = torch.zeros_like(self.momentum)
        matrices.view(-1).index_copy_(0, self.places, self.gradient)
        turned = self.left_vectors.mT @ matrices @ self.right_vectors
        self.count.add_(1)
        self.momentum.lerp_(matrices, 1 - first)
        self.second.lerp_(turned.square(), 1 - second)
        momentum = self.left_vectors.mT @ self.momentum @ self.right_vectors / (1 - first**self.count)
        change = momentum / ((self.second / (1 - second**self.count)).sqrt() + _EPSILON)
        change = (self.left_vectors @ change @ self.right_vectors.mT).view(-1).index_select(0, self.places) * -rate
        sizes = [each.numel() for each in self.parameters]
        for parameter, part in zip(self.parameters, change.split(sizes), strict=True):
            parameter.data.add_(part.view_as(parameter))
        self.left.lerp_(self.turns * matrices @ matrices.mT, 1 - self.memory)
        self.right.lerp_(self.turns * matrices.mT @ matrices, 1 - self.memory)

    def refresh(self) -> None:
        """One step of orthogonal iteration towards the eigenvectors."""
        for moments, vectors in ((self.left, self.left_vectors), (self.right, self.right_vectors)):
            size = moments.diagonal(dim1=1, dim2=2).mean(dim=1)[:, None, None]
            # The identity keeps what the matrix does not reach, the filled-up rows above all, in its place.
            ground = 1e-6 * size + 1e-30
            turned, upper = torch.linalg.qr(moments @ vectors / ground + vectors)
            signs = upper.diagonal(dim1=1, dim2=2).sign()
            vectors.copy_(turned * torch.where(signs == 0, 1.0, signs)[:, None, :])

    def reset(self) -> None:
        for tensor in self.tensors().values():
            tensor.zero_()
        for vectors in (self.left_vectors, self.right_vectors):
            vectors.diagonal(dim1=1, dim2=2).fill_(1.0)

    def tensors(self) -> dict[str, Tensor]:
        names = ("count", "momentum", "second", "left", "left_vectors", "right", "right_vectors")
        return {name: getattr(self, name) for name in names}
