"""Many cases in one file: nothing that readers see changes, viewers show every case, and damage is found."""

import errno
import hashlib
import json
import os
import weakref
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from meshes import box
from pennlab.datasets import packing
from pennpde.case import Case
from pennpde.data import storage, vtkhdf
from pennpde.data.storage import DatasetError
from pennpde.mesh import Mesh
from pennpde.train import dataset_hash
from stored_cases import assert_same_case, frames_of, some_case

SPLITS = {"train": ["one", "two"], "test": ["three"]}
SHARD = "train_shard_000.vtkhdf"


def cases(times=2):
    return [some_case(name=name, seed=seed, times=times) for seed, name in enumerate(("one", "two", "three"))]


@pytest.fixture
def single(tmp_path):
    """A dataset with one file per case, as all were once."""
    storage.write(tmp_path / "single", cases(), SPLITS)
    return tmp_path / "single"


@pytest.fixture
def packed(tmp_path):
    """The same in shards."""
    write_packed(tmp_path / "packed", cases(), SPLITS)
    return tmp_path / "packed"


def write_packed(folder, *arguments, **options):
    storage.write(folder, *arguments, **options)
    packing.pack(folder)


def append_packed(folder, *arguments, **options):
    storage.append(folder, *arguments, **options)
    packing.pack(folder)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.vtkhdf")}


def change_a_value(folder, block, array="PointData/p"):
    with h5py.File(folder / SHARD, "r+") as file:
        values = file[f"VTKHDF/{block}/{array}"]
        values[0] = values[0] + 1


# What packing keeps


def test_packing_changes_neither_cases_nor_their_order_nor_hashes(single):
    before = {split: storage.read(single, split) for split in (None, "train", "test")}
    hashes = {name: entry.sha256 for name, entry in storage.read_manifest(single).cases.items()}
    whole = dataset_hash(single)
    packing.pack(single)
    assert set(files(single)) == {SHARD, "test_shard_000.vtkhdf"}
    for split, expected in before.items():
        found = storage.read(single, split)
        assert [case.name for case in found] == [case.name for case in expected]
        for one, other in zip(found, expected, strict=True):
            assert_same_case(one, other)
    assert {name: entry.sha256 for name, entry in storage.read_manifest(single).cases.items()} == hashes
    assert dataset_hash(single) == whole


def test_both_layouts_have_the_same_hash(single, packed):
    assert dataset_hash(single) == dataset_hash(packed)


@pytest.mark.slow
def test_a_case_leaves_a_shard_as_the_file_that_entered_it(single, packed):
    for name in ("one", "two", "three"):
        content = storage.CaseReader(packed).content(name)
        assert content == (single / f"{name}.vtkhdf").read_bytes()
        assert hashlib.sha256(content).hexdigest() == storage.read_manifest(packed).cases[name].sha256


@pytest.mark.parametrize("kind", ["polygon", "mixed_solid", "polyhedron"])
def test_times_notes_and_any_mesh_survive(kind, tmp_path):
    case = some_case(kind)
    content = vtkhdf.pack(case, [0.5, 2.0], notes={"author": "me"})
    (tmp_path / "shard.vtkhdf").write_bytes(packing.write_shard([("some", content)])[0])
    with vtkhdf.Shard(tmp_path / "shard.vtkhdf") as shard:
        found = shard.read("some")
    assert_same_case(found.case, case)
    assert (found.times, found.notes) == ((0.5, 2.0), {"author": "me"})


def test_packing_twice_does_nothing_more(packed):
    before = files(packed)
    packing.pack(packed)
    assert files(packed) == before


def test_the_same_cases_give_the_same_bytes():
    contents = [(case.name, vtkhdf.pack(case)) for case in cases()]
    assert packing.write_shard(contents) == packing.write_shard(contents)


def test_a_dataset_in_single_files_has_the_manifest_of_before(single, packed):
    before, after = (json.loads((folder / "manifest.json").read_text()) for folder in (single, packed))
    assert (before["version"], after["version"]) == (1, 2)
    assert before["cases"]["one"].keys() == {"file", "sha256", "bytes", "facts"}
    assert after["cases"]["one"]["file"] == SHARD


# What packing is for


