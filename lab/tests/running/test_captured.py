"""Steps that a GPU captures: the same training as step by step, and none that looks at the host."""

import threading
import time
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pennlab.captured import CapturedSteps
from pennlab.paper.flow_as_written import flow_as_written
from pennlab.released.advection_diffusion import ReleasedAdvectionDiffusion
from pennlab.side_by_side import Turns
from pennpde.case import Case
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.ducts import flow_network
from pennpde.train import Settings
from pennpde.train.steps import Steps, scaled_squared_error
from problems import heated_plate

CPU = torch.device("cpu")


def flows() -> list[Case]:
    made = []
    for name in ("a_0.50", "b_0.30_0.70", "c_0.20_1.00"):
        case = flow_case(coarse_mesh(name, cells_per_length=4), name)
        made.append(flow_case(case.mesh, name, {"u": 2 * case.initial["u"], "p": case.mesh.points[:, 0]}))
    return made


def plates() -> list[Case]:
    """On one mesh, as those of the dataset."""
    first = heated_plate()
    made = []
    for speed, diffusivity in ((0.5, 0.2), (0.1, 0.9), (0.8, 0.4), (0.3, 0.3)):
        case = heated_plate((speed, 0.0), diffusivity)
        features = {"inlet_distance": first.mesh.points[:, 0]}
        targets = {"T": first.mesh.points[:, :1].expand(-1, 4) * speed}
        made.append(replace(case, mesh=first.mesh, features=features, targets=targets))
    return made


def networks() -> dict[str, tuple[nn.Module, list[Case]]]:
    torch.manual_seed(0)
    small = {"width": 4, "iterations": 2, "pressure_iterations": 2}
    return {
        "ducts": (flow_network(**small), flows()),
        "as written": (flow_as_written(**small), flows()),
        "transport": (advection_diffusion_network(8, 2, 4), plates()),
        "released": (ReleasedAdvectionDiffusion(8, iterations=2, hidden=4), plates()),
    }


def losses_of(kind: type[Steps], name: str, steps: int = 3) -> list[float]:
    model, cases = networks()[name]
    model = model.double()
    settings = Settings(batch_size=2, learning_rate=1e-3, scales=dict.fromkeys(cases[0].targets, 1.0))
    made = kind.of(model, cases, CPU, scaled_squared_error(settings.scales or {}), settings)
    assert kind is Steps or made.is_stack
    chosen = torch.tensor([[0, 1], [2, 0], [1, 2]][:steps])
    found = made.run(0, chosen, [1e-3] * steps)
    return [*found, *(value for values in made.errors([0, 1, 2]).values() for value in values)]


@pytest.mark.parametrize("name", ["ducts", "as written", "transport", "released"])
def test_steps_and_errors_are_those_of_the_library(name):
    assert losses_of(CapturedSteps, name) == pytest.approx(losses_of(Steps, name), rel=1e-6)


class NothingAsked(TorchDispatchMode):
    """Refuses what makes the host wait for a GPU, which a capture refuses."""

    WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "lift_fresh", "linalg_svd", "unique", "aten.equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        by_mask = name.startswith("aten.index.Tensor") and any(
            each.dtype == torch.bool for each in args[1] if each is not None
        )
        assert not by_mask, "values are picked by a mask"
        assert not any(each in name for each in self.WAITS), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["ducts", "as written", "transport"])
def test_nothing_in_a_step_or_a_test_asks_the_device(name):
    model, cases = networks()[name]
    settings = Settings(batch_size=2, scales=dict.fromkeys(cases[0].targets, 1.0))
    steps = CapturedSteps.of(model, cases, CPU, scaled_squared_error(settings.scales or {}), settings)
    steps.run(0, torch.tensor([[0, 1]]), [1e-3])
    with NothingAsked():
        steps._learn(None)
        with torch.no_grad():
            steps._errors_of(steps._chosen)


def test_turns_are_taken_one_at_a_time_and_in_order():
    turns, inside, order, clashes = Turns(), [], [], []

    def work(number: int) -> None:
        turns.take()
        for _ in range(3):
            inside.append(number)
            clashes.extend(inside[:-1])
            order.append(number)
            time.sleep(0.002)
            inside.remove(number)
            turns.give_way()
        turns.leave()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
        time.sleep(0.0005)
    for thread in threads:
        thread.join(10)
    assert not clashes
    assert len(order) == 9
    turns.take()  # free again
    turns.leave()
