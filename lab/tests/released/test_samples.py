"""The released samples as cases, and the released networks on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pennlab.paper.samples import Sample, read_sample
from pennlab.released import weights as released
from pennpde.case import Case, batch, unbatch
from pennpde.mesh import Mesh
from pennpde.testing import assert_equivariant
from released_networks import AD_SAMPLES, made


def test_a_sample_is_a_case_with_its_targets(flow_sample: Sample, ad_samples: dict[str, Sample]):
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


def test_other_files_are_refused_by_name(tmp_path: Path):
    (tmp_path / "noise.npz").write_bytes(b"\x00\x01 no archive at all")
    np.savez(tmp_path / "near.npz", **{"dict_block.ELSE.weight": np.ones(3)})
    for name in ("noise.npz", "near.npz"):
        with pytest.raises(ValueError, match=name):
            read_sample(tmp_path / name)


@pytest.mark.slow
def test_trained_networks_turn_with_the_case_in_space(reference: Path, flow_sample: Sample):
    network = released.load(reference / "weights" / "flow_penn_n4_rep4.npz").double()
    # Trained weights amplify round-off, by about 1e3 here; found 7e-12.
    assert_equivariant(network, flow_sample.case, motions=1, tolerance=1e-9)


@pytest.mark.slow
def test_advection_diffusion_finds_the_thin_direction_of_a_turned_slab(ad_samples: dict[str, Sample]):
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=2)
    assert_equivariant(network, ad_samples["u0.5_d0.5_t0.5"].case)


@pytest.mark.slow
def test_a_plane_case_gives_what_its_slab_gives(ad_samples: dict[str, Sample]):
    slab = ad_samples["u0.6_d0.5_t0.6"].case
    mesh = Mesh.plane_of(slab.mesh)
    assert mesh.layer is not None
    plane = Case(
        mesh.with_patches({"inlet": lambda x: np.isclose(x[:, 0], 0.0)}),
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": float(slab.dirichlet["T"].values.max())}},
        parameters={"velocity": slab.parameters["velocity"][:2], "diffusivity": slab.parameters["diffusivity"]},
        features={"inlet_distance": slab.features["inlet_distance"][mesh.layer]},
    )
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=3)
    torch.testing.assert_close(network(plane)["T"], network(slab)["T"][mesh.layer], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_a_batch_gives_what_its_cases_give_one_by_one(ad_samples: dict[str, Sample]):
    network = made(released.ReleasedAdvectionDiffusion, "PENN", iterations=4)
    cases = [ad_samples[name].case for name in AD_SAMPLES[:3]]
    together = batch(cases)
    for fields, case in zip(unbatch(network(together), together), cases, strict=True):
        torch.testing.assert_close(fields["T"], network(case)["T"], rtol=1e-9, atol=1e-11)
