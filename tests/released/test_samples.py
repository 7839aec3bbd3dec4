"""The released samples as cases."""

import pytest

from pennpde.released import weights as released


def test_a_sample_is_a_case_with_its_targets(flow_sample: released.Sample, ad_samples: dict[str, released.Sample]):
    case = flow_sample.case
    assert (flow_sample.name, flow_sample.problem) == ("flow_a1_1.00", "flow")
    assert case.number_of_points == 4648
    assert case.targets["u"].shape == (4648, 3)
    assert float(case.initial["p"].abs().max()) == 0.0
    # Inlet and wall together are the points with a prescribed velocity; the outlet has its pressure prescribed.
    sizes = {name: len(patch.points) for name, patch in case.mesh.patches.items()}
    assert sizes == {"inlet": 46, "wall": 266, "outlet": 92}
    assert int(case.dirichlet["u"].mask.sum()) == 312
    plate_case = ad_samples["u0.5_d0.6_t0.6"].case
    assert plate_case.targets["T"].shape == (242, 4)
    assert plate_case.parameters["velocity"].tolist() == pytest.approx([0.5, 0.0, 0.0])
    assert float(plate_case.parameters["diffusivity"]) == pytest.approx(0.6)
