"""Networks that know how wrong they are, without having been measured: for tests of what follows from it."""

from pathlib import Path

import numpy as np

from pennpde.checkpoints import read_config
from pennpde.trust import expected_error
from pennpde.trust.calibration import Calibration, Sample, fit


def made_up(level: float, unknowns: tuple[str, ...] = ("u", "p"), spread: float = 0.1) -> Calibration:
    """A calibration by which every prediction at t = 4 is wrong by about `level`."""
    random = np.random.default_rng(0)
    samples = [
        Sample(
            f"{number}",
            f"family {number % 16}",
            {"time": 0.8 + 0.01 * random.standard_normal()},
            {name: float(level * np.exp(spread * random.standard_normal())) for name in unknowns},
        )
        for number in range(80)
    ]
    return fit(samples, {"time": False})


def calibrate(folder: Path, level: float, unknowns: tuple[str, ...] = ("u", "p")) -> Path:
    """Write such a calibration next to the weights of a stored network."""
    about = {"weights_sha256": read_config(folder).weights_sha256}
    return expected_error.write(folder, made_up(level, unknowns), about)


WORSE = {"residual": True, "kind": False, "idle": False}
TRUE_SLOPE, NOISE, OF_FAMILY = 0.8, 0.25, 0.25


def drawn(families: int, each: int, seed: int = 0) -> list[Sample]:
    """Errors that grow with a residual, with a scatter of every case and of every family."""
    random = np.random.default_rng(seed)
    samples = []
    for family in range(families):
        own, kind = OF_FAMILY * random.standard_normal(), 0.5 * random.standard_normal()
        for number in range(each):
            residual = random.standard_normal()
            clues = {
                "residual": residual,
                "kind": kind + 0.1 * random.standard_normal(),
                "idle": random.standard_normal(),
            }
            logarithm = np.log(0.05) + TRUE_SLOPE * residual + own + NOISE * random.standard_normal()
            samples.append(Sample(f"{family}-{number}", f"family {family}", clues, {"u": float(np.exp(logarithm))}))
    return samples
