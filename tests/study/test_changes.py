"""Other parameters and boundary values of a case: the same case as if it had been written so."""

import pytest
import torch

from foam_cases import read_flow, write_plane_channel
from pennpde.case import Case, Table
from pennpde.models.designs import coarse_mesh
from pennpde.study.changes import changed


def step(speed=1.0, viscosity=1e-2, inlet=None, outlet=0.0):
    mesh = coarse_mesh("a_0.30", cells_per_length=5)
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": inlet or (speed, 0.0), "wall": 0.0}, "p": {"outlet": outlet}},
        neumann={"u": 0.0, "p": 0.0},
        parameters={"viscosity": viscosity},
    )


def same(one, other):
    for name in ("u", "p"):
        mine, theirs = one.dirichlet[name], other.dirichlet[name]
        assert torch.equal(mine.values, theirs.values)
        assert torch.equal(mine.mask, theirs.mask)
        assert (mine.on_facets.ends == theirs.on_facets.ends).all()
        assert torch.equal(mine.apply(one.initial[name]), theirs.apply(other.initial[name]))
    return one.parameters == other.parameters


def test_a_changed_case_is_the_case_that_was_written_so():
    assert same(changed(step(), {"inlet.u": 2.5, "viscosity": 0.03, "outlet.p": 4.0}), step(2.5, 0.03, outlet=4.0))
    assert same(changed(step(), {"inlet.u.y": 0.5}), step(inlet=(1.0, 0.5)))


def test_the_given_case_stays_as_it_was():
    case = step()
    changed(case, {"inlet.u": 2.0, "viscosity": 1.0})
    assert same(case, step())


def test_what_does_not_change_is_shared_so_that_it_is_not_computed_again():
    case = step()
    other = changed(case, {"viscosity": 0.02})
    assert other.mesh is case.mesh
    assert other.dirichlet["u"] is case.dirichlet["u"]
    assert other.initial["u"] is case.initial["u"]


def test_a_profile_keeps_its_shape_and_its_largest_speed_is_the_number():
    mesh = coarse_mesh("a_0.30", cells_per_length=8)
    y = mesh.points[:, 1]
    parabola = torch.stack([4 * (y - 1) * (2 - y), 0 * y], dim=1).numpy()
    before = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": parabola, "wall": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 1e-2},
    )
    after = changed(before, {"inlet.u": 3.0}).dirichlet["u"]
    points = mesh.patch("inlet").points
    assert float(after.values[points].norm(dim=1).max()) == pytest.approx(3.0, rel=1e-12)
    ratio = 3.0 / float(before.dirichlet["u"].values[points].norm(dim=1).max())
    torch.testing.assert_close(after.values, ratio * before.dirichlet["u"].values)


def test_through_a_patch_at_rest_flow_enters_at_right_angles():
    found = changed(step(inlet=(0.0, 0.0)), {"inlet.u": 2.0}).dirichlet["u"]
    inside = [point for point in step().mesh.patch("inlet").points if point not in step().mesh.patch("wall").points]
    torch.testing.assert_close(found.values[inside], torch.tensor([[2.0, 0.0]]).double().expand(len(inside), 2))


def test_resting_walls_keep_the_corners_that_they_share_with_an_inlet():
    case = changed(step(), {"inlet.u": 5.0})
    shared = set(case.mesh.patch("inlet").points) & set(case.mesh.patch("wall").points)
    assert shared
    assert not case.dirichlet["u"].values[list(shared)].any()


def test_a_case_of_openfoam_changes_as_its_file_would(tmp_path):
    folder = write_plane_channel(tmp_path / "case")
    before = read_flow(folder)
    path = folder / "0" / "U"
    path.write_text(path.read_text().replace("uniform (1 0 0)", "uniform (1.75 0 0)"))
    after = read_flow(folder)
    found = changed(before, {"left.u": 1.75})
    torch.testing.assert_close(found.dirichlet["u"].values, after.dirichlet["u"].values)
    torch.testing.assert_close(found.initial["u"], after.initial["u"])


@pytest.mark.parametrize("name", ["inlet.T", "inlte.u", "density", "inlet.u.z", "inlet.p.x"])
def test_a_name_that_the_case_does_not_have_is_refused_with_those_it_has(name):
    with pytest.raises(ValueError, match=r"viscosity.*inlet\.u.*outlet\.p"):
        changed(step(), {name: 1.0})


def test_what_is_not_prescribed_or_changes_with_time_is_refused():
    with pytest.raises(ValueError, match="not prescribed"):
        changed(step(), {"outlet.u": 1.0})
    pulse = Table([(0.0, (0.0, 0.0)), (1.0, (1.0, 0.0))], outside="clamp")
    with pytest.raises(ValueError, match="changes with time"):
        changed(step(inlet=pulse), {"inlet.u": 1.0})
