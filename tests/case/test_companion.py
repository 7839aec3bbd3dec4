"""Companions of a mesh: they fill its domain, carry its problem, and what is found on them goes back."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import brick, heated_plate, rectangle
from torch.testing import assert_close

from pennpde.case import Case, Dirichlet
from pennpde.case.companion import back, ends_of_conditions, on_companion
from pennpde.datasets.flow.cases import coarse_mesh, flow_case
from pennpde.mesh import Mesh, triangulation
from pennpde.mesh.interpolation import interpolation
from pennpde.mesh.remesh import CompanionError, companion_mesh, spacing_of
from pennpde.models.flow import complete_flow, flow_network
from pennpde.network import PENN
from pennpde.prediction import predict
from pennpde.prediction.ranges import describe, spanned

SPACING = 0.1


def lattice(keep, cells: int = 40, width: float = 1.0) -> Mesh:
    """Those squares of a lattice whose middles pass a test."""
    mesh = rectangle((cells, cells), (width, width))
    quads = mesh.connectivity.reshape(-1, 4)
    quads = quads[keep(mesh.points.numpy()[quads].mean(axis=1))]
    used, numbers = np.unique(quads, return_inverse=True)
    return Mesh.from_arrays(mesh.points[torch.from_numpy(used)], numbers.reshape(-1, 4))


def l_shape() -> Mesh:
    mesh = lattice(lambda x: ~((x[:, 0] > 0.5) & (x[:, 1] > 0.5)))
    return mesh.with_patches({"left": lambda x: np.isclose(x[:, 0], 0.0), "low": lambda x: np.isclose(x[:, 1], 0.0)})


def square_with_hole(around: int = 96, across: int = 16, radius: float = 0.25) -> Mesh:
    """Quads in rings between a circle and a square of width 1; the circle is the patch hole."""
    angles = 2 * np.pi * np.arange(around) / around
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    square = 0.5 * circle / np.abs(circle).max(axis=1, keepdims=True)
    shares = np.linspace(0.0, 1.0, across + 1)[:, None, None]
    points = ((1 - shares) * circle + shares * square).reshape(-1, 2)
    number = np.arange(len(points)).reshape(across + 1, around)
    inner, outer = number[:-1], number[1:]
    corners = [inner, outer, np.roll(outer, -1, axis=1), np.roll(inner, -1, axis=1)]
    mesh = Mesh.from_arrays(points, np.stack([corner.ravel() for corner in corners], axis=1))
    # The upper half of the right side: a patch that ends where there is no corner.
    window = np.flatnonzero(np.isclose(points[:, 0], 0.5) & (points[:, 1] > -1e-9))
    return mesh.with_patches({"hole": number[0], "window": window})


def step() -> Mesh:
    return coarse_mesh("a_0.40", cells_per_length=20)


DOMAINS = {"step": step, "L": l_shape, "hole": square_with_hole}


@pytest.fixture(scope="module")
def pairs() -> dict[str, tuple[Mesh, Mesh]]:
    """Meshes, each with its companion."""
    return {name: (mesh := make(), companion_mesh(mesh, SPACING)) for name, make in DOMAINS.items()}


def length(mesh: Mesh, facets: np.ndarray | slice = slice(None)) -> float:
    return float(mesh.facet_areas.norm(dim=1)[facets].sum())


@pytest.mark.parametrize("name", DOMAINS)
def test_a_companion_fills_the_domain_and_its_patches_the_boundary(pairs, name):
    mesh, companion = pairs[name]
    assert np.diff(companion.offsets).tolist() == [3] * companion.number_of_cells
    assert companion.cell_volumes.min() > 0
    # Chords of a circle of radius R lose (h / R)² / 24 of its length, and here more of the small hole than of the rest.
    curved = 0.01 if name == "hole" else 1e-12
    assert float(companion.cell_volumes.sum()) == pytest.approx(float(mesh.cell_volumes.sum()), rel=curved)
    assert length(companion) == pytest.approx(length(mesh), rel=curved)
    assert companion.patches.keys() == mesh.patches.keys()
    for patch in mesh.patches:
        lengths = [length(each, each.patch(patch).facets) for each in (companion, mesh)]
        assert lengths[0] == pytest.approx(lengths[1], rel=curved)


@pytest.mark.parametrize("name", DOMAINS)
def test_corners_and_ends_of_patches_stay_points(pairs, name):
    mesh, companion = pairs[name]
    corners = {
        "step": [(0.0, 1.0), (0.0, 2.0), (3.0, 0.0), (3.0, 2.0)],
        "L": [(0, 0), (1, 0), (1, 0.5), (0.5, 0.5), (0.5, 1), (0, 1)],
        "hole": [(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (0.5, 0.0)],
    }[name]
    corners = torch.tensor(corners, dtype=torch.float64)
    assert float(torch.cdist(corners, mesh.points).amin(dim=1).amax()) < 1e-12
    assert float(torch.cdist(corners, companion.points).amin(dim=1).amax()) < 1e-12
    for patch in mesh.patches:
        # A point is an end where one of its facets is of the patch and one is not.
        ends = []
        for each in (mesh, companion):
            edges = each.facets.connectivity.reshape(-1, 2)
            held = np.isin(np.arange(len(edges)), each.patch(patch).facets)
            ends.append(each.points[np.intersect1d(edges[held], edges[~held])])
        assert len(ends[0]) == len(ends[1])
        assert len(ends[0]) == 0 or float(torch.cdist(*ends).amin(dim=1).amax()) < 1e-12


@pytest.mark.parametrize("name", DOMAINS)
def test_triangles_are_sound_and_as_large_as_asked_for(pairs, name):
    mesh, companion = pairs[name]
    corners = companion.points.numpy()[companion.connectivity.reshape(-1, 3)]
    angles = triangulation.smallest_angles(corners)
    assert angles.min() > 20
    assert angles.mean() > 45  # 60 if all were equilateral
    squares = companion.number_of_points - len(companion.boundary_points) / 2
    assert squares == pytest.approx(float(mesh.cell_volumes.sum()) / SPACING**2, rel=0.15)
    lengths = companion.facet_areas.norm(dim=1) / SPACING
    assert 0.7 < lengths.min() < lengths.max() < 1.3


def test_the_spacing_of_a_cell_size_gives_it():
    mesh = step()
    companion = companion_mesh(mesh, spacing_of(mesh, 0.12))
    assert float(companion.point_volumes.mean()) ** 0.5 == pytest.approx(0.12, rel=0.03)


def test_a_companion_is_repeatable_and_another_seed_is_another_one():
    mesh = l_shape()
    first, again, other = (companion_mesh(mesh, 0.15, seed) for seed in (0, 0, 1))
    assert torch.equal(first.points, again.points)
    assert first.points.shape != other.points.shape or not torch.equal(first.points, other.points)


def test_a_mesh_of_any_cells_has_a_companion_with_the_points_that_are_to_be_kept():
    mesh = rectangle((12, 12)).triangulated(0.5)
    kept = mesh.patch("outlet").points[5]
    companion = companion_mesh(mesh, 0.2, keep=[kept])
    assert float(companion.cell_volumes.sum()) == pytest.approx(1.0)
    assert float((companion.points - mesh.points[kept]).norm(dim=1).amin()) < 1e-12


def test_what_is_inside_does_not_depend_on_how_many_are_looked_at_together(monkeypatch):
    mesh = square_with_hole(24, 4)
    sides = mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)]
    targets = np.random.default_rng(0).uniform(-0.6, 0.6, (200, 2))
    together = triangulation.inside(targets, sides)
    # Off the chords of the circle, by less than 0.01.
    clear = np.abs(np.linalg.norm(targets, axis=1) - 0.25) > 0.01
    expected = (np.abs(targets) < 0.5).all(axis=1) & (np.linalg.norm(targets, axis=1) > 0.25)
    np.testing.assert_array_equal(together[clear], expected[clear])
    monkeypatch.setattr(triangulation, "_PAIRS_AT_ONCE", 500)
    np.testing.assert_array_equal(triangulation.inside(targets, sides), together)


# Fields


@pytest.mark.parametrize("name", DOMAINS)
def test_linear_fields_go_there_and_back_exactly(pairs, name):
    mesh, companion = pairs[name]
    slope = torch.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=torch.float64)
    there = torch.from_numpy(interpolation(mesh, companion.points.numpy()) @ mesh.points.numpy())
    found = back({"linear": there @ slope}, companion, mesh)["linear"]
    error = (found - mesh.points @ slope).abs().amax(dim=1)
    if name == "hole":
        # Points beyond the chords of the circle, at most h² / 8R away, have the values of the chords.
        near = mesh.points.norm(dim=1) < 0.26
        assert float(error[near].amax()) < 4 * SPACING**2 / (8 * 0.25) * 1.5
        error = error[~near]
    assert float(error.amax()) < 1e-12


def test_values_never_leave_the_span_of_the_field(pairs):
    mesh, companion = pairs["hole"]
    wave = torch.sin(20 * companion.points)
    found = back({"wave": wave}, companion, mesh)["wave"]
    assert float(found.amax()) <= float(wave.amax())
    assert float(found.amin()) >= float(wave.amin())


def test_axes_of_times_go_back_with_their_fields(pairs):
    mesh, companion = pairs["L"]
    series = companion.points[:, :1] * torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert_close(back({"T": series}, companion, mesh)["T"], mesh.points[:, :1] * series.new_tensor([1.0, 2.0, 3.0]))


# Conditions


def test_the_problem_of_a_duct_is_that_of_its_companion(pairs):
    mesh, companion = pairs["step"]
    case, expected = on_companion(flow_case(mesh), companion), flow_case(companion)
    for name in ("u", "p"):
        assert torch.equal(case.dirichlet[name].mask, expected.dirichlet[name].mask)
        assert_close(case.dirichlet[name].values, expected.dirichlet[name].values)
        assert torch.equal(case.neumann[name].mask, expected.neumann[name].mask)
        assert_close(case.neumann[name].normals, expected.neumann[name].normals)
    assert case.parameters == expected.parameters
    assert case.targets == {}


def test_what_is_not_given_is_worked_out_on_the_companion(pairs):
    mesh, companion = pairs["step"]
    given = flow_case(mesh)
    bare = replace(given, initial={name: torch.zeros_like(each) for name, each in given.initial.items()}, features={})
    case, expected = complete_flow(on_companion(bare, companion)), flow_case(companion)
    assert_close(case.features["wall_distance"], expected.features["wall_distance"])
    assert_close(case.initial["u"], expected.initial["u"])


def test_conditions_follow_the_boundary_linearly_and_a_corner_keeps_its_own():
    mesh = rectangle((30, 30))
    height = mesh.points[:, 1]
    profile = torch.stack([1 + 2 * height, 0 * height], dim=1)
    case = Case(
        mesh,
        initial={"u": torch.sin(mesh.points), "p": 0.0},
        dirichlet={"u": {"inlet": profile}, "p": {"outlet": 0.3}},
        neumann={"p": {"inlet": height - 4}},
        slip={"u": ["side"]},
    )
    companion = companion_mesh(mesh, SPACING)
    found = on_companion(case, companion)
    inlet = torch.from_numpy(companion.patch("inlet").points)
    assert sorted(found.dirichlet["u"].mask.nonzero().ravel().tolist()) == inlet.tolist()
    expected = 1 + 2 * companion.points[inlet, 1]
    assert_close(found.dirichlet["u"].values[inlet, 0], expected)
    assert_close(found.neumann["p"].normal_derivative[inlet], companion.points[inlet, 1] - 4)
    assert_close(found.slip["u"].normals, companion.point_normals("side"))
    # A start that is no first guess is interpolated, and has the prescribed values.
    free = ~found.dirichlet["u"].mask
    assert_close(found.initial["u"][free], torch.sin(companion.points)[free], rtol=0, atol=1e-3)
    assert torch.equal(found.initial["u"][~free], found.dirichlet["u"].values[~free])


def test_an_even_inlet_stays_even_up_to_the_corners_of_the_wall():
    """Companion points within the last facet of a coarser mesh, whose corner is the wall's."""
    mesh = rectangle((3, 3))
    case = Case(mesh, initial={"u": [0.0, 0.0]}, dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}})
    found = on_companion(case, companion_mesh(mesh, SPACING)).dirichlet["u"]
    inlet = torch.isclose(found.values.new_tensor(0.0), found.values[:, 0]).logical_not()
    assert int(inlet.sum()) == 9  # of eleven points the two corners are the wall's
    assert_close(found.values[inlet], found.values.new_tensor([[1.0, 0.0]]).expand(9, 2))


