"""A uniform force drives a periodic channel as a pressure does that falls; other sources stay unread."""

from pathlib import Path

import numpy as np
import pytest
import torch

from foam_cases import RESTING, write_conditions, write_dictionary, write_plane_channel
from pennpde import openfoam
from pennpde.models.ducts import Flow
from pennpde.openfoam.cases import uniform_forces

SOURCE = {
    "type": "vectorSemiImplicitSource",
    "timeStart": 0,
    "selectionMode": "all",
    "volumeMode": "specific",
    "injectionRateSuSp": {"U": "((5 0 0) 0)"},
}


def driven_channel(tmp_path: Path, source: dict) -> Path:
    """Periodic along x, of length 1."""
    folder = write_plane_channel(tmp_path / "channel", (3, 4, 1))
    boundary = folder / "constant" / "polyMesh" / "boundary"
    text = boundary.read_text()
    for one, other in (("left", "right"), ("right", "left")):
        text = text.replace(f"{one} {{ type patch;", f"{one} {{ type cyclic; neighbourPatch {other};")
    boundary.write_text(text)
    ends = {"left": "type cyclic;", "right": "type cyclic;", "front": "type empty;", "back": "type empty;"}
    write_conditions(folder, "U", "uniform (0 0 0)", RESTING | ends)
    write_conditions(folder, "p", "uniform 0", {'".*"': "type zeroGradient;"} | ends)
    write_dictionary(folder / "constant" / "fvOptions", {"momentumSource": source})
    write_dictionary(folder / "system" / "fvSolution", {"PISO": {"pRefCell": 0, "pRefValue": 0}})
    return folder


def test_a_force_becomes_a_pressure_that_falls_between_periodic_patches(tmp_path):
    case = openfoam.read_problem(driven_channel(tmp_path, SOURCE), Flow(2))
    left, right = (case.mesh.patch(name).points for name in ("left", "right"))
    shift = case.periodic["p"].shift
    torch.testing.assert_close(shift[right] - shift[left], torch.full((5,), -5.0, dtype=torch.float64))
    texts = [remark.text for remark in case.remarks]
    assert any("uniform force (5 0)" in text for text in texts)
    assert not any("does not know such terms" in text for text in texts)


def test_a_written_pressure_is_free_of_the_force(tmp_path):
    folder = driven_channel(tmp_path, SOURCE)
    case = openfoam.read_problem(folder, Flow(2))
    falling = {"p": -5 * case.mesh.points[:, 0]}
    written = openfoam.write_time(folder, "1", case.mesh, falling, Flow.foam_fields)
    pressure = openfoam.read_field(written / "p", folder).values(12)
    np.testing.assert_allclose(pressure, pressure[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"selectionMode": "cellZone"},
        {"volumeMode": "absolute"},
        {"injectionRateSuSp": {"U": "((5 0 0) 2)"}},
        {"injectionRateSuSp": {"T": "(5 0)"}},
        {"type": "meanVelocityForce"},
        {"timeStart": 3},
        {"active": "no"},
    ],
)
def test_other_sources_are_no_uniform_force(tmp_path, change):
    folder = driven_channel(tmp_path, SOURCE | change)
    assert uniform_forces(folder) == {}
    case = openfoam.read_problem(folder, Flow(2))
    assert not case.periodic["p"].shift.any()
    known = any("does not know such terms" in remark.text for remark in case.remarks)
    assert known == (change != {"active": "no"})


def test_a_force_in_a_case_that_is_not_periodic_stays_unread(tmp_path):
    folder = write_plane_channel(tmp_path / "channel")
    write_dictionary(folder / "constant" / "fvOptions", {"momentumSource": SOURCE})
    case = openfoam.read_problem(folder, Flow(2))
    assert any("does not know such terms" in remark.text for remark in case.remarks)


def test_a_viscoelastic_fluid_has_its_viscosity_at_rest_and_is_remarked_on(tmp_path):
    folder = write_plane_channel(tmp_path / "channel")
    model = {"laminarModel": "Maxwell", "MaxwellCoeffs": {"nuM": 0.5, "lambda": 5}}
    write_dictionary(folder / "constant" / "turbulenceProperties", {"simulationType": "laminar", "laminar": model})
    case = openfoam.read_problem(folder, Flow(2))
    assert float(case.parameters["viscosity"]) == pytest.approx(0.51)
    assert any("Maxwell" in remark.text and remark.severe for remark in case.remarks)
