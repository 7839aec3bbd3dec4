"""Adam and SOAP on one flat gradient; all their state lies in tensors that are changed in place.

SOAP (Vyas et al. 2024) is Adam in the eigenbasis of Shampoo's preconditioner: for each matrix of the network it follows
the second moments G G^T and G^T G, turns the gradient into their eigenvectors, where the entries are nearly
uncorrelated, and lets Adam scale them there.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

_EPSILON = 1e-8
_SMALL = 128
"""Rows or columns of a matrix whose eigenvectors can be followed every few steps."""


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
