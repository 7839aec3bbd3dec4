"""Cases made with OpenFOAM's own tools go in and come out, and OpenFOAM goes on from what came out."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import penn, store
from foam_cases import write_dictionary
from pennlab import running
from pennlab.datasets.flow.ducts import blocks_of
from pennpde import checkpoints, openfoam
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, duct, flow_case
from pennpde.openfoam import NonUniform, Uniform
from pennpde.prediction import predict

pytestmark = pytest.mark.openfoam


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Path:
    ranges = {"Reynolds number": (1000.0, 1000.0), "inflow over that of an even inlet": (1.0, 1.0)}
    return store(tmp_path_factory.mktemp("network"), ranges=ranges)


def settings_of_icofoam(folder: Path, start: float, time_step: float) -> None:
    """Two steps from the latest time on."""
    control = {
        "application": "icoFoam",
        "startFrom": "latestTime",
        "startTime": 0,
        "stopAt": "endTime",
        "endTime": start + 2 * time_step,
        "deltaT": time_step,
        "writeControl": "timeStep",
        "writeInterval": 2,
        "timePrecision": 12,
    }
    schemes = {
        "ddtSchemes": {"default": "Euler"},
        "gradSchemes": {"default": "Gauss linear"},
        "divSchemes": {"default": "Gauss upwind"},
        "laplacianSchemes": {"default": "Gauss linear corrected"},
        "interpolationSchemes": {"default": "linear"},
        "snGradSchemes": {"default": "corrected"},
    }
    solver = {"solver": "PBiCGStab", "preconditioner": "diagonal", "tolerance": 1e-6, "relTol": 0.01}
    solution = {"solvers": {'"(p|pFinal|U)"': solver}, "PISO": {"nCorrectors": 2, "pRefCell": 0, "pRefValue": 0}}
    write_dictionary(folder / "system" / "controlDict", control)
    write_dictionary(folder / "system" / "fvSchemes", schemes)
    write_dictionary(folder / "system" / "fvSolution", solution)


def goes_on(folder: Path, start: str, time_step: float, installation: running.Installation) -> None:
    """OpenFOAM runs two steps from a time that `penn predict` wrote."""
    settings_of_icofoam(folder, float(start), time_step)
    steps: list[float] = []
    running.run(
        folder,
        "icoFoam",
        installation=installation,
        on_progress=lambda step: steps.append(step.time),
        largest_courant=1e9,
        timeout=120,
    )
    np.testing.assert_allclose(steps, float(start) + time_step * np.array([1, 2]), rtol=1e-6)
    last = openfoam.time_folders(folder)[-1]
    cells = openfoam.PolyMesh.read(folder).number_of_cells
    assert np.isfinite(openfoam.read_field(last / "U", folder).values(cells)).all()


def predicted(folder: Path, network: Path, out: Path, time: str, *options: str) -> dict:
    finished = penn("predict", folder, "--model", network, "--out", out, "--write-time", time, "--json", *options)
    assert finished.exit_code == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.mark.slow
def test_the_tutorial_pitzdaily_goes_in_and_comes_out_and_icofoam_goes_on(installation, tutorials, network, tmp_path):
    folder = shutil.copytree(tutorials / "simpleFoam/pitzDaily", tmp_path / "pitzDaily")
    (folder / "system" / "streamlines").unlink(missing_ok=True)
    running.run(folder, "blockMesh", installation=installation)
    settings_of_icofoam(folder, 0.0, 1e-6)
    options = "--png", str(tmp_path / "flow.png"), "--force"
    record = predicted(folder, network, tmp_path / "flow.vtu", "0.01", *options)
    assert record["expected"]["grade"] == "refused"
    assert record["expected"]["errors"] == {}
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    # An inlet of 25.4 mm and 10 m/s: the network's four time units are 10.16 ms.
    assert record["times"] == pytest.approx([4 * 0.0254 / 10], rel=1e-3)
    reynolds = record["certificate"]["compared"]["Reynolds number"]
    assert reynolds["value"] == pytest.approx(25400, rel=1e-3)
    assert not reynolds["inside"]
    mesh = Mesh.read(tmp_path / "flow.vtu")
    assert mesh.number_of_cells == 12225
    # At the corners of the inlet the wall wins.
    inlet = np.isclose(mesh.points[:, 0], mesh.points[:, 0].min())
    assert sorted(mesh.fields["u"][inlet, 0].unique().tolist()) == [0, 10]
    goes_on(folder, "0.01", 1e-6, installation)


def test_the_tutorial_cavity_is_predicted_at_its_reference_pressure_with_a_warning(
    installation, tutorials, network, tmp_path
):
    folder = shutil.copytree(tutorials / "icoFoam/cavity/cavity", tmp_path / "cavity")
    running.run(folder, "blockMesh", installation=installation)
    record = predicted(folder, network, tmp_path / "flow.vtu", "0.4")
    warnings = record["certificate"]["warnings"]
    assert any(warning.startswith("Inflow over that of an even inlet is 0;") for warning in warnings)
    assert record["certificate"]["checks"]["flux imbalance"]["value"] == pytest.approx(0, abs=1e-9)
    assert Mesh.read(tmp_path / "flow.vtu").number_of_cells == 400
    goes_on(folder, "0.4", 1e-4, installation)


LAMINAR = {
    "icoFoam/elbow": [],
    "pimpleFoam/laminar/planarContraction": [
        "warning: constant/turbulenceProperties: the fluid is viscoelastic (Maxwell)",
        "warning: 0/ also has sigma",
    ],
    "pimpleFoam/laminar/planarPoiseuille": [
        "The cyclic patches left and right are taken as periodic.",
        "The uniform force (5 0) of fvOptions is taken as a pressure that falls between the periodic patches",
        "It is periodic between cyclic patches.",
    ],
    "pisoFoam/laminar/porousBlockage": [
        "warning: constant/fvOptions adds porosity1 (explicitPorositySource)",
        "pressureInletOutletVelocity is taken as an opening",
    ],
    "nonNewtonianIcoFoam/offsetCylinder": ["the fluid is 'CrossPowerLaw'"],
    "pisoFoam/RAS/cavity": ["the flow is turbulent, simulationType RAS with the model kEpsilon"],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAMINAR)
def test_plane_tutorials_are_predicted_or_refused_with_what_the_network_does_not_know(
    installation, tutorials, network, tmp_path, name
):
    folder = shutil.copytree(tutorials / name, tmp_path / "case")
    for packed in folder.rglob("*.gz"):  # Debian packs some of them
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    for template in folder.rglob("*.template"):
        text = template.read_text().replace("END_TIME", "25").replace("MODEL", "Maxwell")
        template.with_suffix("").write_text(text)
        template.unlink()
    if (folder / "0.orig").is_dir() and not (folder / "0").is_dir():
        shutil.copytree(folder / "0.orig", folder / "0")
    mesh = next(folder.glob("*.msh"), None)
    if mesh is not None:
        running.run(folder, "fluentMeshToFoam", mesh.name)
    else:
        running.run(folder, "blockMesh", installation=installation)
    finished = penn("predict", folder, "--model", network, "--out", tmp_path / "flow.vtu", "--quiet", "--force")
    assert finished.exit_code in (0, 1)
    assert "looks like a bug" not in finished.stderr
    for words in LAMINAR[name]:
        if not words.startswith("The ") or finished.exit_code:  # a note, which --quiet leaves out
            assert words in finished.stderr
    assert (tmp_path / "flow.vtu").exists() == (finished.exit_code == 0)


RENAMED = {"inlet": "left_opening", "wall": "steel", "outlet": "right-end"}


@pytest.fixture(scope="module")
def step(installation, tmp_path_factory) -> Path:
    """A step meshed by blockMesh, its patches under names of the user's own, 0.2 wide, with 3 m/s."""
    folder = tmp_path_factory.mktemp("step")
    shape, width, speed = duct("a_0.40"), 0.2, 3.0
    blocks = [
        running.Block(tuple((width * x, width * y) for x, y in block.corners), block.cells)
        for block in blocks_of(shape, 6)
    ]
    sides = {
        RENAMED[name]: (
            "wall" if name == "wall" else "patch",
            [tuple((width * x, width * y) for x, y in side) for side in given],
        )
        for name, given in shape.patches.items()
    }
    (folder / "system").mkdir()
    (folder / "constant").mkdir()
    (folder / "0").mkdir()
    (folder / "system" / "blockMeshDict").write_text(running.block_mesh_dictionary(blocks, sides, 0.01))
    settings_of_icofoam(folder, 0.0, 1e-5)
    write_dictionary(folder / "constant" / "transportProperties", {"nu": f"[0 2 -1 0 0 0 0] {1e-3 * width * speed}"})
    halves = {"numberOfSubdomains": 2, "method": "simple", "simpleCoeffs": {"n": "(2 1 1)", "delta": 0.001}}
    write_dictionary(folder / "system" / "decomposeParDict", halves)
    running.run(folder, "blockMesh", installation=installation)
    cells = openfoam.PolyMesh.read(folder).number_of_cells
    velocity = {
        RENAMED["inlet"]: {"type": "fixedValue", "value": Uniform(np.array([speed, 0, 0]))},
        RENAMED["outlet"]: {"type": "zeroGradient"},
        RENAMED["wall"]: {"type": "noSlip"},
        "frontAndBack": {"type": "empty"},
    }
    pressure = {
        RENAMED["inlet"]: {"type": "zeroGradient"},
        RENAMED["wall"]: {"type": "zeroGradient"},
        RENAMED["outlet"]: {"type": "fixedValue", "value": Uniform(0.0)},
        "frontAndBack": {"type": "empty"},
    }
    openfoam.write_field(folder / "0" / "U", np.zeros((cells, 3)), openfoam.VELOCITY, velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(cells), openfoam.PRESSURE, pressure)
    return folder


