"""A network for any time without training: the fluid starts at rest and settles, which is easy to check."""

from collections.abc import Sequence

import torch
from torch import nn

from pennpde.case import Case
from pennpde.models.ducts import Flow
from pennpde.penn import Predictor
from pennpde.penn.predictor import Prediction


class AnyTime(Predictor):
    """u = (1 - exp(-t)) (y, 0) and p = -(1 - exp(-t)) x, in the network's units."""

    takes_times = True

    def __init__(self) -> None:
        super().__init__()
        self.equation = Flow(width=2)
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.asked: list[tuple[float, ...] | None] = []

    @property
    def output_times(self) -> tuple[float, ...]:
        return (4.0,)

    @property
    def fulfils_dirichlet(self) -> bool:
        return False

    def solve(self, case: Case, times: Sequence[float] | None = None) -> Prediction:
        self.asked.append(None if times is None else tuple(times))
        share = 1 - torch.exp(-torch.tensor(times or self.output_times, dtype=torch.float64))
        x, y = case.mesh.points[:, 0], case.mesh.points[:, 1]
        fields = {"u": torch.stack([y, 0 * y], dim=1)[..., None] * share, "p": -x[:, None] * share}
        if len(share) == 1:
            fields = {name: values[..., 0] for name, values in fields.items()}
        return Prediction(fields, (), {})
