"""Files from anybody: whatever they hold, the server lives on."""

import zipfile
from pathlib import Path

import pytest

from foam_cases import write_plane_channel
from pennlab.datasets.flow.cases import extruded
from pennpde.models.designs import coarse_mesh
from pennpde.models.ducts import Flow
from pennpde.viewer.uploads import read_case, read_mesh
from pennpde.viewer.workers import CrashError, Worker, WorkError
from problems import brick, rectangle
from waiting import waited_for

SQUARE = """# vtk DataFile Version 3.0
square
ASCII
DATASET UNSTRUCTURED_GRID
POINTS 4 float
0 0 0 1 0 0 1 1 0 0 1 0
CELLS 1 5
4 0 1 2 3
CELL_TYPES 1
9
"""
DEADLY = SQUARE.replace("4 0 1 2 3", "999999 0 1 2 3")
"""A cell of so many corners ends the process that reads it, by a segmentation fault in VTK 9.7."""
GMSH = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
1
1 1 "inlet"
$EndPhysicalNames
$Nodes
4
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
$EndNodes
$Elements
2
1 1 2 1 1 4 1
2 3 2 2 1 1 2 3 4
$EndElements
"""
BAD = {
    "junk.vtu": b"hello",
    "empty.vtk": b"",
    "junk.msh": b"\x00\x01\x02 no mesh",
    "broken.vtkhdf": b"\x89HDF\r\n\x1a\n and then nothing",
    "points_only.vtk": SQUARE.split("CELLS", maxsplit=1)[0].encode(),
    "far_point.vtk": SQUARE.replace("4 0 1 2 3", "4 0 1 2 77").encode(),
    "not_finite.vtk": SQUARE.replace("1 1 0", "1 nan 0").encode(),
    "truncated.vtk": SQUARE[: len(SQUARE) // 2].encode(),
    "deadly.vtk": DEADLY.encode(),
    "program.exe": b"MZ",
    "no_suffix": SQUARE.encode(),
}


def test_meshes_come_with_their_patches(tmp_path):
    mesh = coarse_mesh("a_0.30", cells_per_length=4)
    mesh.save(tmp_path / "duct.vtu")
    (tmp_path / "square.msh").write_text(GMSH)
    read = read_mesh(tmp_path / "duct.vtu")
    assert (read.points == mesh.points).all()
    assert {name: len(patch.facets) for name, patch in read.patches.items()} == {
        name: len(patch.facets) for name, patch in mesh.patches.items()
    }
    assert list(read_mesh(tmp_path / "square.msh").patches) == ["inlet"]


def test_a_mesh_one_cell_thick_becomes_plane(tmp_path):
    extruded(coarse_mesh("a_0.30", cells_per_length=4)).save(tmp_path / "thick.vtu")
    assert read_mesh(tmp_path / "thick.vtu").space == 2


def test_a_body_is_refused_with_words(tmp_path):
    brick().save(tmp_path / "brick.vtu")
    with pytest.raises(ValueError, match=r"brick\.vtu .* draws plane meshes"):
        read_mesh(tmp_path / "brick.vtu")


def test_a_missing_file_is_an_error_too():
    with pytest.raises(ValueError, match="absent"):
        read_mesh(Path("absent.vtu"))


def zipped(folder: Path, archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w") as opened:
        for path in folder.rglob("*"):
            opened.write(path, path.relative_to(folder.parent))
    return archive


def test_an_openfoam_case_comes_with_its_conditions(tmp_path):
    folder = write_plane_channel(tmp_path / "duct")
    case = read_case(zipped(folder, tmp_path / "duct.zip"), tmp_path / "case", Flow(4).eval())
    assert case.space == 2
    assert float(case.parameters["viscosity"]) == pytest.approx(0.01)
    assert bool(case.dirichlet["u"].mask.any())


def test_an_openfoam_case_that_cannot_be_read_is_named_without_our_folders(tmp_path):
    folder = write_plane_channel(tmp_path / "duct")
    (folder / "0" / "U").write_text("nonsense")
    with pytest.raises(ValueError, match=r"^duct\.zip cannot be read") as raised:
        read_case(zipped(folder, tmp_path / "duct.zip"), tmp_path / "case", Flow(4).eval())
    assert str(tmp_path) not in str(raised.value)


@pytest.mark.slow  # starts processes
def test_whatever_a_file_holds_there_is_one_sentence_and_the_next_file_is_read(network_folder, tmp_path):
    async def read_all() -> None:
        worker = Worker(["--model", str(network_folder), "--uploads", str(tmp_path)])
        started = await worker.start()
        assert ".zip" in started["suffixes"]
        try:
            for number, (name, content) in enumerate(BAD.items()):
                path = tmp_path / str(number) / name
                path.parent.mkdir()
                path.write_bytes(content)
                with pytest.raises((WorkError, CrashError), match=name.split(".", maxsplit=1)[0]):
                    await worker.ask({"do": "read", "path": str(path), "name": name}, name, 60.0)
            path = tmp_path / "good" / "good.vtu"
            path.parent.mkdir()
            rectangle((3, 2)).save(path)
            content, _ = await worker.ask({"do": "read", "path": str(path), "name": "good.vtu"}, "good.vtu", 60.0)
            assert content["points"] == 12
            assert [each["patch"] for each in content["segments"]].count("inlet") == 1
        finally:
            await worker.close()

    waited_for(read_all())


def test_noise_as_a_file_of_gmsh_is_told_without_words_of_a_codec(tmp_path):
    (tmp_path / "junk.msh").write_bytes(b"\x80\x81\xff" * 99)
    with pytest.raises(ValueError, match=r"^junk\.msh is not a Gmsh file: it does not begin with \$MeshFormat\.$"):
        read_mesh(tmp_path / "junk.msh")
