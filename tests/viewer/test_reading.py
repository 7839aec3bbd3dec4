"""Mesh files from anybody: whatever they hold, the server lives on."""

from pathlib import Path

import pytest
from problems import brick, rectangle

from pennpde.datasets.flow.cases import coarse_mesh, extruded
from pennpde.viewer.reading import Reader

pytestmark = pytest.mark.slow  # each starts a process

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


@pytest.fixture(scope="module")
def reader():
    made = Reader()
    yield made
    made.close()


def test_meshes_come_with_their_patches(reader, tmp_path):
    mesh = coarse_mesh("a_0.30", cells_per_length=4)
    mesh.save(tmp_path / "duct.vtu")
    (tmp_path / "square.msh").write_text(GMSH)
    read = reader.read(tmp_path / "duct.vtu")
    assert (read.points == mesh.points).all()
    assert {name: len(patch.facets) for name, patch in read.patches.items()} == {
        name: len(patch.facets) for name, patch in mesh.patches.items()
    }
    assert list(reader.read(tmp_path / "square.msh").patches) == ["inlet"]


def test_a_mesh_one_cell_thick_becomes_plane(reader, tmp_path):
    thick = extruded(coarse_mesh("a_0.30", cells_per_length=4))
    thick.save(tmp_path / "thick.vtu")
    assert reader.read(tmp_path / "thick.vtu").space == 2


def test_a_body_is_refused_with_words(reader, tmp_path):
    brick().save(tmp_path / "brick.vtu")
    with pytest.raises(ValueError, match=r"brick\.vtu .* draws plane meshes"):
        reader.read(tmp_path / "brick.vtu")


def test_whatever_a_file_holds_there_is_one_sentence_and_the_next_file_is_read(reader, tmp_path):
    rectangle((3, 2)).save(tmp_path / "good.vtu")
    for name, content in BAD.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name.split(".", maxsplit=1)[0]):
            reader.read(path)
    assert reader.read(tmp_path / "good.vtu").number_of_cells == 6


def test_a_file_that_takes_too_long_is_given_up(tmp_path):
    rectangle((3, 2)).save(tmp_path / "good.vtu")
    hasty = Reader(patience=0.0)  # the process is still starting
    try:
        with pytest.raises(ValueError, match="given up"):
            hasty.read(tmp_path / "good.vtu")
    finally:
        hasty.close()


def test_a_missing_file_is_an_error_too(reader):
    with pytest.raises(ValueError, match="absent"):
        reader.read(Path("absent.vtu"))