def by_position(mesh: Mesh) -> torch.Tensor:
    """Points with their fields, in an order that numbers do not decide."""
    rows = torch.cat([mesh.points, mesh.fields["u"], mesh.fields["p"][:, None]], dim=1).numpy()
    return torch.from_numpy(rows[np.lexsort(rows[:, :2].round(9).T)])


def test_a_step_from_blockmesh_is_the_step_of_the_dataset_whatever_its_patches_are_called(
    installation, step, network, tmp_path
):
    folder = shutil.copytree(step, tmp_path / "step")
    record = predicted(folder, network, tmp_path / "flow.vtu", "0.25")
    assert record["times"] == pytest.approx([4 * 0.2 / 3])
    assert all(each["inside"] for each in record["certificate"]["compared"].values())
    mesh = coarse_mesh("a_0.40", cells_per_length=6, jitter=0.0)
    ours = predict(checkpoints.load(network), flow_case(mesh)).mesh
    found = by_position(Mesh.read(tmp_path / "flow.vtu")) / torch.tensor([0.2, 0.2, 3, 3, 9], dtype=torch.float64)
    torch.testing.assert_close(found, by_position(ours), rtol=0, atol=1e-4)  # single precision, other order of sums
    goes_on(folder, "0.25", 1e-5, installation)


