"""The examples run, and show what they say."""

import ast
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from paths import ROOT, load_script

EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    return load_script(EXAMPLES / f"{name}.py")


def test_no_example_is_forgotten():
    """Each is run by a test here and has a row in the gallery, with its picture if docs/gallery.py draws one."""
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    source = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    run = {
        call.func.value.args[0].value
        for call in ast.walk(source)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "main"
        and isinstance(call.func.value, ast.Call)
        and isinstance(call.func.value.args[0], ast.Constant)
    }
    assert run == names
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(gallery/(\w+)\.md\)", page)) == names
    for name in names:
        assert f"examples/{name}.py" in (ROOT / "docs" / "gallery" / f"{name}.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(images/gallery/(\w+)\.png\)", page))
    pictures = list((ROOT / "docs" / "images" / "gallery").iterdir())
    assert shown == {path.stem for path in pictures} <= names
    assert max(path.stat().st_size for path in pictures) < 150_000


def test_a_normal_derivative_improves_the_gradient_on_a_mesh(tmp_path, capsys):
    errors = load("operators_on_a_mesh").main(tmp_path)
    assert errors["of a linear field"] < 1e-12
    assert errors["with the normal derivative"] < 0.7 * errors["without the normal derivative"]
    assert (tmp_path / "beam.vtu").stat().st_size > 1000
    assert "beam.vtu" in capsys.readouterr().out


