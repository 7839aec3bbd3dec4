"""The list of the networks that the authors released."""

import importlib.util
import sys

import pytest

from paths import ROOT


@pytest.fixture
def benchmark(monkeypatch):
    folder = ROOT / "lab" / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    # By its path: what tests share about these networks has the same name.
    spec = importlib.util.spec_from_file_location("released_networks_benchmark", folder / "released_networks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_there_are_22_and_seven_have_their_weights_here(benchmark):
    every = benchmark.released()
    assert len(every) == len({(each.problem, each.name) for each in every}) == 22
    assert sum(not each.is_read for each in every) == 8
    here = [place for each in every if (place := each.weights(None))]
    assert len(here) == len(list((ROOT / "lab" / "reference" / "weights").glob("*.npz"))) == 7


def test_weights_of_a_clone_are_found_where_the_authors_have_them(benchmark, tmp_path):
    place = tmp_path / "tests" / "data" / "pretrained" / "fluid" / "penn_n4_rep8" / "model"
    place.parent.mkdir(parents=True)
    place.touch()
    (found,) = [each.weights(tmp_path) for each in benchmark.released() if each.name == "penn_n4_rep8"]
    assert found == place


def test_networks_of_advection_diffusion_with_weights_have_all_records(benchmark):
    for each in benchmark.released():
        if each.problem == "advection_diffusion" and (place := each.weights(None)):
            assert not list(benchmark.lacking(each, place))
