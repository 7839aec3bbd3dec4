"""Datasets in folders: every case comes back as it was, or an error says what to do."""

import json
from dataclasses import replace

import pytest

from pennpde.data import storage
from pennpde.data.storage import DatasetError
from stored_cases import assert_same_case, some_case


@pytest.fixture
def folder(tmp_path):
    """A dataset of three cases, in one file each; packed ones are tested in the laboratory."""
    cases = [some_case(name=name, seed=seed) for seed, name in enumerate(("one", "two", "three"))]
    storage.write(tmp_path / "set", cases, {"train": ["one", "two"], "test": ["three"]})
    return tmp_path / "set"


# A folder


def test_read_gives_the_cases_of_a_split_or_all(folder):
    assert [case.name for case in storage.read(folder, "train")] == ["one", "two"]
    assert [case.name for case in storage.read(folder, "test")] == ["three"]
    assert sorted(case.name for case in storage.read(folder)) == ["one", "three", "two"]
    assert_same_case(storage.read(folder, "test")[0], some_case(name="three", seed=2))


def test_cases_on_the_same_mesh_share_it(folder):
    one, two = storage.read(folder, "train")
    assert one.mesh is two.mesh


def test_an_unknown_split_names_those_that_exist(folder):
    with pytest.raises(KeyError, match="no split 'tset'; it has train, test"):
        storage.read(folder, "tset")


def test_a_folder_without_manifest_says_how_to_make_one(tmp_path):
    with pytest.raises(DatasetError, match=r"is not a dataset: it has no manifest.json. Make one with `penn generate"):
        storage.read(tmp_path)
    with pytest.raises(DatasetError, match="is not a dataset"):
        storage.read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "is not the manifest of a dataset"),
        ('{"format": "pennpde dataset", "version": 99}', "version 99.*install a newer pennpde"),
        ('{"format": "pennpde dataset", "version": 1}', "is not a manifest of version 1"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_named(folder, content, words):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(DatasetError, match=rf"manifest.json .*{words}"):
        storage.read(folder)


def test_a_manifest_reaches_into_no_other_folder(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["cases"]["one"]["file"] = "../secret.vtkhdf"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match=r"'../secret.vtkhdf'; it must be in the same folder"):
        storage.read(folder)


def test_a_truncated_file_is_named_with_the_hash_that_it_should_have(folder):
    expected = json.loads((folder / "manifest.json").read_text())["cases"]["two"]["sha256"]
    path = folder / "two.vtkhdf"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=rf"two.vtkhdf is damaged: it has \d+ bytes .*{expected}.*penn generate"):
        storage.read(folder, "train")
    assert storage.read(folder, "test")


def test_a_changed_file_and_a_missing_one_are_named(folder):
    path = folder / "two.vtkhdf"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"two.vtkhdf is damaged: it changed; its sha256 is"):
        storage.read(folder, "train")
    path.unlink()
    with pytest.raises(DatasetError, match=r"two.vtkhdf is missing, but manifest.json lists it"):
        storage.read(folder, "train")


def test_a_split_that_is_not_complete_is_not_read_silently(folder):
    manifest = storage.read_manifest(folder)
    storage.write_manifest(folder, replace(manifest, splits={"train": ["one", "two", "four"]}))
    with pytest.raises(DatasetError, match=r"1 of the 3 cases of split 'train' are still to be made.*'four'"):
        storage.read(folder, "train")
    storage.write_manifest(
        folder, replace(manifest, splits={"train": ["one", "four"]}, failed={"four": {"error": "diverged"}})
    )
    with pytest.warns(UserWarning, match="could not be generated and are left out: four"):
        assert [case.name for case in storage.read(folder, "train")] == ["one"]


def test_names_that_cannot_be_files_and_names_given_twice_are_refused(tmp_path):
    for name in ("", "a/b", "..", ".hidden", "a b"):
        with pytest.raises(ValueError, match="A case cannot be called"):
            storage.write(tmp_path, [some_case(name=name)])
    with pytest.raises(ValueError, match="Two cases are called 'same'"):
        storage.write(tmp_path, [some_case(name="same"), some_case(name="same")])
    with pytest.raises(ValueError, match="Split 'test' names \\['other'\\]"):
        storage.write(tmp_path, [some_case(name="one")], {"test": ["other"]})


def test_an_older_dataset_is_replaced_with_its_files(folder):
    storage.write(folder, [some_case(name="one"), some_case(name="four")])
    assert sorted(path.name for path in folder.iterdir()) == ["four.vtkhdf", "manifest.json", "one.vtkhdf"]
    assert sorted(case.name for case in storage.read(folder)) == ["four", "one"]
