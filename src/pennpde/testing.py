"""Assertions about networks, for our tests and users': equivariance, exact Dirichlet conditions; random motions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from pennpde.case import Case
from pennpde.mesh.mesh import turned

Model = Callable[[Case], Mapping[str, Tensor]]
"""Anything that maps a case to fields: an `nn.Module`, a function, a solver."""
LARGEST_SHIFT = 10.0


def assert_equivariant(
    model: Model,
    case: Case,
    *,
    tolerance: float = 1e-10,
    motions: int = 2,
    seed: int = 0,
    ranks: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Assert that moving the case moves the prediction and changes nothing else.

    Random rotations and, as many, rotations with a mirror, each with a translation. Use a model in float64: the
    tolerance of 1e-10 is for round-off there.

    Args:
        model: What to test.
        case: A case it takes.
        tolerance: How much may differ, relative to the largest value of an output.
        motions: Number of rotations, and of reflections.
        seed: Of the random motions.
        ranks: Axes of space of an output: 0 for a scalar, 1 for a vector. By default that of the unknown of the same
            name; an output that is no unknown counts every axis after the points.

    Returns:
        The largest relative deviation of each output.
    """
    random = np.random.default_rng(seed)
    straight = _predict(model, case)
    largest = dict.fromkeys(straight, 0.0)
    for number in range(2 * motions):
        reflect = number >= motions
        rotation, translation = random_motion(case.space, random, "always" if reflect else False)
        moved = _predict(model, case.moved(rotation, translation))
        if moved.keys() != straight.keys():
            raise AssertionError(f"The model gives {sorted(straight)} before the motion and {sorted(moved)} after it.")
        failures = []
        for name, values in straight.items():
            rank = _rank(name, values, case, ranks or {})
            expected = turned(values.double().cpu(), rotation, rank)
            scale = float(expected.abs().amax().clamp_min(torch.finfo(values.dtype).tiny))
            deviation = (moved[name].double().cpu() - expected).abs()
            relative = float(deviation.amax()) / scale
            largest[name] = max(largest[name], relative)
            if not relative <= tolerance:  # so that NaN fails
                point = int(deviation.reshape(len(values), -1).amax(dim=1).nan_to_num(nan=torch.inf).argmax())
                failures.append(
                    f"{name!r} (rank {rank}) deviates by {relative:.2e} of its largest value {scale:.3g}, "
                    f"most at point {point}"
                )
        if failures:
            kind = "a rotation with a mirror" if reflect else "a rotation"
            raise AssertionError(
                f"Not equivariant under {kind} and a translation (tolerance {tolerance:g}): {'; '.join(failures)}. "
                f"The other outputs: { {n: f'{d:.1e}' for n, d in largest.items()} }."
            )
    return largest


def assert_dirichlet(model: Model, case: Case) -> None:
    """Assert that every prescribed value comes out bit for bit, rounded to the precision of the output."""
    fields = _predict(model, case)
    checked = 0
    for name, condition in case.over(getattr(model, "output_times", ())).dirichlet.items():
        if name not in fields or not bool(condition.mask.any()):
            continue
        values = fields[name].cpu()
        mask = condition.mask.cpu()
        prescribed = condition.values.cpu().to(values.dtype)
        # A trailing axis of times: the condition holds at each.
        prescribed = prescribed.reshape(*prescribed.shape, *[1] * (values.ndim - prescribed.ndim)).expand_as(values)
        wrong = mask.reshape(-1, *[1] * (values.ndim - 1)) & (values != prescribed)
        checked += int(mask.sum())
        if bool(wrong.any()):
            place = tuple(wrong.nonzero()[0].tolist())
            raise AssertionError(
                f"{name!r} misses {int(wrong.sum())} of its prescribed values, the largest by "
                f"{float((values - prescribed).abs()[wrong].amax()):.2e}; at {list(place)} it is "
                f"{float(values[place])!r}, prescribed is {float(prescribed[place])!r}."
            )
    if not checked:
        raise AssertionError(
            f"Nothing to check: the outputs {sorted(fields)} have no Dirichlet condition in this case, whose unknowns "
            f"are {sorted(case.dirichlet)}."
        )


def _predict(model: Model, case: Case) -> Mapping[str, Tensor]:
    with torch.no_grad():
        return model(case)


def _rank(name: str, values: Tensor, case: Case, given: Mapping[str, int]) -> int:
    if name in given:
        return given[name]
    return case.initial[name].ndim - 1 if name in case.initial else values.ndim - 1


def random_motion(
    space: int,
    random: np.random.Generator,
    reflections: bool | Literal["always"] = True,
    largest_shift: float = LARGEST_SHIFT,
) -> tuple[Float[Tensor, "space space"], Float[Tensor, " space"]]:
    """An orthogonal matrix, uniform over all rotations (and reflections), and a translation uniform in a cube.

    Args:
        space: 2 or 3.
        random: where the numbers come from.
        reflections: whether half of the matrices reflect, or all of them. With half of them, the matrices are uniform
            over the full group O(n).
        largest_shift: of each coordinate.
    """
    # The Q of a Gaussian matrix is uniform over O(n) once the signs of R's diagonal are taken out of it.
    orthogonal, triangular = np.linalg.qr(random.normal(size=(space, space)))
    orthogonal = orthogonal * np.sign(np.diag(triangular))
    reflects = np.linalg.det(orthogonal) < 0
    if (reflects and not reflections) or (not reflects and reflections == "always"):
        orthogonal[:, 0] *= -1.0
    translation = random.uniform(-largest_shift, largest_shift, space)
    return torch.from_numpy(orthogonal), torch.from_numpy(translation)
