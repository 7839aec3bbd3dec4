"""Which quantities a flow has that nobody has asked for."""

import numpy as np

from pennpde import predict
from pennpde.mesh.triangulation import Polygon, fill
from pennpde.models.designs import flow_through
from pennpde.quantities import usual
from pennpde.viewer.shapes import BY_KIND, named


def usual_of(polygons, cells=8.0):
    case = flow_through(fill(named(polygons), 1 / cells), 1.0, 0.01)
    outcome = predict("flow", case, times=0.2, accuracy=50)
    assert outcome.flow is not None
    texts = usual(outcome.flow)
    assert all(np.isfinite(each.values).all() for each in outcome.quantities(texts))
    assert [each.name for each in outcome.quantities()] == [each.name for each in outcome.quantities(texts)]
    [one] = outcome.quantities(texts[0])
    assert repr(one).startswith(f"Measured({one.name} ")
    return texts


def design(kind):
    shape = BY_KIND[kind]
    return shape.polygons({each.name: each.start for each in shape.measures})


def test_bodies_have_forces_and_channels_a_loss():
    assert usual_of(design("cylinder")) == ["drag body", "lift body", "pressure drop inlet outlet"]


def test_several_outlets_share_the_flow():
    found = usual_of(design("tee"))
    assert found[0] == "pressure drop inlet outlet_1+outlet_2"
    assert found[1:] == ["flow split outlet_1 outlet_2", "flow split outlet_2 outlet_1"]


def test_a_moving_wall_is_pulled_and_a_slip_wall_is_not():
    assert usual_of(design("cavity")) == ["force x moving", "force y moving"]
    corners = np.array([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]])
    assert usual_of([Polygon(corners, ("slip", "outlet", "slip", "inlet"))]) == ["pressure drop inlet outlet"]