@pytest.mark.slow
def test_arrays_in_common_are_stored_once_and_read_once(tmp_path):
    case = some_case()
    # The same problem with other fields: only these differ.
    others = [
        replace(case, name=f"case_{number}", initial={**case.initial, "p": case.initial["p"] + number})
        for number in range(20)
    ]
    write_packed(tmp_path, others)
    with h5py.File(tmp_path / SHARD) as file:
        address = {
            array: {h5py.h5o.get_info(file[f"VTKHDF/case_{n}/{array}"].id).addr for n in range(20)}
            for array in ("Points", "PointData/u", "Steps", "PointData/p")
        }
    assert {array: len(found) for array, found in address.items()} == {
        "Points": 1,
        "PointData/u": 1,
        "Steps": 1,
        "PointData/p": 20,
    }
    manifest = storage.read_manifest(tmp_path)
    assert storage.bytes_on_disk(tmp_path, manifest) < 0.5 * sum(entry.bytes for entry in manifest.cases.values())
    first, *rest = storage.read(tmp_path)
    assert all(other.mesh is first.mesh for other in rest)


def test_one_case_is_read_without_the_others(packed, monkeypatch):
    opened, whole_array = [], vtkhdf.whole_array
    monkeypatch.setattr(
        vtkhdf, "whole_array", lambda array: opened.append(h5py.h5i.get_name(array)) or whole_array(array)
    )
    assert storage.read_file(packed, "two").case.name == "two"
    assert not [path for path in opened if b"/one/PointData/p" in path]
    assert b"/VTKHDF/two/PointData/p" in opened


@pytest.mark.slow
def test_cases_read_one_by_one_leave_no_meshes_behind(tmp_path):
    # Twenty meshes in twenty shards.
    twenty = [Case(box("quad", 2 + number), initial={"T": 0.5}, name=f"case_{number}") for number in range(20)]
    storage.write(tmp_path, twenty)
    packing.pack(tmp_path, shard_bytes=1)
    alive, opened = [], Path("/proc/self/fd")
    for file in storage.read_files(tmp_path):
        alive.append(weakref.ref(file.case.mesh))
        assert sum(mesh() is not None for mesh in alive) <= 2
        if opened.exists():
            assert sum(str(tmp_path) in os.path.realpath(path) for path in opened.iterdir()) <= 8
    assert len(alive) == 20


@pytest.mark.slow
def test_a_dataset_grows_by_shards_and_leaves_those_that_are_there(packed):
    before = files(packed)
    append_packed(packed, [some_case(name="four", seed=4), some_case(name="five", seed=5)], "train")
    after = files(packed)
    assert after.keys() - before.keys() == {"train_shard_001.vtkhdf"}
    assert {name: after[name] for name in before} == before
    assert [case.name for case in storage.read(packed, "train")] == ["one", "two", "four", "five"]
    with pytest.raises(ValueError, match="Two cases are called 'one'"):
        append_packed(packed, [some_case(name="one")])


def test_a_dataset_begins_without_cases_and_gets_new_splits(tmp_path):
    storage.write(tmp_path, [], {}, "mine", settings={"seed": 3})
    storage.append(tmp_path, [some_case(name="one")], "far", [0.5, 2.0])
    (found,) = storage.read_files(tmp_path, "far")
    assert found.times == (0.5, 2.0)
    assert storage.read_manifest(tmp_path).settings == {"seed": 3}


@pytest.mark.slow
def test_shards_stay_small_and_can_be_joined(single):
    packing.pack(single, shard_bytes=1)
    assert set(files(single)) == {SHARD, "train_shard_001.vtkhdf", "test_shard_000.vtkhdf"}
    whole = dataset_hash(single)
    packing.pack(single, again=True)
    assert len(files(single)) == 2
    assert dataset_hash(single) == whole
    for found, expected in zip(storage.read(single, "train"), cases()[:2], strict=True):
        assert_same_case(found, expected)


