"""The scheme of the general flow network on coarser or finer cells than the network takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from pennpde.case import Case
from pennpde.flow.scheme import FlowScheme
from pennpde.penn.predictor import seen_by
from pennpde.prediction import predict


def solved_at_level(case: Case, times: Sequence[float], more: int) -> dict[str, Tensor]:
    """U [points, 2, times] and p [points, times], without the learned part.

    Args:
        case: Its targets are not looked at.
        times: In the units of the case.
        more: How often cells are split beyond what the network does; -1: once less, where it splits them at all.
    """
    problem, usual = replace(case, targets={}), FlowScheme()
    splits = max(0, usual.number_of_splits(seen_by(usual, problem).case) + more)
    fields = predict(FlowScheme(splits=splits), problem, times=times).fields
    return {name: values if len(times) > 1 else values[..., None] for name, values in fields.items()}
