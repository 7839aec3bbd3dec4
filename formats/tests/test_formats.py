"""The same mesh is read from every format, and damaged files are refused in words."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from format_writers import WRITERS, write_as, write_cgns, write_unv
from mesh_writers import facets_of, positions_of, rows_of, write_gmsh
from meshes import box
from pennpde.mesh import Mesh, reader_process
from same_meshes import named, same

ZOO = ("triangle", "quad", "mixed_plane", "tetrahedron", "hexahedron", "wedge", "pyramid")


@pytest.mark.parametrize("kind", ZOO)
def test_the_same_mesh_is_read_from_every_format(kind, tmp_path):
    mesh = named(kind)
    for name in WRITERS:
        same(Mesh.read(write_as(name, tmp_path, mesh)), mesh)


@pytest.mark.parametrize("name", WRITERS)
def test_a_sound_file_needs_no_repair(name, tmp_path):
    path = write_as(name, tmp_path, named("triangle"))
    assert Mesh.read(path).notes == ()
    same(Mesh.read(path, repair=False), Mesh.read(path))


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_cut_anywhere_is_refused_in_words_or_still_a_mesh(name, tmp_path):
    whole = write_as(name, tmp_path, named("triangle")).read_bytes()
    suffix = WRITERS[name][0]
    for length in np.linspace(0, len(whole) - 2, 41, dtype=int):
        path = tmp_path / f"cut{suffix}"
        path.write_bytes(whole[:length])
        try:
            mesh = Mesh.read(path)
        except ValueError as error:
            assert f"cut{suffix}" in str(error) or "mesh" in str(error)  # noqa: PT017
            assert "codec" not in str(error)  # noqa: PT017
        else:
            assert mesh.number_of_cells == 8  # only what follows the cells is missing


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(WRITERS)), seed=st.integers(0, 10**6))
def test_noise_in_a_file_raises_a_value_error_or_nothing(name, seed, tmp_path):
    generator = np.random.default_rng(seed)
    path = write_as(name, tmp_path, named("triangle"))
    content = bytearray(path.read_bytes())
    for place in generator.integers(len(content), size=generator.integers(1, 4)):
        content[place] = generator.integers(256)
    path.write_bytes(bytes(content))
    try:
        Mesh.read(path)
    except ValueError as error:
        assert str(error)  # noqa: PT017


HUGE = 10**15


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("su2", b"NPOIN= 9 9", b"NPOIN= %d" % HUGE),
        ("su2", b"NELEM= 8", b"NELEM= %d" % HUGE),
    ],
)
def test_an_announced_size_beyond_the_file_is_refused_before_it_is_allocated(name, old, new, tmp_path):
    path = write_as(name, tmp_path, named("triangle"))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match="announces 1,000,000,000,000,000"):
        Mesh.read(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.su2", b"", "it has no NDIME and no NPOIN and no NELEM"),
        ("junk.su2", b"\xff\xfe\x00", "is not text"),
        ("prose.su2", b"hello\n", "is where a line such as NPOIN= 4 should be"),
        ("zones.su2", b"NZONE= 2\n", "it has 2 zones"),
        ("empty.unv", b"", "not enclosed by lines of -1"),
        ("junk.unv", b"\xff\xfe\x00", "is not text"),
        ("empty.cgns", b"", "not a CGNS file"),
        ("old.cgns", b"@(#)ADF Database Version A02011>", "convert it with adf2hdf"),
    ],
)
def test_what_is_no_mesh_is_refused_in_words(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        Mesh.read(tmp_path / name)


def test_the_process_that_reads_files_knows_these_formats(tmp_path):
    for name in WRITERS:
        path = write_as(name, tmp_path, named("triangle"))
        same(Mesh.from_contents(reader_process.shared().read(path)), named("triangle"))
    path = tmp_path / "duct.su2"
    path.write_text("NDIME= 2\nNELEM= 1000000000000\n5 0 1 2 0\nNPOIN= 1\n0 0 0\n")
    with pytest.raises(ValueError, match="NELEM announces 1,000,000,000,000 lines"):
        reader_process.shared().read(path)


def test_a_group_of_nodes_in_a_universal_file_is_a_patch(tmp_path):
    mesh = named("quad")
    path = tmp_path / "mesh.unv"
    write_unv(path, positions_of(mesh), rows_of(mesh), {"inlet": facets_of(mesh, "inlet")})
    points = mesh.patch("outlet").points + 1
    group = [
        "    -1",
        "  2477",
        f"1 0 0 0 0 0 0 {len(points)}",
        "outlet",
        *(f"7 {point} 0 0" for point in points),
        "    -1",
    ]
    path.write_text(path.read_text() + "\n".join(group) + "\n")
    read = Mesh.read(path)
    np.testing.assert_array_equal(read.patch("outlet").points, mesh.patch("outlet").points)
    np.testing.assert_array_equal(read.patch("outlet").facets, mesh.patch("outlet").facets)


def test_zones_of_a_cgns_file_are_joined_where_they_touch(tmp_path):
    import h5py

    mesh = named("quad")
    left, right = tmp_path / "left.cgns", tmp_path / "mesh.cgns"
    shifted = positions_of(mesh) - [1.0, 0.0, 0.0]
    write_cgns(left, shifted, rows_of(mesh), {"inlet": facets_of(mesh, "inlet")})
    write_cgns(right, positions_of(mesh), rows_of(mesh), {"outlet": facets_of(mesh, "outlet")})
    with h5py.File(left) as one, h5py.File(right, "a") as other:
        one.copy("Base/Zone", other["Base"], "Another")
    read = Mesh.read(right)
    assert read.number_of_cells == 2 * mesh.number_of_cells
    assert set(read.patches) == {"inlet", "outlet"}
    assert len(read.facets) == 2 * len(mesh.facets) - 2 * len(mesh.patch("inlet").facets)
    assert len(read.notes) == 1


def test_fields_at_the_points_of_a_cgns_file_are_read(tmp_path):
    import h5py

    mesh = named("quad")
    path = write_as("cgns", tmp_path, mesh)
    with h5py.File(path, "a") as file:
        solution = file["Base/Zone"].create_group("Solution")
        solution.attrs["label"] = np.bytes_("FlowSolution_t")
        for number, name in enumerate(("VelocityX", "VelocityY", "Pressure")):
            solution.create_group(name).attrs["label"] = np.bytes_("DataArray_t")
            solution[name][" data"] = np.full(mesh.number_of_points, float(number))
    fields = Mesh.read(path).fields
    assert fields["Velocity"].shape == (mesh.number_of_points, 2)
    assert set(fields) == {"Velocity", "Pressure"}


def test_quadratic_cells_of_universal_files_become_linear(tmp_path):
    points = np.array([[0, 0, 0], [2, 0, 0], [0, 2, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=float)
    write_gmsh(tmp_path / "mesh.msh", points, [(22, list(range(6)))], {"floor": [(21, [0, 1, 3])]})
    mesh = Mesh.read(tmp_path / "mesh.msh")
    # Universal files list corners and mid-side points by turns.
    around = [1, 4, 2, 5, 3, 6]
    lines = ["    -1", "  2411"]
    for label, at in enumerate(points.tolist(), start=1):
        lines += [f"{label} 1 1 11", " ".join(map(str, at))]
    lines += [
        "    -1",
        "    -1",
        "  2412",
        "1 24 2 1 7 3",
        "0 1 1",
        "1 4 2",
        "2 92 2 1 7 6",
        " ".join(map(str, around)),
    ]
    lines += ["    -1", "    -1", "  2467", "1 0 0 0 0 0 0 1", "floor", "8 1 0 0", "    -1", ""]
    (tmp_path / "mesh.unv").write_text("\n".join(lines))
    same(Mesh.read(tmp_path / "mesh.unv"), mesh)


def test_sections_of_su2_that_say_nothing_about_the_mesh_are_passed_over(tmp_path):
    path = write_as("su2", tmp_path, named("quad"))
    path.write_text(path.read_text() + "FFD_NBOX= 1\nFFD_CORNER_POINTS= 2\n0.0 0.0 0.0\n1.0 1.0 0.0\n")
    same(Mesh.read(path), named("quad"))


def test_a_group_of_all_points_is_no_patch(tmp_path):
    mesh = named("quad")
    path = write_as("unv", tmp_path, mesh)
    points = [f"7 {point} 0 0" for point in range(1, mesh.number_of_points + 1)]
    group = ["    -1", "  2477", f"9 0 0 0 0 0 0 {len(points)}", "fluid", *points, "    -1"]
    path.write_text(path.read_text() + "\n".join(group) + "\n")
    same(Mesh.read(path), mesh)


@pytest.mark.parametrize("kind", ["quad", "hexahedron"])
def test_vtk_sees_the_same_in_a_cgns_file(kind, tmp_path):
    """So the files of these tests are what CGNS's own library takes for one."""
    import pyvista

    mesh = named(kind)
    zone = pyvista.CGNSReader(str(write_as("cgns", tmp_path, mesh))).read()[0][0]
    block = zone if isinstance(zone, pyvista.UnstructuredGrid) else zone[0]
    np.testing.assert_array_equal(block.points[:, : mesh.space], mesh.points)
    np.testing.assert_array_equal(block.cell_connectivity, mesh.connectivity)


