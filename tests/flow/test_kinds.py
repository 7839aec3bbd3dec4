"""Kinds of plane flow, by which the bounds of expected errors are learned."""

import math

import numpy as np
import pytest

from pennpde.case import Case
from pennpde.case.conditions import TotalPressure
from pennpde.flow.coarse_march import CoarseMarch
from pennpde.mesh import Mesh
from pennpde.models.flow_physics import PlaneFlowPhysics, sharpness
from problems import rectangle
from steady_flows import cavity, square


def channel(cells=(24, 8), size=(3.0, 1.0), total=False) -> Case:
    return Case(
        rectangle(cells, size),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"side": 0.0} if total else {"side": 0.0, "inlet": (1.0, 0.0)}, "p": {"outlet": 0.0}},
        conditions={TotalPressure: {"p": {"inlet": 1.0}}} if total else {},
        parameters={"viscosity": 0.02},
    )


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        (cavity(square("quad", 8)), "closed vessel"),
        (channel(total=True), "driven by pressure"),
        (channel((24, 4)), "few facets"),
        (channel(), "smooth, steady"),
        (channel((24, 80)), "stretched cells"),
        (channel(size=(0.5, 1.0)), "open flow"),
    ],
)
def test_a_flow_is_of_the_kind_that_decides_how_its_errors_show(case, kind):
    assert PlaneFlowPhysics().kind(case, math.inf) == kind


def test_a_flow_on_its_way_is_another_kind_than_its_steady_state():
    assert PlaneFlowPhysics().kind(channel(), 1.0) == "smooth, on the way"


def test_corners_count_as_far_as_walls_turn_into_the_flow():
    assert sharpness(square("quad", 4)) == 0.0
    # An L: one corner of three quarters of a turn.
    points = np.array([[x, y] for x in range(3) for y in range(3)], float)
    quads = [[3 * i + j, 3 * i + j + 3, 3 * i + j + 4, 3 * i + j + 1] for i, j in ((0, 0), (1, 0), (0, 1))]
    used = np.unique(quads)
    mesh = Mesh.from_arrays(points[used], {"quad": np.searchsorted(used, quads)})
    assert sharpness(mesh) == pytest.approx(0.5)


@pytest.mark.parametrize("level", ["fast", "standard"])
def test_open_flow_is_not_corrected(level):
    march, physics = CoarseMarch(level), PlaneFlowPhysics()
    for case, corrected in ((channel(), True), (channel(size=(0.5, 1.0)), False)):
        assert march.solve(physics.complete(case), (0.5,)).corrected is corrected
