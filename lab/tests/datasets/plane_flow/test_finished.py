"""Flows that come with the repository are taken as they are, without OpenFOAM."""

import json
import tarfile
from dataclasses import replace

import pytest
import torch

from commands import penn
from generating import make
from paths import ROOT
from pennlab.datasets.plane_flow import cost, finished, flows, sensitivity
from pennlab.datasets.plane_flow.cases import mesh_fingerprint
from pennlab.datasets.plane_flow.recipe import PlaneFlowRecipe
from pennpde.data import storage, vtkhdf

FOLDER = ROOT / "data" / "plane_flow" / "finished"


def test_every_finished_flow_is_one_of_the_dataset():
    known = {name for names in flows.splits().values() for name in names}
    assert set(finished.names(FOLDER)) <= known
    assert len(finished.names(FOLDER)) >= 398


def test_a_finished_flow_has_the_fingerprint_of_the_flow_as_it_is_drawn_now():
    for name in finished.names(FOLDER)[::80]:
        flow = flows.draw_flow(name)
        made = finished.products(FOLDER, flow)
        assert sorted(made) == [f"{name}.a", f"{name}.b"]
        assert all(each.facts["fingerprints"]["flow"] == flow.fingerprint() for each in made.values())


def test_what_flows_into_a_finished_flow_flows_out_of_it():
    compared = 0
    for name in finished.names(FOLDER)[::50]:
        flow = flows.draw_flow(name)
        file = finished.cases(FOLDER, flow)[f"{name}.a"]
        mesh, velocity = file.case.mesh, file.case.targets["u"][..., -1].numpy()
        leaving, fewest = 0.0, 1000
        for patch in flow.outlets:
            facets = mesh.patch(patch).facets
            fewest = min(fewest, len(facets))
            ends = mesh.facets.take(facets).connectivity.reshape(len(facets), 2)
            normals = mesh.facet_areas.numpy()[facets]
            leaving += (velocity[ends].mean(axis=1) * normals).sum()
        if flow.outlets:
            compared += 1
            # The trapezoidal rule on a parabola is wrong by 1 / n² with n cells across, and by more in thin layers.
            assert leaving == pytest.approx(flow.inflow(), rel=0.03 + 1.5 / fewest**2), name
    assert compared > 3


def test_the_finer_truth_is_of_test_flows_on_the_same_meshes_and_close_to_the_truth():
    finer = FOLDER.parent / "finer"
    tested = {name for split, names in flows.splits().items() if split.startswith("test") for name in names}
    assert set(finished.names(finer)) <= tested
    for name in finished.names(finer)[::6]:
        flow = flows.draw_flow(name)
        coarse, fine = finished.cases(FOLDER, flow), finished.cases(finer, flow)
        assert coarse.keys() == fine.keys()
        for case, file in fine.items():
            other = coarse[case].case
            assert torch.equal(file.case.mesh.points, other.mesh.points)
            assert file.times == coarse[case].times
            first = file.case.targets["u"][..., 0]
            change = float((first - other.targets["u"][..., 0]).norm() / first.norm())
            assert 0 < change < 0.05, case
            cells = [finished.facts(folder, flow)[case]["truth"]["cells"] for folder in (FOLDER, finer)]
            assert cells[1] > 3 * cells[0]


def test_packed_flows_can_be_read_again(tmp_path):
    name = finished.names(FOLDER)[0]
    flow = flows.draw_flow(name)
    packed = finished.packed_flow(name, finished.cases(FOLDER, flow), finished.facts(FOLDER, flow))
    finished.write_part(tmp_path / "part_000.tar", {name: packed})
    for case, file in finished.cases(tmp_path, flow).items():
        stored = finished.cases(FOLDER, flow)[case]
        assert file.times == stored.times
        assert all(torch.equal(file.case.targets[key], stored.case.targets[key]) for key in stored.case.targets)


@pytest.mark.slow
@pytest.mark.openfoam
def test_a_finished_flow_is_the_same_when_it_is_computed_again():
    name = min((name for name in finished.names(FOLDER) if name.startswith("cavity_0")), key=cost.rank)
    stored = finished.products(FOLDER, flows.draw_flow(name))[f"{name}.a"]
    (made,) = PlaneFlowRecipe().make([f"{name}.a"], lambda share: None)
    assert made.facts["fingerprints"] == stored.facts["fingerprints"]
    assert made.facts["times"] == stored.facts["times"]
    one, other = (vtkhdf.unpack(each.content, name).case for each in (made, stored))
    for field, values in other.targets.items():
        # Solvers stop at 1e-6, and fields are rounded to 2⁻¹¹.
        assert (one.targets[field] - values).norm() / values.norm() < 1e-3, field