def test_a_condition_without_a_patch_ends_where_it_ended():
    mesh = rectangle((30, 30))
    held = (mesh.points[:, 0] == 0) & (mesh.points[:, 1] < 0.501)
    case = Case(mesh, initial={"T": 0.0}, dirichlet={"T": Dirichlet(held, held.double())})
    ends = mesh.points[torch.from_numpy(ends_of_conditions(case))]
    assert_close(ends, torch.tensor([[0.0, 0.0], [0.0, 0.5]], dtype=torch.float64))
    companion = companion_mesh(mesh, 0.13, keep=ends_of_conditions(case))
    found = on_companion(case, companion).dirichlet["T"]
    heights = companion.points[found.mask][:, 1]
    assert float(companion.points[found.mask][:, 0].abs().amax()) == 0
    assert (float(heights.amin()), float(heights.amax())) == (0, pytest.approx(0.5))
    assert_close(found.values, found.mask.double())


def test_a_pressure_that_is_fixed_at_one_point_is_fixed_at_the_nearest():
    mesh = rectangle((30, 30))
    point = int((mesh.points - 0.4).norm(dim=1).argmin())
    held = torch.arange(mesh.number_of_points) == point
    case = Case(mesh, initial={"p": 0.0}, dirichlet={"p": Dirichlet(held, 7.0 * held)})
    companion = companion_mesh(mesh, SPACING)
    found = on_companion(case, companion).dirichlet["p"]
    assert found.mask.nonzero().ravel().tolist() == [int((companion.points - mesh.points[point]).norm(dim=1).argmin())]
    assert float(found.values[found.mask]) == 7.0