FILES = Path(__file__).parent / "gmsh_files"


@pytest.mark.parametrize("path", sorted(FILES.glob("duct*")), ids=lambda path: path.name)
def test_what_gmsh_itself_writes_is_read(path):
    """A duct around a cylinder, by Gmsh 4.8: its inlet runs backwards, and the centre of the circle is a point."""
    mesh = Mesh.read(path)
    assert {name: len(patch.facets) for name, patch in mesh.patches.items()} == {
        "inlet": 1,
        "outlet": 1,
        "wall": 4,
        "body": 4,
    }
    assert len(mesh.facets) == 10
    np.testing.assert_allclose(mesh.cell_volumes.sum(), 2.0 - 0.5 * 0.4**2)  # a square is left of the circle
    kinds = [note.split(":")[0] for note in mesh.notes]
    assert ("brought to first order" in kinds) == ("second" in path.name)


def test_the_files_of_gmsh_are_there():
    assert len(list(FILES.glob("duct*"))) == 4


ABAQUS = """*HEADING
square
*NODE
1, 0, 0, 0
2, 1, 0, 0
3, 1, 1, 0
4, 0, 1, 0
*ELEMENT, type=T3D2, ELSET=Lines
1, 4, 1
2, 1, 2
*ELEMENT, type=CPS3, ELSET=Surface
3, 1, 2, 3
4, 1, 3, 4
*ELSET, ELSET=inlet
1
*NSET, NSET=right
2, 3
*NSET, NSET=all
1, 2, 3, 4
"""


