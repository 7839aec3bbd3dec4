"""Flows that repeat themselves: their mean, amplitude and frequency, whatever the phase."""

import math

import numpy as np
import pytest
import torch

import pennpde as penn
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.trust.expected_error import Expected, ExpectedError
from pennpde.trust.swinging import SwingErrors, swing_of

POINTS = torch.linspace(0.0, 1.0, 50).double()
VOLUMES = torch.full((50,), 0.02).double()
TIMES = tuple(0.1 * place for place in range(1, 101))


def travelling(phase: float = 0.0, frequency: float = 0.7, size: float = 0.3, drift: float = 0.0):
    """A mean with a wave that travels; 0.7 per time is no whole number of periods in what is looked at."""
    times = torch.tensor(TIMES).double()
    angle = 2 * math.pi * (2 * POINTS[:, None] - frequency * times) + phase
    first = 1 + POINTS[:, None] + size * torch.cos(angle) + drift * times
    u = torch.stack([first, size * torch.sin(angle)], dim=1)
    return {"u": u, "p": first**2}


def test_the_mean_of_whole_periods_does_not_know_the_phase():
    swings = [swing_of(travelling(phase), TIMES, VOLUMES) for phase in (0.0, 1.0, 2.5)]
    for swing in swings:
        assert swing is not None
        assert swing.frequency == pytest.approx(0.7, rel=2e-3)
        assert torch.allclose(swing.means["u"][:, 0], 1 + POINTS, atol=4e-3)
        assert torch.allclose(swing.means["u"][:, 1], torch.zeros(50).double(), atol=4e-3)
        assert swing.amplitudes["u"] == pytest.approx(0.3, rel=5e-3)  # cosine and sine of the same size


def test_two_swings_differ_by_amplitude_and_frequency_and_not_by_phase():
    one, shifted = swing_of(travelling(), TIMES, VOLUMES), swing_of(travelling(2.0), TIMES, VOLUMES)
    other = swing_of(travelling(1.0, frequency=0.77, size=0.33), TIMES, VOLUMES)
    assert one is not None
    assert shifted is not None
    assert other is not None
    near, far = SwingErrors.between(one, shifted), SwingErrors.between(other, one)
    assert near.frequency < 3e-3
    assert max(near.amplitudes.values()) < 0.01
    assert far.frequency == pytest.approx(0.1, abs=5e-3)
    assert far.amplitudes["u"] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        (travelling(size=1e-3), TIMES),
        (travelling(size=0.02, drift=0.5), TIMES),
        (travelling(frequency=0.05), TIMES),
        ({name: each[..., :8] for name, each in travelling().items()}, TIMES[:8]),
    ],
    ids=["it hardly moves", "it is on its way", "less than a period", "few times"],
)
def test_what_does_not_repeat_itself_is_no_swing(fields, times):
    assert swing_of(fields, times, VOLUMES) is None


def test_a_swing_is_graded_by_its_mean_its_amplitude_and_its_frequency():
    errors = {"u": ExpectedError(0.01, 0.03), "p": ExpectedError(0.02, 0.05)}

    def grade(amplitude: float, frequency: float) -> str:
        return Expected(errors, swing=SwingErrors({"u": amplitude, "p": 0.9}, frequency)).grade

    assert grade(0.05, 0.01) == "good"
    assert grade(0.15, 0.01) == "fair"
    assert grade(0.05, 0.3) == "poor"
    told = "\n".join(Expected(errors, swing=SwingErrors({"u": 0.05, "p": 0.1}, 0.01)).lines())
    assert "expected error of the mean u" in told
    assert "frequency 1 %" in told


@pytest.mark.slow  # half a minute
def test_a_wake_is_judged_by_its_mean_and_no_time_of_it_is_left_out():
    xs, ys = (np.linspace(0.0, length, number) for length, number in ((11.0, 56), (4.0, 21)))
    inside = [(i, j) for i in range(55) for j in range(20) if not (10 <= i < 15 and 8 <= j < 13)]
    quads = [[21 * i + j, 21 * i + j + 21, 21 * i + j + 22, 21 * i + j + 1] for i, j in inside]
    points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    used = np.unique(quads)
    mesh = Mesh.from_arrays(points[used], {"quad": np.searchsorted(used, quads)})
    mesh = mesh.with_patches({"inlet": "x == 0", "outlet": "x == 11", "walls": "x > 0 and x < 11"})
    y = points[used, 1]
    profile = torch.from_numpy(np.stack([1.5 * y * (1 - y / 4), 0 * y], axis=1))
    held = {"u": {"inlet": profile, "walls": 0.0}, "p": {"outlet": 0.0}}
    case = Case(mesh, initial={"u": (0.0, 0.0), "p": 0.0}, dirichlet=held, parameters={"viscosity": 1 / 150})
    outcome = penn.predict("flow", case, times=[40 + 0.5 * place for place in range(81)])
    assert outcome.expected.swing is not None
    assert outcome.expected.errors["u"].expected < max(each.errors["u"].expected for each in outcome.expected_by_time)
    assert outcome.usable() == (outcome, ())
