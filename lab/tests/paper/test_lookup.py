"""Look-ups without a network: exact where the family of cases is, and honest about what they look at."""

import numpy as np
import pytest
import torch

from pennlab.datasets.flow.ducts import carried
from pennlab.paper.lookup import LookUp, Scaled, _shares, by_name, floors, in_the_template, same_places, start
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, duct, flow_case


def square(velocity: float, temperature: float, field) -> Case:
    x, y = np.meshgrid(np.linspace(0, 1, 6), np.linspace(0, 1, 6))
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    first = np.arange(5)[None, :] + 6 * np.arange(5)[:, None]
    quads = np.stack([first, first + 1, first + 7, first + 6], axis=-1).reshape(-1, 4)
    mesh = Mesh.from_arrays(points, quads, patches={"inlet": np.flatnonzero(points[:, 0] == 0)})
    return Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": temperature}},
        parameters={"velocity": (velocity, 0.0), "diffusivity": 0.5},
        targets={"T": temperature * field(mesh.points, velocity)},
        name=f"u{velocity:.2f}_d0.50_t{temperature:.2f}",
    )


def smooth(points, velocity):
    """Quadratic in the parameter at every point, and the prescribed value on the inlet."""
    return 1 + points[:, 0] * (1 + 2 * velocity - 3 * velocity**2) + 0 * points[:, 1]


def by_velocity(case: Case):
    return "square", (float(case.parameters["velocity"][0]),)


def test_a_field_that_is_quadratic_in_the_parameters_is_found_exactly():
    train = [square(velocity, 1.0, smooth) for velocity in (0.0, 0.2, 0.4, 0.6)]
    wanted = square(0.3, 1.0, smooth)
    found = LookUp(train, by_velocity, 4, same_places)(wanted)
    torch.testing.assert_close(found["T"], wanted.targets["T"])
    nearest = LookUp(train, by_velocity, 1, same_places)(wanted)
    assert not torch.allclose(nearest["T"], wanted.targets["T"])


def test_shares_sum_to_one_and_do_not_depend_on_the_order():
    offsets = np.random.default_rng(0).normal(size=(14, 2))
    shares = _shares(offsets)
    assert shares.sum() == pytest.approx(1.0)
    assert _shares(offsets[::-1]) == pytest.approx(shares[::-1])
    assert _shares(offsets[:2]).sum() == pytest.approx(1.0)  # too few for any slope in two parameters


def test_a_multiple_of_a_training_case_is_found_by_scaling():
    train = [square(velocity, 1.0, smooth) for velocity in (0.1, 0.5)]
    wanted = square(0.5, 0.3, smooth)
    torch.testing.assert_close(Scaled(train)(wanted)["T"], wanted.targets["T"])


def test_the_start_holds_the_prescribed_values():
    case = square(0.5, 0.7, smooth)
    found = start(case)["T"]
    assert torch.equal(found[case.dirichlet["T"].mask], case.dirichlet["T"].values[case.dirichlet["T"].mask])
    assert float(found.sum()) == pytest.approx(6 * 0.7)


@pytest.mark.parametrize(
    ("name", "other"), [("a_0.30", "a_1.00"), ("b_0.10_0.70", "b_0.90_0.20"), ("c_0.00_1.00", "c_0.50_0.40")]
)
def test_places_in_a_template_go_there_and_back_and_corners_meet_corners(name, other):
    here, there = duct(name), duct(other)
    points = coarse_mesh(name, cells_per_length=6).points.numpy()
    moved = carried(points, here, there)
    assert carried(moved, there, here) == pytest.approx(points, abs=1e-9)
    corners = np.array([corner for region in here.regions for corner in region.corners], float)
    wanted = np.array([corner for region in there.regions for corner in region.corners], float)
    assert carried(corners, here, there) == pytest.approx(wanted, abs=1e-9)


def test_points_outside_of_the_duct_are_refused():
    with pytest.raises(ValueError, match=r"outside of the duct a_0\.30"):
        carried(np.array([[0.5, 0.5]]), duct("a_0.30"), duct("a_0.40"))


def test_a_duct_is_looked_up_among_its_own_template():
    def ours(name: str) -> Case:
        mesh = coarse_mesh(name, cells_per_length=5)
        return flow_case(mesh, name, {"u": torch.ones_like(mesh.points), "p": mesh.points[:, 0] * 0})

    train = [ours("a_0.20"), ours("b_0.10_0.10")]
    found = floors("flow", train)["nearest"](ours("a_0.30"))
    free = ~ours("a_0.30").dirichlet["u"].mask
    assert torch.allclose(found["u"][free], torch.ones_like(found["u"][free]))
    with pytest.raises(ValueError, match="of the family 'c'"):
        LookUp(train, by_name, 1, in_the_template)(ours("c_0.10_0.20"))