# What has no companion


def strip(width: float) -> Mesh:
    return rectangle((30, 3), (3.0, width))


def two_squares() -> Mesh:
    return Mesh.concatenate([rectangle((4, 4)), rectangle((4, 4)).moved(torch.eye(2), torch.tensor([3.0, 0.0]))])


@pytest.mark.parametrize(
    ("make", "spacing", "words"),
    [
        (lambda: strip(0.05), 0.1, r"only 0\.05 wide at \(.*\), thinner than the spacing of 0\.1"),
        (lambda: strip(0.02), 0.1, "thinner than the spacing"),
        (lambda: rectangle((4, 4)), 2.0, "thinner than the spacing of 2 of a companion everywhere"),
        (two_squares, 0.2, "in 2 pieces"),
        (brick, 0.2, "has 3 dimensions"),
        (lambda: rectangle((4, 4)), 0.0, "must be a positive number"),
        (lambda: square_with_hole(24, 4, 0.01), 0.2, "smaller than the spacing"),
    ],
)
def test_what_has_no_companion_is_told_in_words(make, spacing, words):
    with pytest.raises(CompanionError, match=words):
        companion_mesh(make(), spacing)


# Predictions


@pytest.fixture(scope="module")
def network() -> PENN:
    torch.manual_seed(0)
    return flow_network(width=4, iterations=3, pressure_iterations=2).double().eval()


