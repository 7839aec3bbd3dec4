"""Resolution of the solver that computes the reference solutions of a dataset."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """Resolution of the reference solutions.

    Attributes:
        cells: per unit length.
        time_step: of the solver.
    """

    cells: float
    time_step: float