def test_a_decomposed_case_gives_the_fields_of_the_whole_one(installation, step, network, tmp_path):
    folder = shutil.copytree(step, tmp_path / "step")
    running.run(folder, "decomposePar", installation=installation)
    predicted(folder, network, tmp_path / "whole.vtu", "0.25")
    shutil.rmtree(folder / "0.25")
    shutil.rmtree(folder / "0")  # fields only with the processors, then the mesh as well
    refused = penn("predict", folder, "--model", network, "--write-time", "0.3")
    assert refused.exit_code == 1
    assert "reconstructPar -withZero" in refused.stderr
    whole = by_position(Mesh.read(tmp_path / "whole.vtu"))
    for mesh_is_there in (True, False):
        if not mesh_is_there:
            shutil.rmtree(folder / "constant" / "polyMesh")
        finished = penn("predict", folder, "--model", network, "--out", tmp_path / "parts.vtu")
        assert finished.exit_code == 0, finished.stderr
        parts = by_position(Mesh.read(tmp_path / "parts.vtu"))
        torch.testing.assert_close(parts, whole, rtol=0, atol=1e-3)  # speeds of 3, pressures of 9, single precision
    refused = penn("predict", folder, "--model", network, "--write-time", "0.3")
    assert refused.exit_code == 1
    assert "reconstructParMesh" in refused.stderr