@pytest.fixture(scope="module")
def ranges() -> dict[str, tuple[float, float]]:
    """Of a network that was trained on quads and triangles of six cells a unit length."""
    mesh = coarse_mesh("a_0.40", cells_per_length=6)
    return spanned([flow_case(mesh), flow_case(mesh.triangulated())])


def user_case(cells_per_length: float) -> Case:
    mesh = coarse_mesh("a_0.40", cells_per_length=cells_per_length)
    return Case(
        mesh,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (0.1, 0.0), "wall": 0.0}, "p": {"outlet": 0.3}},
        neumann={"u": {"outlet": 0.0}, "p": 0.0},
        parameters={"viscosity": 1e-4},
    )


def test_a_finer_mesh_gets_what_the_network_finds_at_its_own_spacing(network, ranges):
    fine, own = user_case(12.0), user_case(6.0)
    outcome, expected = predict(network, fine, ranges, resolution="network"), predict(network, own, ranges)
    assert outcome.companion is not None
    assert outcome.companion.number_of_points == pytest.approx(own.number_of_points, rel=0.1)
    there = back(outcome.fields, fine.mesh.triangulated(), own.mesh)
    # Two meshes of one spacing differ by their discretisation, with six cells a unit length by this much of the inflow.
    # (The pressure of an untrained network is mostly that of corners, where meshes differ most.)
    assert float((there["u"] - expected.fields["u"]).square().mean().sqrt()) < 0.03 * 0.1
    # And it is nothing but what the network finds on the companion, at the points of the user.
    found = predict(network, outcome.companion, ranges, resolution="own").fields
    for name, values in back(found, outcome.companion.mesh, fine.mesh).items():
        assert_close(outcome.fields[name], fine.dirichlet[name].apply(values), rtol=0, atol=1e-10)


