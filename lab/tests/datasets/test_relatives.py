"""Cases that are one problem in another guise."""

from paths import ROOT
from pennlab.datasets import advection_diffusion
from pennlab.datasets.flow import cases as flow
from pennlab.relatives import problem, unrelated_names
from pennpde.data import storage


def test_mirror_images_and_multiples_are_relatives():
    assert problem("flow", "c_0.20_0.70") == problem("flow", "c_0.70_0.20")
    assert problem("flow", "b_0.20_0.70") != problem("flow", "b_0.70_0.20")
    assert problem("advection-diffusion", "u0.50_d0.10_t0.80") == problem("advection-diffusion", "u0.50_d0.10_t0.20")
    assert problem("advection-diffusion", "u0.50_d0.10_t0.80") != problem("advection-diffusion", "u0.50_d0.20_t0.80")


def test_of_the_test_cases_all_of_types_a_and_b_have_no_relative_in_training():
    manifest = storage.read_manifest(ROOT / "data" / "flow")
    found = unrelated_names(manifest, "test")
    assert [name for name in manifest.splits["test"] if not name.startswith("c")] == found
    only_train = unrelated_names(manifest, "test", seen=("train",))
    assert [name for name in only_train if name.startswith("c")] == ["c_0.00_0.20"]


def test_every_test_case_of_the_lattice_is_a_multiple_of_a_training_case_and_none_off_the_lattice_is():
    manifest = storage.read_manifest(ROOT / "data" / "advection_diffusion")
    assert unrelated_names(manifest, "test") == []
    seen = {problem("advection-diffusion", name) for name in advection_diffusion.all_names()}
    second = storage.read_manifest(ROOT / "data" / "advection_diffusion_off_lattice")
    names = second.names("test")
    assert names == advection_diffusion.splits_off_lattice()["test"]
    assert len(names) == 36
    assert not seen & {problem("advection-diffusion", name) for name in names}
    known = {problem("flow", name) for name in flow.all_names()}
    off = [problem("flow", name) for name in flow.splits_off_lattice()["test"]]
    assert len(set(off)) == len(off)
    assert not known & set(off)
