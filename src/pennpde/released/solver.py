"""The authors' neural nonlinear solver: Barzilai–Borwein on the residual R(h) = h - h0 - change(h).

    h <- h - alpha R(h),   alpha = |<dh, dR> / (<dR, dR> + 1e-5)|, 1 at first; one for each unknown, over all points

Unlike in the paper the Dirichlet layer does not act on the updated state: it is inside `change`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class ReleasedSolver:
    """The authors' Barzilai–Borwein iteration.

    It stops early where the state hardly moves or, by `divergence`, moves too far, each relative to the state. In a
    batch every case has a step size of its own, as in the authors' predictions; in their training all cases of a batch
    share one.
    """

    iterations: int
    divergence: float

    def __call__(self, residual: Callable[[State], State], start: State, sizes: tuple[int, ...]) -> State:
        """Follow the residual from `start`, with one step size for each case (`sizes` points) and unknown."""
        cases = _Cases(sizes)
        state, steps = dict(start), dict[str, Any]()
        previous: State = {}
        active: Any = True
        for iteration in range(self.iterations):
            current = residual(state)
            moved: Any = 0.0
            for name, values in state.items():
                now = current[name]
                if iteration == 0:
                    # The authors evaluate the residual twice at the start; equal states and residuals give a step of 1.
                    steps[name] = cases.ones(now)
                else:
                    steps[name] = active * _step_size(steps[name], previous[name], now, cases)
                moved = moved + steps[name] * cases.norm(now) / (cases.norm(values) + 1e-5)
                state[name] = cases.step(values, now, steps[name])
            previous = current
            active = (moved >= 1e-5) & (moved <= self.divergence) & active
            if not _any(active):
                break
        return state


def _step_size(last_step: Any, previous: Tensor, current: Tensor, cases: _Cases) -> Any:
    """|<dh, dR> / (<dR, dR> + 1e-5)| with dh = -last_step * previous residual, which need not be stored."""
    change = current - previous
    below = cases.dot(change, change)
    step = abs(last_step * cases.dot(previous, change) / (below + 1e-5))
    # Where nothing changed by more than 1e-8 anywhere, the authors take a full step. So small a change has a tiny sum
    # of squares, which is known already; only then is the largest change worth looking for.
    still = below <= 1e-16 * change.numel()
    if _any(still):
        still = still & (cases.largest(change) <= 1e-8) & (last_step * cases.largest(previous) <= 1e-8)
        step = step + still * (1.0 - step)
    return step


@dataclass(frozen=True)
class _Cases:
    """Numbers of each case of a batch (of all points together, without sizes) from fields [*space, points, channels].

    They are tensors [cases], and for a single case without gradients plain numbers: PyTorch handles a thousand points
    in the time that it takes for a tensor of one.
    """

    sizes: tuple[int, ...]

    def dot(self, a: Tensor, b: Tensor) -> Any:
        if len(self.sizes) < 2:
            return self._number(torch.dot(a.reshape(-1), b.reshape(-1)))
        return torch.stack([part.sum() for part in (a * b).split(self.sizes, dim=-2)])

    def norm(self, values: Tensor) -> Any:
        return self.dot(values.detach(), values.detach()) ** 0.5

    def largest(self, values: Tensor) -> Any:
        if len(self.sizes) < 2:
            return self._number(values.detach().abs().amax())
        return torch.stack([part.detach().abs().amax() for part in values.split(self.sizes, dim=-2)])

    def ones(self, like: Tensor) -> Any:
        return self._number(like.new_ones(())) if len(self.sizes) < 2 else like.new_ones(len(self.sizes))

    def step(self, values: Tensor, direction: Tensor, sizes: Any) -> Tensor:
        """The state after a step of this size in each case."""
        if not isinstance(sizes, Tensor):
            return torch.sub(values, direction, alpha=sizes)
        if len(self.sizes) > 1:
            counts = torch.tensor(self.sizes, device=values.device)
            sizes = sizes.repeat_interleave(counts, output_size=values.shape[-2])
        return torch.addcmul(values, direction, sizes[:, None], value=-1)

    @staticmethod
    def _number(value: Tensor) -> Any:
        return value.reshape(1) if torch.is_grad_enabled() else value.item()


def _any(condition: bool | Tensor) -> bool:
    return condition if isinstance(condition, bool) else bool(condition.any())
