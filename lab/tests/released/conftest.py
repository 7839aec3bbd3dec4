"""The authors' samples, as cases with their expected fields."""

from pathlib import Path

import pytest

from pennlab.paper.samples import Sample, read_sample
from released_networks import AD_SAMPLES


@pytest.fixture(scope="session")
def flow_sample(reference: Path) -> Sample:
    return read_sample(reference / "samples" / "flow_a1_1.00.npz")


@pytest.fixture(scope="session")
def ad_samples(reference: Path) -> dict[str, Sample]:
    files = {name: reference / "samples" / f"advection_diffusion_{name}.npz" for name in AD_SAMPLES}
    return {name: read_sample(file) for name, file in files.items()}