@pytest.fixture(scope="module")
def polyhedra(installation, tmp_path_factory) -> Path:
    """The dual of a channel of hexahedra in space, made by polyDualMesh."""
    folder = tmp_path_factory.mktemp("polyhedra")
    for name in ("system", "constant", "0"):
        (folder / name).mkdir()
    corners = [f"({x} {y} {z})" for z in (0, 1) for x, y in ((0, 0), (3, 0), (3, 1), (0, 1))]
    block = {
        "vertices": f"({' '.join(corners)})",
        "blocks": "(hex (0 1 2 3 4 5 6 7) (6 3 3) simpleGrading (1 1 1))",
        "edges": "()",
        "boundary": "(inlet { type patch; faces ((0 4 7 3)); } outlet { type patch; faces ((1 2 6 5)); } walls { type "
        "wall; faces ((0 1 5 4) (3 7 6 2) (0 3 2 1) (4 5 6 7)); })",
    }
    write_dictionary(folder / "system" / "blockMeshDict", block)
    settings_of_icofoam(folder, 0.0, 1e-4)
    write_dictionary(folder / "constant" / "transportProperties", {"nu": "[0 2 -1 0 0 0 0] 0.001"})
    running.run(folder, "blockMesh", installation=installation)
    running.run(folder, "polyDualMesh", "75", "-overwrite", installation=installation)
    cells = openfoam.PolyMesh.read(folder).number_of_cells
    velocity = {
        "inlet": {"type": "fixedValue", "value": Uniform(np.array([1.0, 0, 0]))},
        "outlet": {"type": "zeroGradient"},
        "walls": {"type": "noSlip"},
    }
    pressure = {
        '"(inlet|walls)"': {"type": "zeroGradient"},
        "outlet": {"type": "fixedValue", "value": Uniform(0.0)},
    }
    openfoam.write_field(folder / "0" / "U", np.zeros((cells, 3)), openfoam.VELOCITY, velocity)
    openfoam.write_field(folder / "0" / "p", np.zeros(cells), openfoam.PRESSURE, pressure)
    return folder


def test_polyhedra_of_polydualmesh_go_in_and_come_out_and_icofoam_goes_on(installation, polyhedra, network, tmp_path):
    folder = shutil.copytree(polyhedra, tmp_path / "polyhedra")
    record = predicted(folder, network, tmp_path / "flow.vtu", "4")
    mesh = Mesh.read(tmp_path / "flow.vtu")
    assert mesh.space == 3
    assert mesh.polyhedron_faces is not None
    assert record["certificate"]["dirichlet"] == {"u": 0, "p": 0}
    assert record["times"] == pytest.approx([4.0])
    goes_on(folder, "4", 1e-4, installation)


def test_the_written_time_passes_the_eyes_of_openfoams_own_checks(installation, step, network, tmp_path):
    folder = shutil.copytree(step, tmp_path / "step")
    predicted(folder, network, tmp_path / "flow.vtu", "0.25")
    running.run(folder, "checkMesh", "-time", "0.25", installation=installation)
    field = openfoam.read_field(folder / "0.25" / "U", folder)
    assert isinstance(field.internal, NonUniform)
    assert field.boundary[RENAMED["inlet"]]["type"] == "fixedValue"


def test_an_unsupported_condition_is_named_with_its_patch_and_field(installation, step, network, tmp_path):
    folder = shutil.copytree(step, tmp_path / "step")
    path = folder / "0" / "U"
    content = path.read_bytes().replace(b"noSlip", b"rotatingWallVelocity")
    path.write_bytes(content)
    finished = penn("predict", folder, "--model", network, "--out", tmp_path / "flow.vtu")
    assert finished.exit_code == 1
    for words in ("'steel'", "'U'", "'rotatingWallVelocity'"):
        assert words in finished.stderr
    assert not (tmp_path / "flow.vtu").exists()