def test_sets_of_an_abaqus_file_become_patches(tmp_path, capsys):
    (tmp_path / "square.inp").write_text(ABAQUS)
    mesh = Mesh.read(tmp_path / "square.inp")
    assert {name: patch.points.tolist() for name, patch in mesh.patches.items()} == {
        "Lines": [0, 1, 3],
        "inlet": [0, 3],
        "right": [1, 2],
    }
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("suffix", [".inp", ".med", ".bdf", ".mesh"])
def test_what_meshio_writes_is_read(suffix, tmp_path):
    import meshio

    mesh = box("tetrahedron", 2)
    cells = [("tetra", mesh.connectivity.reshape(-1, 4))]
    meshio.Mesh(mesh.points.numpy(), cells).write(tmp_path / f"mesh{suffix}")
    read = Mesh.read(tmp_path / f"mesh{suffix}")
    np.testing.assert_allclose(read.points, mesh.points, atol=1e-6)
    np.testing.assert_array_equal(read.connectivity, mesh.connectivity)


@pytest.mark.parametrize(
    ("name", "words"), [("junk.inp", "no cells|no mesh file that meshio reads"), ("junk.med", "damaged")]
)
def test_what_is_no_mesh_of_meshio_is_refused_in_words(name, words, tmp_path):
    (tmp_path / name).write_bytes(b"\x00\x01")
    with pytest.raises(ValueError, match=words):
        Mesh.read(tmp_path / name)
