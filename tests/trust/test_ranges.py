"""What a network was trained on, and when a case lies outside of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.inlet import flow_units
from pennpde.trust.certificate import Comparison, checked, compare, describe, outside, spanned
from problems import FLOW, heated_plate, rectangle


@pytest.fixture(scope="module")
def ducts() -> list[Case]:
    return [flow_case(coarse_mesh(name, cells_per_length=5), name) for name in ("a_0.20", "b_0.50_0.50", "c_0.00_1.00")]


def about(sentences: list[str]) -> list[str]:
    return [sentence.partition(" is ")[0] for sentence in sentences]


def test_a_flow_is_described_by_its_reynolds_number_inlet_walls_and_mesh(ducts):
    numbers = describe(ducts[0], FLOW)
    assert numbers["Reynolds number"] == pytest.approx(1000)
    assert numbers["largest prescribed u"] == 1
    assert numbers["inlet width"] == pytest.approx(1)
    assert numbers["inflow over that of an even inlet"] == pytest.approx(1)
    assert numbers["largest wall_distance"] == float(ducts[0].features["wall_distance"].max())
    assert numbers["mean cell size"] == pytest.approx(0.2, rel=0.15)
    assert numbers["domain size"] == pytest.approx(float(ducts[0].mesh.cell_volumes.sum()) ** 0.5)


def test_training_cases_lie_within_the_range_that_they_span(ducts):
    ranges = spanned(ducts, FLOW)
    assert ranges["domain size"][0] < ranges["domain size"][1]
    for case in ducts:
        assert outside(case, ranges, FLOW) == []
        assert {each.name for each in compare(describe(case, FLOW), ranges)} == ranges.keys()


def test_a_range_survives_json(ducts):
    ranges = spanned(ducts, FLOW)
    assert checked(json.loads(json.dumps(ranges))) == ranges


def test_another_viscosity_is_another_reynolds_number(ducts):
    thick = replace(ducts[0], parameters={"viscosity": torch.tensor(0.1, dtype=torch.float64)})
    sentences = outside(thick, spanned(ducts, FLOW), FLOW)
    assert about(sentences) == ["parameter viscosity", "Reynolds number"]
    assert sentences[1] == "Reynolds number is 10; the network was trained only at 1000."


def test_a_finer_mesh_is_outside(ducts):
    fine = flow_case(coarse_mesh("a_0.20", cells_per_length=10))
    assert about(outside(fine, spanned(ducts, FLOW), FLOW)) == ["mean cell size"]


def test_a_larger_duct_is_outside_in_its_own_units_but_not_in_those_of_its_inlet(ducts):
    large = flow_units(0.1, 1.0).dimensionless(ducts[0])
    assert "largest wall distance" in about(outside(large, spanned(ducts, FLOW), FLOW))
    assert outside(flow_units(10.0, 1.0).dimensionless(large), spanned(ducts, FLOW), FLOW) == []


def test_other_cells_than_in_training_are_outside(ducts):
    mesh = ducts[0].mesh
    quads = mesh.connectivity.reshape(-1, 4)
    triangles = np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]])
    patches = {name: patch.points for name, patch in mesh.patches.items()}
    cut = flow_case(Mesh.from_arrays(mesh.points, triangles, patches=patches))
    assert "typical number of neighbours" in about(outside(cut, spanned(ducts, FLOW), FLOW))
    assert describe(ducts[0])["typical number of neighbours"] == 8
    assert describe(cut)["typical number of neighbours"] == 6
    flat = rectangle((10, 40), (3.0, 1.0))
    assert describe(flow_through(flat))["mean stretching of cells"] > 10


def flow_through(mesh: Mesh) -> Case:
    return Case(
        mesh,
        initial={"u": [0.0, 0.0], "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        parameters={"viscosity": 1e-3},
    )


def test_an_inlet_that_is_not_even_and_a_slip_wall_are_outside(ducts):
    mesh = rectangle((15, 5), (3.0, 1.0))
    y = mesh.points[:, 1].numpy()
    parabola = np.stack([4 * y * (1 - y), np.zeros_like(y)], axis=1)
    flow = {"initial": {"u": [0.7, 0.0], "p": 0.0}, "parameters": {"viscosity": 1e-3}}
    poiseuille = Case(mesh, dirichlet={"u": {"inlet": parabola, "side": 0.0}, "p": {"outlet": 0.0}}, **flow)
    assert "inflow over that of an even inlet" in about(outside(poiseuille, spanned(ducts, FLOW), FLOW))
    slippery = Case(mesh, dirichlet={"u": {"inlet": (1.0, 0.0)}, "p": {"outlet": 0.0}}, slip={"u": ["side"]}, **flow)
    assert "share of boundary points where u slips" in about(outside(slippery, spanned(ducts, FLOW), FLOW))


def test_a_prescribed_normal_derivative_is_outside_where_training_had_none():
    plates = [heated_plate(inlet=value) for value in (0.2, 0.9)]
    heated = Case(
        plates[0].mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": 0.5}},
        neumann={"T": {"side": 3.0}},
        parameters=plates[0].parameters,
        features=plates[0].features,
    )
    assert about(outside(heated, spanned(plates))) == ["largest normal derivative of T"]


def test_numbers_that_the_range_does_not_know_are_not_compared(ducts):
    assert (
        compare(describe(ducts[0]), {"mean cell size": (0.1, 0.3), "phase of the moon": (0, 1)})[0].name
        == "mean cell size"
    )
    assert len(compare(describe(ducts[0]), {"mean cell size": (0.1, 0.3), "phase of the moon": (0, 1)})) == 1


@pytest.mark.parametrize(
    ("value", "low", "high", "inside"),
    [
        (1.0, 1.0, 1.0, True),
        (1.04, 1.0, 1.0, True),
        (1.06, 1.0, 1.0, False),
        (0.94, 1.0, 2.0, False),
        (1e-12, 0.0, 0.0, True),
        (1e-3, 0.0, 0.0, False),
        (float("nan"), 0.0, 1.0, False),
    ],
)
def test_a_few_percent_beyond_the_range_are_forgiven(value, low, high, inside):
    assert Comparison("number", value, low, high).inside == inside


@pytest.mark.parametrize("given", [None, [1, 2], {"a": 1}, {"a": [1]}, {"a": [2, 1]}, {"a": [0, None]}, {"a": "ab"}])
def test_a_stored_range_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match="lowest and a highest"):
        checked(given, "config.json")


def test_a_flow_without_inlet_is_described_without_one():
    mesh = rectangle((3, 3))
    still = Case(
        mesh, initial={"u": [0.0, 0.0], "p": 0.0}, dirichlet={"u": {"side": 0.0}}, parameters={"viscosity": 1e-3}
    )
    assert "Reynolds number" not in describe(still, FLOW)
    assert describe(still)["largest prescribed u"] == 0


def test_less_stretched_cells_than_in_training_are_no_alarm():
    assert Comparison("mean stretching of cells", 1.073, 1.311, 2.0).inside
    assert not Comparison("mean stretching of cells", 2.5, 1.311, 2.0).inside
    assert not Comparison("mean cell size", 0.01, 0.05, 0.06).inside


def test_how_far_a_number_is_outside_is_counted_in_sizes_of_its_range():
    assert Comparison("x", 1.5, 1.0, 2.0).beyond == 0
    assert Comparison("x", 5.0, 1.0, 2.0).beyond == pytest.approx(3)
    assert Comparison("x", -1.0, 1.0, 2.0).beyond == pytest.approx(2)
    assert Comparison("x", 1e30, 1.0, 1.0).beyond == Comparison("x", float("nan"), 1.0, 1.0).beyond == 100
