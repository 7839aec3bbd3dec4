"""Random rotations and reflections of the plane and of space."""

import torch


def random_orthogonal(space: int, seed: int, *, reflection: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    motion = torch.linalg.qr(torch.randn(space, space, generator=generator, dtype=torch.float64)).Q
    if (torch.linalg.det(motion) < 0) != reflection:
        motion[:, 0] *= -1
    return motion


def turned(values: torch.Tensor, motion: torch.Tensor, rank: int) -> torch.Tensor:
    """A field after the motion: its first `rank` axes behind the points are axes of space."""
    for axis in range(1, rank + 1):
        values = torch.movedim(torch.movedim(values, axis, -1) @ motion.T, -1, axis)
    return values
