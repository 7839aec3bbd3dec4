"""Steps that are captured or compiled have the bits of eager ones."""

import logging

import pytest
import torch

from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.train import fit, steps
from replaying import Replayed
from trainings import TRAIN, VALIDATION, network


@pytest.mark.slow
def test_steps_and_tests_out_of_fixed_tensors_have_the_bits_of_eager_ones(monkeypatch):
    def run(**options):
        torch.manual_seed(0)
        model = advection_diffusion_network(width=4, iterations=3, hidden=8)
        return fit(model, TRAIN, VALIDATION, batch_size=2, epochs=4, test_every=1, check_every=5, **options)

    eager = run()
    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", Replayed)
    captured = run(compiled=False)
    assert captured.description.startswith("captured on cpu")
    for one, other in zip(captured.history, eager.history, strict=True):
        assert {name: one[name] for name in one if name != "seconds"} == {
            name: pytest.approx(other[name], rel=1e-6) for name in other if name != "seconds"
        }
    for name, tensor in captured.model.state_dict().items():
        torch.testing.assert_close(tensor, eager.model.state_dict()[name])


def test_where_capturing_fails_training_goes_on_eagerly_and_says_why(monkeypatch, caplog):
    def refuse(work, begin):
        work()  # whatever it did by then must not show
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", refuse)
    models = [network(), network()]
    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(models[0], TRAIN, VALIDATION, batch_size=2, steps=5)
    assert result.description.startswith("eager")
    assert "steps could not be captured: RuntimeError: operation not permitted" in caplog.text
    monkeypatch.undo()
    fit(models[1], TRAIN, VALIDATION, batch_size=2, steps=5)
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch's own tracing reads it
def test_methods_that_a_network_names_are_compiled_while_it_trains_and_as_before_afterwards(monkeypatch, caplog):
    compiled, compile_for_real = [], torch.compile

    def compile_eagerly(function, **options):  # no compiler of C++ or CUDA is needed
        compiled.append(options)
        return compile_for_real(function, backend="eager", **options)

    monkeypatch.setattr(steps, "can_capture", lambda device: True)
    monkeypatch.setattr(steps, "capture", Replayed)
    monkeypatch.setattr(torch, "compile", compile_eagerly)
    torch.manual_seed(0)
    model = advection_diffusion_network(width=4, iterations=3, hidden=8)
    with caplog.at_level(logging.INFO, "pennpde"):
        result = fit(model, TRAIN, VALIDATION, batch_size=2, epochs=1)
    assert result.description.startswith("captured, compiled"), caplog.messages
    assert compiled == [{"dynamic": False, "fullgraph": True}]
    assert "iterate" not in vars(model)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_step_gives_the_loss_curve_of_an_eager_one(compiled, caplog):
    def run(captured):
        torch.manual_seed(0)
        model = advection_diffusion_network(width=4, iterations=3, hidden=8)
        options = {"batch_size": 2, "epochs": 4, "test_every": 1, "check_every": 5, "device": "cuda"}
        return fit(model, TRAIN, VALIDATION, captured=captured, compiled=compiled and captured, **options)

    with caplog.at_level(logging.INFO, "pennpde"):
        captured = run(True)
    eager = run(False)
    assert captured.description.startswith("captured, compiled" if compiled else "captured on"), caplog.messages
    for one, other in zip(captured.history, eager.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)  # float32, amplified by the solver
        assert one["validation"] == pytest.approx(other["validation"], rel=1e-3)
