"""Forces on patches: laws that hold for any flow, and flows that are known by formula."""

import math

import numpy as np
import pytest
import torch

from pennpde.case import Case
from pennpde.flow.scheme import FlowScheme
from pennpde.mesh import Mesh
from pennpde.prediction import Outcome, predict
from steady_flows import cavity, duct, plain, square


def rings(radii: np.ndarray, around: int = 40) -> Mesh:
    """Quads between circles; patches inner and outer."""
    angle = 2 * np.pi * np.arange(around) / around
    points = (radii[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], axis=-1)).reshape(-1, 2)
    ring, place = (each.ravel() for each in np.meshgrid(np.arange(len(radii) - 1), np.arange(around), indexing="ij"))
    here, next_ = ring * around + place, ring * around + (place + 1) % around
    mesh = Mesh.from_arrays(points, {"quad": np.stack([here, here + around, next_ + around, next_], axis=1)})
    edges = mesh.facets.connectivity.reshape(-1, 2)
    inner = edges.max(axis=1) < around
    return mesh.with_patch_facets({"inner": edges[inner].tolist(), "outer": edges[~inner].tolist()})


def body(level: float = 0.0, turn: float = 0.0, scale: float = 1.0) -> Case:
    """A uniform flow past a circle, in a circle that lets it out on its right."""
    mesh = rings(0.5 * 12.0 ** np.linspace(0.0, 1.0, 13), 24)
    edges = mesh.facets.connectivity.reshape(-1, 2)
    middles = mesh.points.numpy()[edges].mean(axis=1)
    outlet = middles[:, 0] > 3.0
    inlet = ~outlet & (np.linalg.norm(middles, axis=1) > 1.0)
    patches = {"body": edges[~outlet & ~inlet], "inlet": edges[inlet], "outlet": edges[outlet]}
    mesh = mesh.with_patch_facets({name: each.tolist() for name, each in patches.items()})
    rotation = torch.tensor([[math.cos(turn), -math.sin(turn)], [math.sin(turn), math.cos(turn)]], dtype=torch.float64)
    mesh = mesh.with_points(scale * mesh.points @ rotation.T)
    stream = (rotation @ torch.tensor([1.0, 0.2], dtype=torch.float64)).tolist()
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "p": level},
        dirichlet={"u": {"inlet": stream, "body": 0.0}, "p": {"outlet": level}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "body": 0.0}},
        parameters={"viscosity": 0.1 * scale},
    )


def steady(case: Case) -> Outcome:
    return predict(plain(), case, steady=True, resolution="own", length=1.0, speed=1.0)


def values(outcome: Outcome, *texts: str) -> np.ndarray:
    return np.array([each.values[-1] for each in outcome.quantities(texts)])


@pytest.mark.parametrize("kind", ["triangle", "quad"])
def test_the_forces_of_a_closed_steady_flow_cancel(kind):
    outcome = steady(cavity(square(kind, 12)))
    force = outcome.quantities([f"{part}force x top" for part in ("", "viscous ")])[0].values[0]
    total = values(outcome, "force x top+left+right+bottom", "force y top+left+right+bottom")
    assert np.abs(total).max() < 1e-5 * abs(force)


def test_a_uniform_pressure_pushes_a_closed_body_nowhere():
    words = ("drag body", "lift body", "moment body", "viscous drag body")
    without, with_it = (values(steady(body(level)), *words) for level in (0.0, 50.0))
    assert with_it == pytest.approx(without, abs=1e-6)
    assert without[0] > 0.5


def test_drag_and_lift_turn_with_the_flow_and_the_force_is_a_vector():
    turn = 0.7
    words = ("drag body", "lift body", "moment body", "force body")
    first, second = steady(body()), steady(body(turn=turn))
    assert values(second, *words) == pytest.approx(values(first, *words), abs=1e-6)
    x, y = values(first, "force x body", "force y body")
    turned = (x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn))
    assert values(second, "force x body", "force y body") == pytest.approx(turned, abs=1e-6)


def test_pressure_and_viscous_parts_add_up_and_coefficients_have_no_unit():
    outcome = steady(body())
    drag, pressure, viscous = values(outcome, "drag body", "pressure drag body", "viscous drag body")
    assert drag == pytest.approx(pressure + viscous)
    assert values(outcome, "drag coefficient body")[0] == pytest.approx(2 * drag, rel=0.01)  # as high as one
    assert values(outcome, "drag coefficient body length 0.5 speed 2") == pytest.approx(drag)
    larger = predict(plain(), body(scale=10.0), steady=True, resolution="own", length=10.0, speed=1.0)
    assert values(larger, "drag coefficient body") == pytest.approx(values(outcome, "drag coefficient body"), rel=1e-6)
    assert values(larger, "drag body density 2")[0] == pytest.approx(20 * drag, rel=1e-6)


def test_the_torque_between_turning_cylinders_is_that_of_the_formula():
    """Its stress is not ν ∂u/∂n: a rotating fluid has a velocity gradient and no friction."""
    inner, outer, viscosity = 1.0, 2.0, 0.5
    mesh = rings(np.linspace(inner, outer, 9), 64)
    point = np.zeros(mesh.number_of_points, bool)
    point[0] = True
    spin = torch.stack([-mesh.points[:, 1], mesh.points[:, 0]], dim=1)
    case = Case(
        mesh.with_patches({"level": point}),
        initial={"u": (0.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inner": spin, "outer": 0.0}, "p": {"level": 0.0}},
        parameters={"viscosity": viscosity},
    )
    wanted = 4 * math.pi * viscosity * inner**2 * outer**2 / (outer**2 - inner**2)
    outcome = predict(FlowScheme(splits=1), case, steady=True, resolution="own")
    moments = values(outcome, "moment inner about 0 0", "moment outer about 0 0")
    assert moments == pytest.approx([-wanted, wanted], rel=0.01)  # of polygons with 64 corners


@pytest.mark.parametrize("kind", ["triangle", "quad"])
def test_developed_flow_loses_what_its_walls_take(kind):
    length = 4.0
    mesh = square(kind, 16, jitter=0.0)
    mesh = mesh.with_points(mesh.points * torch.tensor([length, 1.0]))
    outcome = predict(FlowScheme(splits=1), duct(mesh, viscosity=0.05), steady=True, resolution="own")
    wanted = 0.6 * length  # 12 ν L U / H²
    found = values(outcome, "pressure drop left right", "total pressure drop left right", "dissipation")
    assert found == pytest.approx([wanted] * 3, rel=3e-3)  # 33 points across
    # The first cells at the inlet take a part of what is the walls'.
    assert values(outcome, "drag bottom+top", "viscous drag bottom+top+left") == pytest.approx([wanted] * 2, rel=3e-3)
    assert values(outcome, "wall shear bottom") == pytest.approx([0.3], rel=3e-3)
