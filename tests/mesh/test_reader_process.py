"""Files read in another process: the same contents arrive, and a file that ends that process does not end this one."""

import numpy as np
import pytest

from mesh_writers import DEADLY, write_as
from meshes import LEFT, box
from pennpde.mesh import Mesh, files, reader_process


def equal(one, other) -> bool:
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if hasattr(one, "__dataclass_fields__"):
        return all(equal(getattr(one, name), getattr(other, name)) for name in one.__dataclass_fields__)
    return one == other


def test_what_arrives_is_what_the_file_says(tmp_path):
    mesh = box("polyhedron").with_patches(LEFT).with_fields({"points": np.zeros((64, 3)), "T/ü": np.arange(64)})
    mesh = mesh.with_patch_facets({"faces connectivity": mesh.facets.take(mesh.patch("left").facets[:2])})
    mesh.save(tmp_path / "body.vtu")
    named = box("mixed_plane").with_patches(LEFT)
    for path in (tmp_path / "body.vtu", write_as("gmsh 4.1 binary", tmp_path, named)):
        contents = reader_process.shared().read(path)
        assert equal(contents, files.read(path))
        assert Mesh.from_contents(contents).patches.keys() == Mesh.read(path).patches.keys()


def test_a_crash_is_one_sentence_and_the_next_file_is_read(tmp_path, monkeypatch):
    (tmp_path / "deadly.vtk").write_text(DEADLY)
    (tmp_path / "junk.msh").write_bytes(b"\xff\xfe")
    box("quad").save(tmp_path / "good.vtu")
    monkeypatch.chdir(tmp_path)  # the process follows
    reader = reader_process.shared()
    with pytest.raises(ValueError, match=r"^deadly\.vtk is damaged so badly that reading it crashed\.$"):
        reader.read("deadly.vtk")
    with pytest.raises(FileNotFoundError, match=r"^There is no mesh file absent\.vtu\.$"):
        reader.read("absent.vtu")
    with pytest.raises(ValueError, match=r"^junk\.msh is not a Gmsh file"):
        reader.read("junk.msh")
    assert len(reader.read("good.vtu").points) == 20


def test_the_parts_of_a_time_arrive_as_one_mesh_with_values_in_cells_and_the_time(tmp_path):
    grid = box("quad").to_pyvista()
    grid.cell_data["p"] = np.arange(float(grid.n_cells))
    half = np.arange(grid.n_cells) < grid.n_cells // 2
    paths = []
    for place, chosen in enumerate((half, ~half)):
        part = grid.extract_cells(chosen)
        part.field_data["TimeValue"] = [1.5]
        paths.append(tmp_path / f"part_{place}.vtu")
        part.save(paths[-1])
    contents = reader_process.shared().read_parts(paths)
    assert equal(contents, files.read_parts(paths))
    assert np.array_equal(contents.cell_fields["p"], np.arange(float(grid.n_cells)))
    assert Mesh.from_contents(contents).number_of_points == grid.n_points
    assert reader_process.shared().read(paths[0]).time == 1.5