def test_prescribed_values_are_exact_on_the_mesh_of_the_user(network, ranges):
    outcome = predict(network, user_case(12.0), ranges, resolution="network")
    for name, condition in outcome.case.dirichlet.items():
        assert torch.equal(outcome.fields[name][condition.mask], condition.values[condition.mask])
    assert outcome.certificate.dirichlet == {"u": 0, "p": 0}
    assert outcome.case.number_of_points == len(outcome.fields["p"])
    assert "0.1 in" in outcome.certificate.check("flux imbalance").text
    assert outcome.seconds.keys() == {"prepare", "operators", "network", "certificate", "companion"}


def test_a_slip_wall_of_the_user_lets_nothing_through(network, ranges):
    case = user_case(9.0)
    case = Case(
        case.mesh.with_patches({"lid": lambda x: np.isclose(x[:, 1], 2.0)}),
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0)}, "p": {"outlet": 0.0}},
        slip={"u": ["lid"]},
        parameters={"viscosity": 1e-3},
        features={"wall_distance": case.mesh.distance_to("wall")},
    )
    outcome = predict(network, case, ranges, resolution="network")
    lid = torch.from_numpy(case.mesh.patch("lid").points)
    free = lid[~case.dirichlet["u"].mask[lid]]
    assert float(outcome.fields["u"][free, 1].abs().amax()) < 1e-15


@pytest.mark.parametrize(
    ("cells_per_length", "companion"), [(5.0, True), (5.8, False), (6.2, False), (7.5, True), (12.0, True)]
)
def test_a_mesh_finer_or_coarser_than_those_of_training_gets_a_companion(network, ranges, cells_per_length, companion):
    case = user_case(cells_per_length)
    outcome = predict(network, case, ranges)
    assert (outcome.companion is not None) == companion
    size = {each.name: each for each in outcome.certificate.compared}["mean cell size"]
    assert size.inside
    if companion:
        assert outcome.companion is not None
        assert size.value == pytest.approx(describe(outcome.companion)["mean cell size"])
        assert outcome.certificate.notes == (
            f"Predicted on a companion mesh of {outcome.companion.mesh.number_of_cells} triangles at the network's "
            f"spacing, interpolated to your {case.number_of_points} points.",
        )
        assert any("note: Predicted on a companion" in line for line in outcome.certificate.lines())
        assert outcome.certificate.as_dict()["notes"] == list(outcome.certificate.notes)
    else:
        assert outcome.certificate.notes == ()


