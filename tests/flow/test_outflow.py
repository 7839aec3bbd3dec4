"""What leaves the domain through each facet: the fluxes of the scheme are in balance to round-off."""

import numpy as np
import pytest
import torch

from pennpde import load_pretrained
from pennpde.case import Case, Table
from pennpde.mesh import Mesh
from pennpde.penn import STEADY, Predictor
from pennpde.prediction import Outcome, predict


def _channel(size: tuple[int, int] = (12, 6)) -> Mesh:
    """Two by one, with an inlet on the left, an outlet on the right and another one at the right end of the top."""
    x, y = (np.linspace(0, end, count + 1) for end, count in zip((2.0, 1.0), size, strict=True))
    across, up = np.meshgrid(x, y)
    corner = (np.arange(size[1])[:, None] * (size[0] + 1) + np.arange(size[0])).ravel()
    quads = np.stack([corner, corner + 1, corner + size[0] + 2, corner + size[0] + 1], axis=1)
    mesh = Mesh.from_arrays(np.stack([across.ravel(), up.ravel()], axis=1), {"quad": quads})
    middle = mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)].mean(axis=1)
    parts = {
        "inlet": middle[:, 0] < 1e-9,
        "outlet": middle[:, 0] > 2 - 1e-9,
        "vent": (middle[:, 1] > 1 - 1e-9) & (middle[:, 0] > 1.5),
    }
    walls = ~(parts["inlet"] | parts["outlet"] | parts["vent"])
    ends = mesh.facets.connectivity.reshape(-1, 2)
    return mesh.with_patch_facets({name: ends[chosen].tolist() for name, chosen in {**parts, "walls": walls}.items()})


def _case(mesh: Mesh, factor: float = 1.0) -> Case:
    height = mesh.points[:, 1]
    parabola = factor * torch.stack([6 * height * (1 - height), torch.zeros_like(height)], dim=1)
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={
            "u": {"inlet": parabola, "walls": (0.0, 0.0)},
            "p": {"outlet": 0.0, "vent": 0.0},
        },
        parameters={"viscosity": 0.01 * factor},
    )


def _balance(outcome: Outcome) -> torch.Tensor:
    assert outcome.outflow is not None
    return outcome.outflow


@pytest.mark.parametrize("level", ["fast", "standard", "fine"])
def test_what_flows_in_flows_out_to_round_off_at_each_time(level):
    network = load_pretrained("flow")
    assert isinstance(network, Predictor)
    network.set_level(level)
    outcome = predict(network, _case(_channel(), factor=3.0), times=[0.1, 0.3])
    flow = {name: outcome.fluxes(name).sum(dim=0).tolist() for name in ("inlet", "outlet", "vent", "walls")}
    assert flow["inlet"] == pytest.approx([-3.0, -3.0], rel=1e-6)  # the profile, of single precision, integrated
    assert flow["walls"] == [0.0, 0.0]
    assert _balance(outcome).sum(dim=0).tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    assert all(max(map(abs, flow[name])) > 0.1 for name in ("outlet", "vent"))
    assert outcome.certificate.check("flux imbalance").value < 1e-12
    assert outcome.at(0).fluxes("vent").tolist() == outcome.fluxes("vent")[:, 0].tolist()


def test_each_facet_of_an_outlet_has_the_flux_of_the_velocity_there():
    mesh = _channel((16, 12))
    outcome = predict(load_pretrained("flow"), _case(mesh), times=[STEADY])
    facets = mesh.patch("outlet").facets
    ends = mesh.facets.connectivity.reshape(-1, 2)[facets]
    speed = outcome.last["u"][torch.from_numpy(ends), 0].mean(dim=1)
    assert outcome.fluxes("outlet").numpy() == pytest.approx((speed / 12).numpy(), abs=0.01)
    assert float(_balance(outcome).sum()) == pytest.approx(0.0, abs=1e-12)


def test_the_flux_is_that_of_its_time_where_conditions_change():
    mesh = _channel()
    ramp = Table([(0.0, (0.0, 0.0)), (1.0, (2.0, 0.0))], outside="clamp")
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": ramp, "walls": (0.0, 0.0)}, "p": {"outlet": 0.0, "vent": 0.0}},
        parameters={"viscosity": 0.02},
    )
    outcome = predict(load_pretrained("flow"), case, times=[0.25, 0.5])
    inward = outcome.fluxes("inlet").sum(dim=0)
    assert (inward[1] / inward[0]).item() == pytest.approx(2.0, rel=1e-9)
    assert _balance(outcome).sum(dim=0).tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
