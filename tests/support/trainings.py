"""Small cases and networks to train."""

from dataclasses import replace

import torch
from torch import nn

from problems import heated_plate

EIGHT = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True) for k in range(1, 9)]
TRAIN, VALIDATION = EIGHT[:6], EIGHT[6:]


class PointwiseNetwork(nn.Module):
    """Not one of ours: no solver, no operators, T from the place and the parameters."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))
        self.double()

    def forward(self, case):
        case = case.to(torch.float64)
        distance = case.features["inlet_distance"]
        inputs = [distance, case.parameter("diffusivity", distance).expand_as(distance), torch.ones_like(distance)]
        return {"T": self.network(torch.stack(inputs, dim=1))}


class Constant(nn.Module):
    """One number everywhere: it can be reasoned about."""

    def __init__(self, start: float = 0.0):
        super().__init__()
        self.value = nn.Parameter(torch.tensor(start, dtype=torch.float64))

    def forward(self, case):
        return {"T": self.value.expand(case.number_of_points, 4)}


def constant_case(target: float, cells=(2, 2), name: str = ""):
    case = heated_plate(cells=cells, targets=True)
    return replace(case, targets={"T": torch.full_like(case.targets["T"], target)}, name=name)


def network(seed: int = 0, **options) -> PointwiseNetwork:
    torch.manual_seed(seed)
    return PointwiseNetwork(**options)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name