def test_the_command_makes_a_dataset_of_finished_flows_without_a_solver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    name = finished.names(FOLDER)[0]
    result = penn(
        *("generate", "plane-flow", "--out", tmp_path, "--finished", FOLDER, "--workers", "0", "--json"),
        *("--only", f"{name}.a", "--only", f"{name}.b"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["made"] == 2
    case = storage.read_file(tmp_path, f"{name}.a").case
    assert case.targets["u"].shape[:2] == case.initial["u"].shape
    assert torch.isfinite(case.targets["p"]).all()


def test_a_finer_truth_is_not_taken_from_the_archives():
    name = finished.names(FOLDER)[0]
    assert PlaneFlowRecipe(finished=str(FOLDER))._is_finished(name)
    assert not PlaneFlowRecipe(spacing=0.5, finished=str(FOLDER))._is_finished(name)


def test_without_solving_the_dataset_consists_of_finished_flows(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    archives, chosen = few_archives(tmp_path)
    arguments = ("generate", "plane-flow", "--out", tmp_path / "set", "--finished", archives, "--no-solve", "--json")
    result = penn(*arguments)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["made"] == 2 * len(chosen)
    assert sum(told["left_out"].values()) == sum(map(len, flows.splits().values())) - len(chosen) - 1
    manifest = storage.read_manifest(tmp_path / "set")
    assert {name[:-2] for name in manifest.cases} == set(chosen)
    assert {name: facts["error"] for name, facts in manifest.failed.items()} == {
        "wavy_0032.a": "It diverges.",
        "wavy_0032.b": "It diverges.",
    }
    # Readers take what is there, and say what failed.
    for split, names in manifest.splits.items():
        if split != "train":
            assert len(storage.read(tmp_path / "set", split)) == len(names)
    with pytest.warns(UserWarning, match="2 cases of split 'train'"):
        storage.read(tmp_path / "set", "train")
    assert json.loads(penn(*arguments).stdout)["kept"] == 2 * len(chosen)


def test_a_flow_that_is_not_finished_is_refused_without_solving(tmp_path):
    archives, _ = few_archives(tmp_path)
    missing = next(name for name in flows.splits()["train"] if name not in finished.names(archives))
    options = ("--finished", archives, "--no-solve", "--only", f"{missing}.a")
    result = penn("generate", "plane-flow", "--out", tmp_path / "set", *options)
    assert result.exit_code == 1
    assert f"{missing}.a' is not in" in result.stderr
    result = penn("generate", "plane-flow", "--out", tmp_path / "set", "--no-solve")
    assert (result.exit_code, "--finished" in result.stderr) == (2, True)


def few_archives(folder):
    """Archives with few flows, one of them failed, made by unpacking and adding."""
    with tarfile.open(FOLDER / "part_000.tar") as part:
        oldest = [name.removesuffix(".tar.xz") for name in part.getnames()[:3]]
    chosen = sorted({*finished.names(FOLDER)[::100], *oldest})
    recipe = PlaneFlowRecipe(finished=str(FOLDER), may_solve=False)
    made = folder / "unpacked"
    make(recipe, made, only=[f"{name}.{mesh}" for name in chosen for mesh in "ab"])
    manifest = storage.read_manifest(made)
    # What is committed names no folder of the machine that it comes from.
    failed = {f"wavy_0032.{mesh}": {"attempts": 1, "error": "It in /tmp/penn-x/case diverges."} for mesh in "ab"}
    splits = {**manifest.splits, "train": [*manifest.splits["train"], *failed]}
    storage.write_manifest(made, replace(manifest, splits=splits, failed=failed))
    finished.add(made, folder / "archives", part_bytes=300_000)
    return folder / "archives", chosen


def test_flows_are_added_to_archives_once_and_no_archive_is_rewritten(tmp_path):
    archives, chosen = few_archives(tmp_path)
    before = {path: path.read_bytes() for path in archives.glob("part_*.tar")}
    assert len(before) > 1
    assert max(map(len, before.values())) <= 300_000
    assert sorted(finished.names(archives)) == chosen
    for name in chosen:
        flow = flows.draw_flow(name)
        again, first = finished.products(archives, flow), finished.products(FOLDER, flow)
        # What is determined is said next to the archives, and these have no such file.
        assert {case: (each.content, each.facts) for case, each in again.items()} == {
            case: (each.content, sensitivity.without_facts(each.facts)) for case, each in first.items()
        }
    further = next(name for name in finished.names(FOLDER) if name not in chosen)
    recipe = PlaneFlowRecipe(finished=str(FOLDER))
    make(recipe, tmp_path / "unpacked", only=[f"{further}.a", f"{further}.b"])
    (added,) = finished.add(tmp_path / "unpacked", archives)
    with tarfile.open(added) as part:
        assert part.getnames() == [f"{further}.tar.xz"]
    assert {path: path.read_bytes() for path in before} == before
    assert finished.add(tmp_path / "unpacked", archives) == []


def test_arrays_of_new_archives_are_compressed_once_and_read_like_those_of_old_ones(tmp_path):
    archives, chosen = few_archives(tmp_path)
    old = {name: size for part in range(5) for name, size in _sizes(FOLDER / f"part_{part:03d}.tar").items()}
    new = {name: size for path in archives.glob("part_*.tar") for name, size in _sizes(path).items()}
    both = old.keys() & new.keys()
    assert len(both) > 2
    assert sum(new[name] for name in both) < 0.85 * sum(old[name] for name in both)
    for name in chosen:
        flow = flows.draw_flow(name)
        again, first = finished.cases(archives, flow), finished.cases(FOLDER, flow)
        assert again.keys() == first.keys()
        for case, file in first.items():
            assert (again[case].times, again[case].notes) == (file.times, file.notes)
            assert mesh_fingerprint(again[case].case.mesh) == mesh_fingerprint(file.case.mesh)
            for field, values in file.case.targets.items():
                assert torch.equal(again[case].case.targets[field], values)


def _sizes(path):
    """Of the flows in an archive."""
    with tarfile.open(path) as part:
        return {member.name: member.size for member in part.getmembers()}


def test_a_flow_with_one_of_its_cases_missing_is_not_archived(tmp_path):
    name = finished.names(FOLDER)[0]
    make(PlaneFlowRecipe(finished=str(FOLDER)), tmp_path / "set", only=[f"{name}.a", f"{name}.b"])
    (tmp_path / "set" / f"{name}.b.vtkhdf").unlink()
    assert finished.add(tmp_path / "set", tmp_path / "archives") == []


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no finished flows"):
        finished.names(tmp_path)
