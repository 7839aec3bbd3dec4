"""Numbers that the paper prints, and that the authors' networks have."""

import pytest

from pennlab.released.weights import ReleasedAdvectionDiffusion, ReleasedFlow, ReleasedGradient


def parameters(network) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("width", "count"), [(16, 8432), (8, 2100), (4, 596)])
@pytest.mark.parametrize("iterations", [4, 8])
def test_the_flow_networks_have_the_paper_s_number_of_parameters(width: int, count: int, iterations: int):
    # Table 2. Iterations share their weights, so their number does not count.
    assert parameters(ReleasedFlow(width, iterations=iterations)) == count


def test_the_flow_ablations_have_their_number_of_parameters():
    counts = {kind: parameters(ReleasedFlow(16, kind)) for kind in "ABCDEFG"}
    assert counts == {"A": 7897, "B": 8594, "C": 8432, "D": 8432, "E": 8642, "F": 8594, "G": 8594}


def test_the_advection_diffusion_networks_have_their_number_of_parameters():
    assert parameters(ReleasedAdvectionDiffusion()) == 51824
    counts = {kind: parameters(ReleasedAdvectionDiffusion(kind=kind)) for kind in "ABCDEFG"}
    assert counts == {"A": 46738, "B": 52881, "C": 51824, "D": 51824, "E": 52913, "F": 52881, "G": 52881}


def test_the_gradient_networks_have_their_number_of_parameters():
    assert parameters(ReleasedGradient("neumannisogcn")) == 681
    assert parameters(ReleasedGradient("isogcn")) == 674