def test_cases_with_other_times_go_to_another_shard(tmp_path):
    write_packed(tmp_path, [some_case(name="two"), some_case(name="three", times=3), some_case(name="again", seed=3)])
    manifest = storage.read_manifest(tmp_path)
    assert manifest.cases["two"].file == manifest.cases["again"].file != manifest.cases["three"].file
    contents = [(case.name, vtkhdf.pack(case)) for case in (some_case(), some_case(name="three", times=3))]
    with pytest.raises(ValueError, match=r"'three' has the time steps \(0.0, 1.0, 2.0, 3.0\), others"):
        packing.write_shard(contents)


def test_names_of_cases_and_of_shards_do_not_clash(tmp_path):
    named_like_shards = ["train_shard_000", "train_shard_002", "train_000"]
    write_packed(tmp_path, [some_case(name=name, seed=seed) for seed, name in enumerate(named_like_shards)])
    assert set(files(tmp_path)) == {"train_shard_001.vtkhdf"}
    assert [case.name for case in storage.read(tmp_path, "train")] == named_like_shards
    for name in ("Assembly", "Steps"):
        with pytest.raises(ValueError, match=f"A case cannot be called '{name}': VTKHDF has a group of that name"):
            storage.write(tmp_path / "other", [some_case(name=name)])


def test_a_case_of_two_splits_and_one_of_none_are_packed_once(tmp_path):
    write_packed(tmp_path, cases(), {"train": ["one"], "a/b": ["two", "one"]})
    assert set(files(tmp_path)) == {SHARD, "a_b_shard_000.vtkhdf", "other_shard_000.vtkhdf"}
    assert [case.name for case in storage.read(tmp_path, "a/b")] == ["two", "one"]
    assert len(storage.read(tmp_path)) == 3


# In viewers


def test_vtk_shows_every_case_at_every_time_as_in_its_own_file(single, packed):
    shown = dict(frames_of(packed / SHARD))
    assert list(shown) == [0.0, 1.0, 2.0]
    for name in ("one", "two"):
        for time, expected in frames_of(single / f"{name}.vtkhdf"):
            found = shown[time][name]
            assert np.array_equal(found.points, expected.points)
            assert np.array_equal(found.cells, expected.cells)
            assert set(found.point_data) == set(expected.point_data)
            for array in expected.point_data:
                assert np.array_equal(found[array], expected[array]), (name, time, array)
            assert np.array_equal(found.field_data["Time"], [time])


def test_vtk_shows_cases_without_time(tmp_path):
    plain = [replace(case, targets={}) for case in cases()]
    write_packed(tmp_path, plain)
    ((time, blocks),) = frames_of(tmp_path / SHARD)
    assert time is None
    assert blocks.keys() == ["one", "two", "three"]
    assert np.array_equal(blocks["two"]["p"], plain[1].initial["p"].numpy())


def test_pyvista_opens_a_shard_and_a_mesh_says_to_choose_a_block(packed):
    import pyvista

    assert pyvista.read(packed / SHARD).keys() == ["one", "two"]
    with pytest.raises(ValueError, match=r"has 2 blocks \(one, two\); choose one"):
        Mesh.read(packed / SHARD)
    assert vtkhdf.is_shard(packed / SHARD)
    assert not vtkhdf.is_case_file(packed / SHARD)


# Hashes and damage


def test_the_hash_of_a_content_does_not_depend_on_how_it_is_packed(packed, tmp_path):
    expected = storage.read_manifest(packed).cases["two"].content_sha256
    with h5py.File(packed / SHARD) as file, h5py.File(tmp_path / "plain.vtkhdf", "w") as plain:
        for path in ("VTKHDF/two", "pennpde/two"):
            _copy(file[path], plain, path)
    with vtkhdf.Shard(tmp_path / "plain.vtkhdf") as shard:
        assert_same_case(shard.read("two", expected).case, cases()[1])


def _copy(item, target, path):
    """Without compression and without links."""
    made = target.create_dataset(path, data=item[()]) if isinstance(item, h5py.Dataset) else target.create_group(path)
    made.attrs.update(item.attrs)
    for child in item if isinstance(item, h5py.Group) else ():
        _copy(item[child], target, f"{path}/{child}")


@pytest.mark.slow
@pytest.mark.parametrize("array", ["PointData/p", "PointData/conditions:u", "Steps/Values", "NumberOfPoints"])
def test_a_changed_value_is_found(packed, array):
    change_a_value(packed, "two", array)
    with pytest.raises(DatasetError, match=rf"{SHARD} is damaged: case 'two' .* changed: the hash .*penn generate"):
        storage.read_file(packed, "two")


