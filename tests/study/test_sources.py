"""Shapes: templates of OpenFOAM, files of Gmsh, functions; nothing is written where they come from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from foam_cases import write_plane_channel
from paths import ROOT
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh
from pennpde.models.flow_physics import FlowPhysics
from pennpde.openfoam import PolyMesh
from pennpde.study import Study
from pennpde.study.morphing import Handle, MorphError
from pennpde.study.sources import FoamFolder, Meshed, gmsh_constants, gmsh_mesh
from pennpde.study.verification import write_design

MANIFOLD = ROOT / "examples" / "studies" / "manifold" / "template"
PROBLEM = {
    "dirichlet": {"u": {"inlet": [1.0, 0.0], "wall": 0.0}, "p": {"outlet": 0.0}},
    "neumann": {"u": 0.0, "p": 0.0},
    "parameters": {"viscosity": 0.01},
}


def snapshot(folder: Path):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# Templates


def template(folder: Path, script: str = "") -> Path:
    """A channel whose viscosity and inlet are placeholders."""
    write_plane_channel(folder)
    properties = folder / "constant" / "transportProperties"
    properties.write_text(properties.read_text().replace("0.01", "{{ nu }}"))
    velocity = folder / "0" / "U"
    velocity.write_text(velocity.read_text().replace("(1 0 0)", "({{speed}} 0 0)"))
    if script:
        (folder / "Allrun.mesh").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "Allrun.mesh").chmod(0o755)
    return folder


def test_placeholders_are_numbers_of_the_shape_and_the_template_stays(tmp_path):
    folder = template(tmp_path / "case")
    before = snapshot(folder)
    source = FoamFolder(folder, FlowPhysics())
    assert source.names == {"nu", "speed"}
    case = source.case({"nu": 0.25, "speed": 1.5})
    assert float(case.parameters["viscosity"]) == 0.25
    inside = np.setdiff1d(case.mesh.patch("left").points, case.mesh.patch("bottom").points)
    inside = np.setdiff1d(inside, case.mesh.patch("top").points)
    torch.testing.assert_close(case.initial["u"][inside], torch.tensor([[1.5, 0.0]]).double().expand(len(inside), 2))
    assert snapshot(folder) == before


def test_results_of_earlier_runs_are_not_copied(tmp_path):
    folder = template(tmp_path / "case")
    for name in ("1", "0.5", "processor0", "postProcessing"):
        shutil.copytree(folder / "0", folder / name)
    (folder / "log.icoFoam").write_text("End")
    source = FoamFolder(folder, FlowPhysics())
    source.write({"nu": 0.1, "speed": 1.0}, tmp_path / "written")
    assert {path.name for path in (tmp_path / "written").iterdir()} == {"0", "constant", "system"}


def test_a_placeholder_that_does_not_vary_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\{\{speed\}\}.*does not vary"):
        FoamFolder(template(tmp_path / "case"), FlowPhysics()).case({"nu": 0.1})


def test_only_a_script_that_the_user_names_is_run(tmp_path):
    folder = template(tmp_path / "case", "echo made > made")
    FoamFolder(folder, FlowPhysics()).write({"nu": 0.1, "speed": 1.0}, tmp_path / "one")
    FoamFolder(folder, FlowPhysics(), "Allrun.mesh").write({"nu": 0.1, "speed": 1.0}, tmp_path / "two")
    assert not (tmp_path / "one" / "made").exists()
    assert (tmp_path / "two" / "made").read_text() == "made\n"
    with pytest.raises(FileNotFoundError, match="no script"):
        FoamFolder(folder, FlowPhysics(), "../other").write({"nu": 0.1, "speed": 1.0}, tmp_path / "three")


def test_the_last_words_of_a_script_that_fails_are_the_reason(tmp_path):
    folder = template(tmp_path / "case", "echo no licence; exit 3")
    with pytest.raises(ValueError, match=r"Allrun\.mesh failed with exit status 3.*no licence"):
        FoamFolder(folder, FlowPhysics(), "Allrun.mesh").case({"nu": 0.1, "speed": 1.0})


def test_a_template_that_would_compile_code_is_not_meshed_unless_the_mesher_is_named(tmp_path):
    folder = template(tmp_path / "case")
    (folder / "system" / "blockMeshDict").write_text('x #calc "system(1)"; y {{nu}};')
    with pytest.raises(ValueError, match="--mesher blockMesh"):
        FoamFolder(folder, FlowPhysics()).case({"nu": 0.1, "speed": 1.0})


@pytest.mark.openfoam
def test_block_mesh_makes_every_shape_of_a_template():
    source = FoamFolder(MANIFOLD, FlowPhysics())
    assert source.names == {"edge_1", "edge_2", "edge_3"}
    for edge in (1.3, 1.7):
        mesh = source.case({"edge_1": edge, "edge_2": 3.5, "edge_3": 5.5}).mesh
        branch = mesh.points.numpy()[mesh.patch("outlet_1").points, 0]
        assert (branch.min(), branch.max()) == pytest.approx((1.0, edge))
    with pytest.raises(ValueError, match="blockMesh failed"):
        source.case({"edge_1": 3.5, "edge_2": 3.0, "edge_3": 5.5})


# Morphing


def test_a_case_of_openfoam_is_morphed_and_written_with_the_same_points(tmp_path):
    folder = write_plane_channel(tmp_path / "case", (12, 8, 1))
    handles = {"bump": Handle(((0.5, 0.0),), (0.0, 1.0), radius=0.4)}
    source = FoamFolder(folder, FlowPhysics(), handles=handles)
    case, straight = source.case({"bump": 0.1}), source.case({"bump": 0.0})
    assert float(case.mesh.cell_volumes.sum()) < float(straight.mesh.cell_volumes.sum())
    assert case.dirichlet["u"].mask.equal(straight.dirichlet["u"].mask)
    source.write({"bump": 0.1}, tmp_path / "written")
    again = FoamFolder(tmp_path / "written", FlowPhysics()).case({})
    torch.testing.assert_close(again.mesh.points, case.mesh.points)
    assert len(PolyMesh.read(tmp_path / "written").points) == 2 * case.number_of_points
    with pytest.raises(MorphError, match=r"inverted|flat"):
        source.case({"bump": 1.2})


def test_a_mesh_and_its_conditions_are_morphed_before_the_conditions_hold():
    problem = PROBLEM | {"slip": {"u": ["wall"]}, "dirichlet": {"u": {"inlet": [1.0, 0.0]}, "p": {"outlet": 0.0}}}
    mesh = coarse_mesh("a_0.30", cells_per_length=8)
    study = Study(
        mesh,
        {"bump": [0.0, 0.2]},
        ["flow rate outlet"],
        problem,
        morph={"bump": {"at": [2.0, 2.0], "direction": [0, 1]}},
    )
    straight, bent = (study.case_of(design.values) for design in study.designs)
    assert float((straight.slip["u"].normals - bent.slip["u"].normals).abs().max()) > 0.05
    torch.testing.assert_close(bent.slip["u"].normals, bent.mesh.point_normals("wall"))


# Functions and Gmsh


def test_a_function_may_return_a_mesh_where_the_conditions_are_given():
    source = Meshed.by(lambda ramp: coarse_mesh(f"a_{ramp:.2f}", cells_per_length=5), PROBLEM, {})
    assert source.names == {"ramp"}
    assert source.case({"ramp": 0.4}).dirichlet["u"].mask.any()
    with pytest.raises(ValueError, match="problem="):
        Meshed.by(lambda ramp: coarse_mesh(f"a_{ramp:.2f}", cells_per_length=5), None, {}).case({"ramp": 0.4})


GEO = """DefineConstant[
  radius = {0.2, Min 0.1, Max 0.4, Name "Radius of the hole"},
  size = 0.1
];
Circle(1) = {0, 0, 0, radius};
"""


def test_the_constants_of_a_gmsh_file_are_numbers_of_the_shape(tmp_path):
    (tmp_path / "part.geo").write_text(GEO)
    assert gmsh_constants(tmp_path / "part.geo") == {"radius", "size"}


def test_gmsh_is_run_with_the_numbers_of_the_design(tmp_path, monkeypatch):
    """With a program that stands for it: it writes down its words, and the mesh that it was given."""
    (tmp_path / "part.geo").write_text(GEO)
    (tmp_path / "made.msh").write_text(
        "$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n4\n1 0 0 0\n2 1 0 0\n3 1 1 0\n4 0 1 0\n$EndNodes\n"
        "$Elements\n1\n1 3 2 0 1 1 2 3 4\n$EndElements\n"
    )
    program = tmp_path / "bin" / "gmsh"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\n'
        f'while [ "$1" != "-o" ]; do shift; done\ncp {tmp_path}/made.msh "$2"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    mesh = gmsh_mesh(tmp_path / "part.geo", radius=0.25, size=0.125)
    assert isinstance(mesh, Mesh)
    assert mesh.number_of_cells == 1
    assert "-2 -setnumber radius 0.25 -setnumber size 0.125 -format msh41 -o" in (tmp_path / "words").read_text()


@pytest.mark.skipif(shutil.which("gmsh") is None, reason="needs the program gmsh")
def test_a_study_of_shapes_that_gmsh_makes(tmp_path):
    """A channel over a bump; where the bump is higher than the channel, gmsh has no mesh for it."""
    (tmp_path / "bump.geo").write_text(
        """SetFactory("OpenCASCADE");
