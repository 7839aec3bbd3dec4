"""The authors' samples, as cases with their expected fields."""

from pathlib import Path

import pytest

from pennpde.released import weights as released
from released_networks import AD_SAMPLES


@pytest.fixture(scope="session")
def flow_sample(reference: Path) -> released.Sample:
    return released.read_sample(reference / "samples" / "flow_a1_1.00.npz")


@pytest.fixture(scope="session")
def ad_samples(reference: Path) -> dict[str, released.Sample]:
    files = {name: reference / "samples" / f"advection_diffusion_{name}.npz" for name in AD_SAMPLES}
    return {name: released.read_sample(file) for name, file in files.items()}
