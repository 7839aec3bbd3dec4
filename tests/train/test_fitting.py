"""Training: what it learns, and that the same seed gives the same bits."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from pennpde.data.storage import evenly
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.testing import assert_dirichlet
from pennpde.train import fit
from pennpde.train.cases import Batches
from pennpde.train.steps import scaled_squared_error
from problems import heated_plate
from trainings import TRAIN, VALIDATION, Constant, assert_same_bits, constant_case, network, weights


@torch.no_grad()
def squared_errors(model: nn.Module, cases) -> list[float]:
    return [float((model(case)["T"] - case.targets["T"]).square().mean()) for case in cases]


# Learning


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "soap"])
def test_any_module_that_maps_a_case_to_fields_trains(optimizer):
    options = {"learning_rate": 1e-2, "batch_size": 2, "epochs": 60, "test_every": 5, "optimizer": optimizer}
    result = fit(network(), TRAIN, VALIDATION, **options)
    first, last = result.history[0], result.history[-1]
    assert last["loss"] < 0.05 * first["loss"]
    assert result.best < 0.1 * first["validation"]
    assert (result.ended, result.steps, result.epochs) == ("budget", 180, 60)


@pytest.mark.slow
def test_a_network_of_ours_trains_and_still_fulfils_the_dirichlet_condition():
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=3, hidden=8)
    before = squared_errors(model, TRAIN)
    fit(model, TRAIN, VALIDATION, learning_rate=5e-3, batch_size=3, epochs=10, test_every=5)
    after = squared_errors(model, TRAIN)
    assert sum(after) < 0.7 * sum(before)
    assert_dirichlet(model, TRAIN[0])


def test_the_best_weights_are_left_in_the_network_and_reported_in_physical_units():
    model = network()
    result = fit(model, TRAIN, VALIDATION, learning_rate=3e-2, batch_size=2, epochs=20, test_every=1)
    assert np.mean(squared_errors(model, VALIDATION)) == pytest.approx(result.best_errors["T"], rel=1e-12)
    assert result.best == min(row["validation"] for row in result.history)
    scale = torch.cat([case.targets["T"].flatten() for case in TRAIN]).std(correction=0)
    assert result.best == pytest.approx(result.best_errors["T"] / float(scale) ** 2, rel=1e-12)


def test_without_validation_cases_the_training_loss_decides():
    result = fit(network(), TRAIN, learning_rate=1e-2, batch_size=2, epochs=20, test_every=5)
    assert result.best == min(row["validation"] for row in result.history)
    assert result.best_errors == {}


def test_every_case_counts_the_same_whatever_its_mesh():
    cases = [constant_case(0.0, (2, 2)), constant_case(1.0, (6, 6))]
    model = Constant(0.25)
    case, share = Batches.of(model, cases, torch.device("cpu")).draw(torch.tensor([0, 1]))
    loss = scaled_squared_error({"T": 0.5})(model, case, share)
    assert loss.item() == pytest.approx(0.5 * (0.25**2 + 0.75**2) / 0.5**2, rel=1e-6)


def test_the_same_seed_gives_the_same_bits_and_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(11)
    before = torch.get_rng_state()
    options = {"batch_size": 2, "steps": 7, "deterministic": True}
    models = []
    for _ in range(2):
        model = network(dropout=0.5)
        torch.set_rng_state(before)
        fit(model, TRAIN, VALIDATION, **options)
        assert torch.equal(torch.get_rng_state(), before)
        models.append(weights(model))
    assert_same_bits(*models)


# Refusing


def test_cases_and_networks_that_do_not_fit_are_named():
    class Wrong(Constant):
        def forward(self, case):
            return {"T": super().forward(case)["T"][:, :2]}

    with pytest.raises(ValueError, match="at least one training case"):
        fit(network(), [])
    with pytest.raises(ValueError, match="has no targets"):
        fit(network(), [heated_plate(cells=(2, 2))])
    with pytest.raises(ValueError, match=r"shape \[150, 2\], the target \[150, 4\]"):
        fit(Wrong(), TRAIN, epochs=1)
    with pytest.raises(ValueError, match="no parameter"):
        fit(Constant().requires_grad_(False), TRAIN, epochs=1)


def test_a_budget_in_processor_time_does_not_run_out_while_others_use_the_machine(tmp_path, monkeypatch):

    from pennpde.train import fitting

    worked, clock = [0.0], [0.0]

    def work(*_):  # each step takes the processor a second, and an hour on the clock
        worked[0], clock[0] = worked[0] + 1.0, clock[0] + 3600.0

    class Slow(Constant):
        def forward(self, case):
            work()
            return super().forward(case)

    monkeypatch.setattr(fitting, "time", SimpleNamespace(monotonic=lambda: clock[0], process_time=lambda: worked[0]))
    options = {"batch_size": 1, "processor_minutes": 0.1}
    result = fit(Slow(), [constant_case(1.0)], folder=tmp_path, **options)
    assert (result.ended, result.steps) == ("budget", 6)
    assert result.processor_seconds == 6
    more = fit(Slow(), [constant_case(1.0)], folder=tmp_path, resume=True, **{**options, "processor_minutes": 0.2})
    assert more.processor_seconds == 12, "time before the break counts"


class Seen(Constant):
    """Remembers which cases it is judged by."""

    def __init__(self):
        super().__init__()
        self.judges = []

    def forward(self, case):
        if not self.training:
            self.judges.append(case.name)
        return super().forward(case)


@pytest.mark.parametrize("split", ["validation", "train"])
def test_no_more_cases_judge_than_there_are_judges(split):
    cases = [constant_case(1.0, name=str(number)) for number in range(9)]
    validation = cases if split == "validation" else []

    def judges(most):
        model = Seen()
        options = {"steps": 1, "batch_size": 1, "judge_start": True}
        fit(model, cases, validation, judges=most, **options)
        return sorted(set(model.judges))

    assert judges(3) == ["1", "4", "7"], "evenly over the list"
    assert judges(None) == judges(20) == [case.name for case in cases]


def test_an_even_choice_is_the_same_when_it_is_made_again():
    chosen = evenly(range(602), 24)
    assert len(set(chosen)) == 24
    assert evenly(chosen, 24) == chosen
    gaps = {later - earlier for earlier, later in pairwise(chosen)}
    assert gaps <= {25, 26}
    assert evenly(range(5), 1) == [2]