DefineConstant[ height = {0.2, Min 0, Max 1}, size = 0.2 ];
Point(1) = {0, 0, 0, size}; Point(2) = {1, 0, 0, size}; Point(3) = {1.5, height, 0, size};
Point(4) = {2, 0, 0, size}; Point(5) = {4, 0, 0, size}; Point(6) = {4, 1, 0, size}; Point(7) = {0, 1, 0, size};
Line(1) = {1, 2}; Bezier(2) = {2, 3, 4}; Line(3) = {4, 5}; Line(4) = {5, 6}; Line(5) = {6, 7}; Line(6) = {7, 1};
If (height >= 2)
  Error("the bump closes the channel");
  Abort;
EndIf
Curve Loop(1) = {1:6}; Plane Surface(1) = {1};
Physical Curve("wall") = {1, 2, 3, 5}; Physical Curve("outlet") = {4}; Physical Curve("inlet") = {6};
Physical Surface("fluid") = {1};
"""
    )
    study = Study(
        tmp_path / "bump.geo", {"height": [0.0, 1.0, 2.5], "size": [0.2], "viscosity": [0.02]},
        ["pressure drop inlet outlet", "flow rate outlet"], problem=PROBLEM, level="fast", times=1.0,
    )  # fmt: skip
    table = study.run(tmp_path / "study")
    narrow, wide = table["pressure drop inlet outlet"][1], table["pressure drop inlet outlet"][0]
    assert narrow > 1.3 * wide > 0
    assert table["flow rate outlet"][:2] == pytest.approx([1.0, 1.0], abs=1e-10)
    assert not table.rows[2].quantities
    assert "the bump closes the channel" in table.rows[2].reason


def test_without_gmsh_it_is_said_where_it_is_found(tmp_path, monkeypatch):
    (tmp_path / "part.geo").write_text(GEO)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"gmsh, which is not on the PATH.*gmsh\.info"):
        gmsh_mesh(tmp_path / "part.geo", radius=0.2, size=0.1)


# Designs as cases of OpenFOAM


def test_the_case_that_is_written_for_a_design_is_the_case_that_was_predicted(tmp_path):
    folder = write_plane_channel(tmp_path / "case")
    study = Study(folder, {"viscosity": [0.03], "left.u": [1.75], "right.p": [2.0]}, ["flow rate right"])
    values = study.designs[0].values
    write_design(study, values, tmp_path / "written")
    ours, theirs = study.case_of(values), Study(tmp_path / "written", {}, []).case_of({})
    for name in ("u", "p"):
        torch.testing.assert_close(ours.dirichlet[name].values, theirs.dirichlet[name].values)
        assert ours.dirichlet[name].mask.equal(theirs.dirichlet[name].mask)
    assert ours.parameters == theirs.parameters
    assert (tmp_path / "case" / "0" / "U").read_text().count("(1 0 0)") == 1


def test_what_is_no_openfoam_case_cannot_be_written_as_one(tmp_path):
    study = Study(coarse_mesh("a_0.30", cells_per_length=5), {"viscosity": [0.1]}, ["flow rate outlet"], PROBLEM)
    with pytest.raises(ValueError, match="Only designs that are OpenFOAM cases"):
        write_design(study, {"viscosity": 0.1}, tmp_path / "written")