def test_a_changed_attribute_is_found(packed):
    with h5py.File(packed / SHARD, "r+") as file:
        record = json.loads(file["pennpde/two"].attrs["case"])
        file["pennpde/two"].attrs["case"] = np.bytes_(json.dumps({**record, "parameters": {"viscosity": 2.0}}))
    with pytest.raises(DatasetError, match=r"'two' .* changed"):
        storage.read_file(packed, "two")


def test_damage_to_one_case_leaves_the_others_readable(packed):
    change_a_value(packed, "two")
    assert_same_case(storage.read_file(packed, "one").case, cases()[0])
    assert packing.intact(packed, ["one", "two", "three", "four"], storage.read_manifest(packed)) == ["one", "three"]


def test_a_shard_cut_off_and_a_missing_one_are_named(packed):
    path = packed / SHARD
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=rf"{SHARD} is damaged: .*take a good copy of {SHARD}"):
        storage.read(packed, "train")
    assert storage.read(packed, "test")
    path.unlink()
    with pytest.raises(DatasetError, match=rf"{SHARD} is missing, but manifest.json lists it for case 'one'"):
        storage.read(packed, "train")


def test_a_case_that_is_not_there_is_named(packed):
    with pytest.raises(DatasetError, match=r"has no case 'four'; it has one, three, two"):
        storage.read_file(packed, "four")


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"content_sha256": None}, {"block": 3}, {"block": None}])
def test_an_entry_with_half_of_what_a_shard_needs_is_refused(packed, change):
    manifest = json.loads((packed / "manifest.json").read_text())
    manifest["cases"]["one"].update(change)
    (packed / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match="case 'one' needs both a block and a content_sha256"):
        storage.read(packed)


# Interrupted


@pytest.mark.slow
def test_packing_that_stops_anywhere_leaves_a_whole_dataset(tmp_path, monkeypatch):
    """Every write and every removal fails in turn, until there is none left to fail."""
    small = [Case(box("quad", 2), initial={"T": float(number)}, name=f"case_{number}") for number in range(3)]
    splits = {"train": ["case_2", "case_0"], "test": ["case_1"]}
    stopped, survived = True, -1
    while stopped:
        survived += 1
        storage.write(tmp_path, small, splits)
        left = [survived]
        with monkeypatch.context() as patched:
            for owner, name in ((packing, "write_atomically"), (packing, "write_manifest"), (Path, "unlink")):
                patched.setattr(owner, name, _failing_after(left, getattr(owner, name)))
            try:
                packing.pack(tmp_path)
                stopped = False
            except InterruptedError:
                pass
        assert [case.initial["T"][0].item() for case in storage.read(tmp_path, "train")] == [2.0, 0.0]
        assert [case.initial["T"][0].item() for case in storage.read(tmp_path, "test")] == [1.0]
        packing.pack(tmp_path)
        assert set(files(tmp_path)) == {SHARD, "test_shard_000.vtkhdf"}
    assert survived >= 7  # two shards, two manifests, three files removed


def _failing_after(left, action):
    def perhaps(*arguments, **options):
        if left[0] == 0:
            raise InterruptedError("stopped")
        left[0] -= 1
        return action(*arguments, **options)

    return perhaps


def test_what_an_interrupted_packing_has_left_is_removed(packed):
    (packed / "one.vtkhdf").write_bytes(storage.CaseReader(packed).content("one"))
    (packed / "train_shard_007.vtkhdf").write_bytes((packed / SHARD).read_bytes())
    (packed / "notes_shard_001.vtkhdf").write_bytes(b"not ours")
    packing.pack(packed)
    assert set(files(packed)) == {SHARD, "test_shard_000.vtkhdf", "notes_shard_001.vtkhdf"}


def test_a_shard_is_written_all_at_once(packed, monkeypatch):
    before = files(packed)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .* make room"):
        append_packed(packed, [some_case(name="four")])
    monkeypatch.undo()
    assert files(packed) == before
    assert len(storage.read(packed)) == 3
