"""Zip files from anybody."""

import stat
import zipfile
from pathlib import Path

import pytest

from pennpde.viewer import uploads
from pennpde.viewer.uploads import case_folder, unpack

MESH = "cavity/constant/polyMesh/points"


def packed(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def link(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name)
    member.create_system = 3  # Unix
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


@pytest.mark.parametrize("top", ["", "cavity/", "run/tutorials/cavity/"])
def test_a_case_is_found_wherever_it_lies(tmp_path, top):
    archive = packed(tmp_path / "a.zip", (f"{top}constant/polyMesh/points", b"1"), (f"{top}0/U", b"2"))
    unpack(archive, tmp_path / "case")
    assert case_folder(tmp_path / "case") == tmp_path / "case" / top.rstrip("/")
    assert (tmp_path / "case" / top / "0" / "U").read_bytes() == b"2"


def test_a_case_that_windows_packed_is_found(tmp_path):
    archive = packed(tmp_path / "a.zip", (MESH.replace("/", "\\"), b"1"), ("cavity\\0\\U", b"2"))
    unpack(archive, tmp_path / "case")
    assert case_folder(tmp_path / "case") == tmp_path / "case" / "cavity"
    assert (tmp_path / "case" / "cavity" / "0" / "U").read_bytes() == b"2"


def test_one_of_several_cases_is_not_chosen_silently(tmp_path):
    members = [(f"runs/bend_{k}/constant/polyMesh/points", b"1") for k in range(3)]
    unpack(packed(tmp_path / "a.zip", *members), tmp_path / "several")
    with pytest.raises(ValueError, match=r"it holds 3 cases \(runs/bend_0, runs/bend_1, runs/bend_2\): pack one"):
        case_folder(tmp_path / "several")
    inside = ("run/coarse/constant/polyMesh/points", b"1")  # from which the fields were mapped
    unpack(packed(tmp_path / "b.zip", ("run/constant/polyMesh/points", b"1"), inside), tmp_path / "one")
    assert case_folder(tmp_path / "one") == tmp_path / "one" / "run"


def test_a_decomposed_case_is_found_by_its_processors(tmp_path):
    members = [(f"run/processor{k}/constant/polyMesh/points", b"1") for k in range(2)]
    unpack(packed(tmp_path / "a.zip", *members), tmp_path / "case")
    assert case_folder(tmp_path / "case") == tmp_path / "case" / "run"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("../outside", "leads out"),
        ("a/../../outside", "leads out"),
        ("/etc/outside", "leads out"),
        ("C:/outside", "leads out"),
        ("..\\outside", "leads out"),
        ("\\outside", "leads out"),
        ("a/" * 13 + "deep", "12 folders deep"),
        (link("a/link"), "link or a device"),
    ],
)
def test_files_that_lead_elsewhere_are_refused_and_nothing_is_unpacked(tmp_path, member, words):
    archive = packed(tmp_path / "a.zip", (MESH, b"1"), (member, b"/etc/passwd"))
    with pytest.raises(ValueError, match=words):
        unpack(archive, tmp_path / "case")
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip"}


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MOST_FILES", 3)
    archive = packed(tmp_path / "a.zip", *((f"a/{k}", b"") for k in range(4)))
    with pytest.raises(ValueError, match="4 files"):
        unpack(archive, tmp_path / "case")


@pytest.mark.parametrize("lies", [False, True])
def test_a_file_that_unpacks_to_too_much_is_refused_whatever_it_says(tmp_path, monkeypatch, lies):
    monkeypatch.setattr(uploads, "MOST_BYTES", 10_000)
    archive = packed(tmp_path / "a.zip", (MESH, bytes(6_000)), ("b", bytes(6_000)))
    if lies:
        content = archive.read_bytes()
        archive.write_bytes(content.replace((6_000).to_bytes(4, "little"), (60).to_bytes(4, "little")))
    with pytest.raises(ValueError, match=r"unpacks to more|damaged"):
        unpack(archive, tmp_path / "case")
    assert not (tmp_path / "case").exists()


@pytest.mark.parametrize("content", [b"", b"no zip file", b"PK\x03\x04 and then nothing"])
def test_what_is_no_zip_file_is_refused(tmp_path, content):
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(ValueError, match="damaged or no zip file"):
        unpack(tmp_path / "a.zip", tmp_path / "case")


def test_a_case_without_a_mesh_is_told_to_make_one(tmp_path):
    unpack(packed(tmp_path / "a.zip", ("cavity/system/blockMeshDict", b"")), tmp_path / "with")
    with pytest.raises(ValueError, match="run blockMesh"):
        case_folder(tmp_path / "with")
    unpack(packed(tmp_path / "b.zip", ("notes.txt", b"")), tmp_path / "without")
    with pytest.raises(ValueError, match="no folder constant/polyMesh"):
        case_folder(tmp_path / "without")
