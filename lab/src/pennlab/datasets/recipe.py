"""How the cases of a dataset are made: what a generation asks of a recipe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from pennpde.case import Case

SINGLE = 24
"""Significant bits of single precision."""


class OtherRunsError(ValueError):
    """Stored results of the solver were computed with other settings."""


class MissingProgramError(RuntimeError):
    """A program that every case needs is not installed."""


class HopelessError(RuntimeError):
    """A case cannot be made, and another attempt would end alike; `log_tail` holds the last lines of the solver."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


@dataclass(frozen=True)
class Product:
    """A generated case: the content of its file and its entry in the manifest."""

    name: str
    content: bytes
    facts: Mapping[str, Any]


Report = Callable[[float], None]
"""Progress callback: the completed share of a task, from 0 to 1."""


class Recipe(ABC):
    """How a dataset is generated. Recipes are sent to other machines, so they contain only numbers and names."""

    dataset: ClassVar[str]
    most_attempts: ClassVar[int] = 3
    """After which a case is given up: a solver may fail for reasons that pass."""
    packed: ClassVar[bool] = True
    """Whether cases go into shards at the end; in a shard all have the same times."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All settings that determine the content of the files, as JSON values; a run with others cannot resume."""

    @abstractmethod
    def splits(self) -> dict[str, list[str]]:
        """The names of all cases, by split."""

    @abstractmethod
    def check(self, name: str) -> None:
        """Refuse a name that no case can have, with a ValueError."""

    @abstractmethod
    def tasks(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """These cases, in groups that are made together."""

    @abstractmethod
    def make(self, names: Sequence[str], report: Report) -> Iterator[Product]:
        """Make the cases of one task, on whatever machine this runs."""

    def known_failures(self) -> Mapping[str, Mapping[str, Any]]:
        """Cases that were tried before and cannot be made, with what the manifest says of them; they are left out."""
        return {}

    def check_solver(self, names: Sequence[str]) -> None:  # noqa: B027
        """Refuse to start where these cases need a solver that is not installed here."""


def rounded(case: Case, significant_bits: int) -> Case:
    """The case with fields of fewer significant bits, which packs them smaller: 11 are those of 16-bit floats."""
    parts = {part: getattr(case, part) for part in ("initial", "features", "targets")}
    return replace(
        case,
        **{
            part: {name: _rounded(each, significant_bits) for name, each in fields.items()}
            for part, fields in parts.items()
        },
    )


def _rounded(values: Tensor, significant_bits: int) -> Tensor:
    dropped = SINGLE - significant_bits
    if dropped == 0 or not bool(values.isfinite().all()):  # others are refused when the case is written
        return values
    bits = values.detach().cpu().numpy().astype(np.float32).view(np.uint32)
    kept = (bits + np.uint32(1 << (dropped - 1))) & np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return torch.from_numpy(kept.view(np.float32)).to(values)