def test_a_graded_mesh_gets_a_companion(network, ranges):
    graded = user_case(6.0)
    # As many cells, but towards the outlet twice as long and at the inlet hardly any length at all.
    x, y = graded.mesh.points.T
    graded = replace(graded, mesh=replace(graded.mesh, points=torch.stack([x**3 / 9, y], dim=1)))
    mean = describe(graded)["mean cell size"] / describe(user_case(6.0))["mean cell size"]
    assert mean == pytest.approx(1.0, abs=0.15)
    assert predict(network, graded, ranges).companion is not None


def test_a_network_that_has_seen_no_triangles_or_does_not_tell_stays_with_the_mesh_of_the_user(network, ranges):
    fine = user_case(12.0)
    quads_alone = ranges | {"typical number of neighbours": (8.0, 8.0)}
    untold = {name: ends for name, ends in ranges.items() if name != "typical number of neighbours"}
    for known in (quads_alone, untold, None):
        outcome = predict(network, fine, known)
        assert outcome.companion is None
        assert outcome.certificate.notes == ()
    assert predict(network, fine, ranges, resolution="own").companion is None
    assert predict(network, fine, quads_alone, resolution="network").companion is not None


def test_a_network_of_coarse_cells_stays_with_the_mesh_of_a_narrow_domain_and_says_why(network, ranges):
    narrow = Case(
        rectangle((60, 6), (3.0, 0.1)),
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 1e-3},
    )
    outcome = predict(network, narrow, ranges, length=1.0)
    assert outcome.companion is None
    assert "thinner than the spacing" in outcome.certificate.notes[0]
    with pytest.raises(CompanionError, match="thinner than the spacing"):
        predict(network, narrow, ranges, length=1.0, resolution="network")


def test_a_companion_of_very_many_points_is_not_made_unasked(network, ranges):
    outcome = predict(network, user_case(6.0), ranges | {"mean cell size": (1e-3, 2e-3)})
    assert outcome.companion is None
    assert "ask for them with the resolution" in outcome.certificate.notes[0]


def test_the_network_s_resolution_is_refused_where_there_is_none(network, ranges):
    with pytest.raises(ValueError, match="does not tell on which cell sizes"):
        predict(network, user_case(6.0), resolution="network")
    with pytest.raises(ValueError, match="The resolution is 'fine'; it may be 'auto', 'own', 'network'"):
        predict(network, user_case(6.0), ranges, resolution="fine")  # type: ignore[arg-type]
    solid = brick((3, 3, 3), 1 / 3).with_patches({"low": lambda x: np.isclose(x[:, 0], 0.0)})
    space = Case(solid, initial={"u": [0.0, 0.0, 0.0], "p": 0.0}, dirichlet={"u": {"low": (1.0, 0.0, 0.0)}})
    with pytest.raises(ValueError, match="only plane cases have companion meshes"):
        predict(network, space, ranges, resolution="network")


def test_a_series_on_a_plate_goes_back_with_all_of_its_times():
    from pennpde.models.advection_diffusion import advection_diffusion_network

    torch.manual_seed(1)
    heat = advection_diffusion_network(width=4, iterations=2, hidden=8).double().eval()
    coarse = heated_plate(cells=(8, 8))
    outcome = predict(heat, replace(heated_plate(cells=(20, 20)), features={}), spanned([coarse]), resolution="network")
    assert outcome.fields["T"].shape == (441, 4)
    assert outcome.certificate.dirichlet == {"T": 0}
    assert outcome.companion is not None
    assert outcome.companion.features.keys() == {"inlet_distance"}
