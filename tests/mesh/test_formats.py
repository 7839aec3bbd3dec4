"""The formats of mesh generators: the same mesh is read from all of them, and damaged files are refused in words."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mesh_writers import WRITERS, write_as, write_gmsh
from meshes import bent
from pennpde import registry
from pennpde.mesh import Mesh
from same_meshes import named, same

ZOO = ("triangle", "quad", "mixed_plane", "tetrahedron", "hexahedron", "wedge", "pyramid")


@pytest.mark.parametrize("kind", ZOO)
def test_the_same_mesh_is_read_from_every_format(kind, tmp_path):
    mesh = named(kind)
    for name in WRITERS:
        same(Mesh.read(write_as(name, tmp_path, mesh)), mesh)
    for suffix in (".vtu", ".vtk", ".vtkhdf"):
        mesh.save(tmp_path / f"mesh{suffix}")
        same(Mesh.read(tmp_path / f"mesh{suffix}"), mesh)


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
        ("gmsh 2.2 text", b"$Nodes\n9", b"$Nodes\n%d" % HUGE),
        ("gmsh 2.2 binary", b"$Nodes\n9", b"$Nodes\n%d" % HUGE),
        ("gmsh 4.1 text", b"$Nodes\n1 9 1 9\n2 4 0\n9", b"$Nodes\n1 %d 1 9\n2 4 0\n%d" % (HUGE, HUGE)),
    ],
)
def test_an_announced_size_beyond_the_file_is_refused_before_it_is_allocated(name, old, new, tmp_path):
    path = write_as(name, tmp_path, named("triangle"))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(ValueError, match=r"announces 1,?000,?000,?000,?000,?000|announces 3,000,000"):
        Mesh.read(path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.msh", b"", "is empty: it holds no mesh"),
        ("blank.msh", b"\n \n", "is empty: it holds no mesh"),
        ("junk.msh", bytes(range(256)) * 9, r"is not a Gmsh file: it does not begin with \$MeshFormat"),
        ("fluent.msh", b'(0 "GAMBIT to Fluent File")\n', "is a mesh of Fluent"),
        ("old.msh", b"$MeshFormat\n4.0 0 8\n$EndMeshFormat\n", "Gmsh's format 4.0; 2.2 and 4.1 are read"),
        ("bare.msh", b"$MeshFormat\n4.1 0 8\n$EndMeshFormat\n", r"no section \$Nodes"),
        ("empty.vtu", b"", "damaged"),
    ],
)
def test_what_is_no_mesh_is_refused_in_words(name, content, words, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        Mesh.read(tmp_path / name)


def test_physical_groups_without_a_name_are_patches_by_their_number(tmp_path):
    mesh = named("triangle")
    path = write_as("gmsh 2.2 text", tmp_path, mesh)
    path.write_text(path.read_text().replace('1 2 "outlet"', ""))
    assert set(Mesh.read(path).patches) == {"inlet", "group 2", "the wall"}


@pytest.mark.parametrize(("names", "name"), [('1 0 "outlet"', "outlet"), ("", "group 0")])
def test_a_physical_group_of_number_zero_is_a_patch_as_well(tmp_path, names, name):
    mesh = named("triangle")
    path = write_as("gmsh 2.2 text", tmp_path, mesh)
    text = path.read_text().replace('1 2 "outlet"', names)
    path.write_text(re.sub(r"^(\d+ 1 2) 2 ", r"\1 0 ", text, flags=re.MULTILINE))
    patches = Mesh.read(path).patches
    assert set(patches) == {"inlet", name, "the wall"}
    np.testing.assert_array_equal(patches[name].facets, mesh.patch("outlet").facets)


def test_a_cell_that_is_listed_in_two_groups_is_one_cell(tmp_path):
    mesh = named("triangle")
    path = write_as("gmsh 2.2 text", tmp_path, mesh)
    text = path.read_text()
    rows = text.split("$Elements\n")[1].split("\n")
    count, last = int(rows[0]), rows[int(rows[0])]
    again = "\n".join(
        [str(count + 1), *rows[1 : count + 1], f"99 2 2 9 9 {' '.join(last.split()[5:])}", "$EndElements", ""]
    )
    path.write_text(text.split("$Elements\n")[0] + "$Elements\n" + again)
    same(Mesh.read(path), mesh)


def test_curved_meshes_of_every_cell_type_survive_the_round_trip(tmp_path):
    for kind in ("mixed_plane", "hexahedron"):
        mesh = bent(named(kind))
        same(Mesh.read(write_as("gmsh 4.1 binary", tmp_path, mesh)), mesh)


def test_quadratic_cells_become_linear(tmp_path):
    points = np.array([[0, 0, 0], [2, 0, 0], [0, 2, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=float)
    write_gmsh(tmp_path / "mesh.msh", points, [(22, list(range(6)))], {"floor": [(21, [0, 1, 3])]})
    mesh = Mesh.read(tmp_path / "mesh.msh")
    assert mesh.connectivity.tolist() == [0, 1, 2]
    assert mesh.patch("floor").points.tolist() == [0, 1]
    (note,) = mesh.notes
    assert note.startswith("brought to first order: 1 cell of second or higher order; 3 points")
    with pytest.raises(ValueError, match="cell type 22"):
        Mesh.read(tmp_path / "mesh.msh", repair=False)


def test_an_entity_of_two_physical_groups_is_in_both_patches(tmp_path):
    """Format 4.1 lists the groups of each entity; format 2.2 lists an element once for each group."""
    mesh = named("triangle")
    path = write_as("gmsh 4.1 text", tmp_path, mesh)
    names = '$PhysicalNames\n5\n1 9 "openings"\n'
    text = path.read_text().replace("$PhysicalNames\n4\n", names)
    # The entities 1 and 2 are inlet and outlet; entity 1 has the negative number of its group.
    for group, physical in ((1, "-1"), (2, "2")):
        old = f"{group}\n0.0 1.0 2.0 3.0 4.0 5.0\n1\n{physical}\n"
        assert old in text
        text = text.replace(old, f"{group}\n0.0 1.0 2.0 3.0 4.0 5.0\n2\n{physical} 9\n")
    path.write_text(text)
    patches = Mesh.read(path).patches
    assert set(patches) == {"inlet", "outlet", "the wall", "openings"}
    both = np.concatenate([patches["inlet"].facets, patches["outlet"].facets])
    np.testing.assert_array_equal(patches["openings"].facets, np.sort(both))


def test_a_part_of_a_gmsh_mesh_without_group_does_not_move_the_others(tmp_path):
    mesh = named("triangle")
    path = write_as("gmsh 4.1 text", tmp_path, mesh)
    old = "2\n0.0 1.0 2.0 3.0 4.0 5.0\n1\n2\n"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, "2\n0.0 1.0 2.0 3.0 4.0 5.0\n0\n\n"))
    read = Mesh.read(path)
    assert set(read.patches) == {"inlet", "the wall"}
    for name, patch in read.patches.items():
        np.testing.assert_array_equal(patch.facets, mesh.patch(name).facets)


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
    assert ("left out" in kinds) == ("all" in path.name or "parted" in path.name)


def test_the_files_of_gmsh_are_there():
    assert len(list(FILES.glob("duct*"))) == 7


@pytest.mark.parametrize("suffix", [".cgns", ".su2", ".unv", ".inp", ".med"])
def test_a_file_whose_reader_is_not_installed_says_what_to_install(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "formats", dict)
    path = tmp_path / f"mesh{suffix}"
    path.write_text("anything")
    with pytest.raises(ValueError, match=f"{suffix} are read by the package pennformats, which is not installed"):
        Mesh.read(path)


def test_another_package_may_read_a_suffix(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "formats", lambda: {".other": "pennpde.mesh.gmsh"})
    path = write_as("gmsh 4.1 text", tmp_path, named("quad")).rename(tmp_path / "mesh.OTHER")
    same(Mesh.read(path), named("quad"))