@pytest.mark.slow
def test_your_own_equation_solves_burgers_crudely_and_learns(capsys):
    error = load("your_own_equation").main(steps=10, cases=8)
    told = [float(line.rsplit(maxsplit=1)[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(told) == 3
    nothing, before, after = told
    assert after == pytest.approx(error, abs=1e-3)
    assert before < 0.6 * nothing
    assert after < before


def test_the_walls_of_your_own_equation_are_exact():
    import pennpde as penn
    from pennpde.testing import assert_dirichlet, assert_equivariant

    example = load("your_own_equation")
    network = penn.PENN(example.Burgers(width=4), width=4, time_step=example.TIME)
    assert_dirichlet(network, example.random_case(0))
    assert_equivariant(network.double(), example.random_case(0), motions=1)


def test_a_pretrained_network_heats_a_mesh_of_yours(tmp_path, capsys):
    from pennpde import registry

    network = "advection-diffusion"
    if network not in registry.shipped():
        pytest.skip(f"no network {network} comes with the package yet")
    outcome = load("predict_on_your_mesh").main(tmp_path, network)
    temperature = outcome.fields["T"]
    hot = outcome.case.dirichlet["T"].mask
    assert (temperature[hot] == 0.8).all()
    assert temperature.mean(dim=0).diff().min() > 0  # it warms up
    assert -0.1 < temperature.min() <= temperature.max() < 0.9
    assert "heat.vtu" in capsys.readouterr().out
    assert (tmp_path / "heat.vtu").stat().st_size > 1000


def test_the_example_on_your_mesh_runs_with_any_network_of_its_equation(tmp_path):
    from commands import store

    outcome = load("predict_on_your_mesh").main(tmp_path, store(tmp_path / "network", "advection-diffusion"))
    assert (outcome.fields["T"][outcome.case.dirichlet["T"].mask] == 0.8).all()
    assert outcome.times == (0.25, 0.5, 0.75, 1.0)


def test_physical_groups_of_gmsh_are_patches_of_a_predicted_flow(tmp_path, capsys):
    outcome = load("mesh_from_gmsh").main(folder=tmp_path)
    mesh, velocity = outcome.case.mesh, outcome.last["u"]
    assert set(mesh.patches) == {"inlet", "outlet", "wall"}
    covered = np.unique(np.concatenate([patch.facets for patch in mesh.patches.values()]))
    assert len(covered) == len(mesh.facets)
    assert (velocity[mesh.patch("wall").points] == 0).all()
    assert outcome.certificate.check("flux imbalance").value < 0.02
    # A part in metres and seconds that no calibration has seen may be graded fair, which is a warning; nothing else is.
    assert all(each.startswith("Graded ") for each in outcome.certificate.warnings)
    assert 0.1 < velocity.norm(dim=1).max() < 0.15
    assert "duct.vtu" in capsys.readouterr().out


def test_an_openfoam_case_goes_in_and_out(tmp_path):
    from pennpde.openfoam import read_field

    outcome, written = load("openfoam_case").main(folder=tmp_path)
    assert all(each.startswith("Graded ") for each in outcome.certificate.warnings)
    assert outcome.certificate.check("flux imbalance").value < 0.02
    assert written == tmp_path / "duct" / "4"
    velocity = read_field(written / "U")
    mesh = outcome.case.mesh
    cells = velocity.values(mesh.number_of_cells)
    quads = mesh.connectivity.reshape(-1, 4)
    corners = outcome.last["u"][quads].mean(dim=1).numpy()
    # Away from the boundary, whose jumps are not the cells', second-order values are close to the mean of the corners;
    # in layers thinner than a cell they differ by a tenth.
    inner = ~np.isin(quads, mesh.boundary_points).any(axis=1)
    apart = np.abs(cells[inner, :2] - corners[inner])
    assert np.quantile(apart, 0.95) < 0.05
    assert apart.max() < 0.2
    assert velocity.boundary["wall"]["type"] == "noSlip"


@pytest.mark.slow
def test_a_few_steps_of_training_lower_the_error_and_the_network_is_stored(tmp_path, capsys):
    import pennpde as penn

    before, after = load("train_a_network").main(tmp_path / "network", steps=15, train=8, validation=2)
    assert after < 0.8 * before
    assert "validation loss" in capsys.readouterr().out
    assert isinstance(penn.load_pretrained(tmp_path / "network"), penn.PENN)


@pytest.mark.slow
def test_the_training_of_the_example_brings_what_the_gallery_says():
    before, after = load("train_a_network").main()
    assert after < 0.2
    assert before > 0.7


@pytest.mark.slow
def test_a_fluid_slips_along_walls_and_sticks_to_others():
    outcome = load("slip_walls").main()
    assert outcome["error"] < 1e-7
    assert outcome["slowed"] < 0.01
    assert outcome["across"] < 1e-14
    assert outcome["along"] > 0.1


@pytest.mark.slow
def test_a_stress_diffuses_to_its_exact_state_and_turns_with_the_mesh():
    outcome = load("tensor_field").main()
    assert outcome["error"] < 1e-10
    assert outcome["deviation"] < 1e-12
    assert outcome["skew"] < 1e-14
    # ds/dx = SHEARED - PULLED, whose first row is what div takes of a field that depends on x only.
    np.testing.assert_allclose(outcome["force"], np.tile([-2.0, 1.0], (len(outcome["force"]), 1)), atol=1e-8)


@pytest.mark.slow
def test_a_block_cools_at_its_rate_and_a_network_learns_it(tmp_path):
    rates, errors = load("heat_in_space").main(tmp_path, cells=6, steps=30)
    assert abs(rates["smaller hexahedra"] - 1) < 0.5 * abs(rates["hexahedra"] - 1)
    assert 0.7 < rates["tetrahedra"] < 1
    assert errors["trained network"] < min(errors["explicit steps"], 0.5 * errors["untrained network"])
    assert (tmp_path / "block.vtu").stat().st_size > 1000


@pytest.mark.slow
def test_a_cooled_plate_reaches_its_analytic_state():
    assert load("robin_condition").main() < 1e-6


@pytest.mark.slow
def test_a_pressure_drop_drives_a_periodic_channel(capsys):
    assert load("periodic_channel").main() < 0.01
    assert "over the seam: 0.0" in capsys.readouterr().out


def test_an_inlet_that_changes_is_exact_at_every_output_time():
    assert load("time_dependent_inlet").main() == 0.0


@pytest.mark.slow
def test_outlets_of_a_manifold_share_the_flow(tmp_path):
    best = load("optimise_manifold").main(tmp_path, size=0.25, level="fast")
    before, after = (each["flow imbalance a b c"][0] for each in (best.before, best.after))
    assert after < 0.2 * before
    assert (tmp_path / "best.vtu").stat().st_size > 1000


@pytest.mark.slow
def test_a_diffuser_loses_less():
    best = load("optimise_diffuser").main(across=6, level="fast", most=12)
    assert best.gain > max(best.expected_error, 0.03 * best.before["total pressure drop inlet outlet"][0])


@pytest.mark.slow
def test_probes_tell_the_profile_of_an_inlet():
    assert load("inlet_from_probes").main(size=0.1, level="fast")["error"] < 0.1


def test_your_own_condition_holds():
    assert load("your_own_condition").main() < 1e-12


def test_your_own_condition_is_turned_batched_and_scaled():
    import torch

    import pennpde as penn
    from pennpde.case.units import Scale, Units
    from pennpde.testing import assert_equivariant

    example = load("your_own_condition")
    torch.manual_seed(0)
    network = penn.PENN(example.Diffusion(width=4), width=4, time_step=0.01).double()
    cases = [example.blown_box(6), example.blown_box(4, 0.5)]
    assert_equivariant(network, cases[0], motions=1)
    alone = [network(case)["u"] for case in cases]
    torch.testing.assert_close(network(penn.batch(cases))["u"], torch.cat(alone), rtol=0, atol=1e-12)
    scaled = Units(1.0, 1.0, {"u": Scale(2.0)}).dimensionless(cases[0]).conditions["porous"]["u"]
    torch.testing.assert_close(2 * scaled.through, cases[0].conditions["porous"]["u"].through)


def test_a_mesh_is_repaired_and_every_repair_is_told(tmp_path, capsys):
    mesh, error = load("repair_a_mesh").main(tmp_path)
    assert (mesh.number_of_points, mesh.number_of_cells) == (9 * 5, 32)
    assert {name: len(patch.facets) for name, patch in mesh.patches.items()} == {"cold": 4, "hot": 4}
    assert [note.split(":")[0] for note in mesh.notes] == ["brought to first order", "left out", "merged"]
    assert error < 1e-12
    assert "without repair: " in capsys.readouterr().out


def test_a_network_is_packed_and_its_copy_predicts_the_same(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PENN_CACHE", str(tmp_path / "cache"))
    packed, difference = load("share_a_network").main(folder=tmp_path)
    assert difference == 0
    assert packed.path.stat().st_size < 200_000
    assert f"#sha256={packed.sha256}" in capsys.readouterr().out
