"""Draw the pictures of docs/gallery.md: what the examples with plane fields compute.

python docs/gallery.py [NAME ...]
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from pennlab.charts import with_palette
from pennpde.pictures import Panel, draw, field_panels

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images" / "gallery"
sys.path.insert(0, str(ROOT / "examples"))


def example(name: str):
    return importlib.import_module(name)


def predict_on_your_mesh(folder: str) -> list[Panel]:
    outcome = example("predict_on_your_mesh").main(folder)
    return [Panel("temperature at t = 1", outcome.case.mesh, outcome.last["T"], outline=True)]


def mesh_from_gmsh(folder: str) -> list[Panel]:
    outcome = example("mesh_from_gmsh").main(folder=folder)
    mesh = outcome.case.mesh
    speed, _ = field_panels(mesh, outcome.last, outcome.looks)
    return [Panel("physical groups", mesh, None), speed]


def openfoam_case(folder: str) -> list[Panel]:
    outcome, _ = example("openfoam_case").main(folder=folder)
    return field_panels(outcome.case.mesh, outcome.last, outcome.looks, units=True)


def train_a_network(folder: str) -> list[Panel]:
    training = example("train_a_network")
    training.main(Path(folder) / "network")
    case = training.cases_of("test", 8)[3]
    with torch.no_grad():
        predicted = training.penn.load_pretrained(Path(folder) / "network")(case)["T"]
    truth = case.targets["T"][:, -1]
    limits = (0.0, float(truth.max()))
    return [
        Panel("trained for seconds", case.mesh, predicted[:, -1], limits=limits),
        Panel("reference solution", case.mesh, truth, limits=limits),
    ]


def your_own_equation(folder: str) -> list[Panel]:  # noqa: ARG001
    case = example("your_own_equation").random_case(0)
    fields = {"speed at the start": case.initial["u"], "after t = 0.25": case.targets["u"]}
    return [Panel(title, case.mesh, values.norm(dim=1)) for title, values in fields.items()]


def robin_condition(folder: str) -> list[Panel]:  # noqa: ARG001
    case, temperature = example("robin_condition").solved()
    return [Panel("temperature", case.mesh, temperature, outline=True)]


def periodic_channel(folder: str) -> list[Panel]:  # noqa: ARG001
    case, velocity = example("periodic_channel").solved()
    return [Panel("velocity", case.mesh, velocity[:, 0], outline=True)]


def slip_walls(folder: str) -> list[Panel]:  # noqa: ARG001
    walls = example("slip_walls")
    panels = []
    for title, slips in (("slip walls", True), ("sticking walls", False)):
        case = walls.channel(slips)
        panels.append(Panel(title, case.mesh, walls.solved(case).norm(dim=1), limits=(0.0, 1.0), outline=True))
    return panels


def tensor_field(folder: str) -> list[Panel]:  # noqa: ARG001
    case, stress = example("tensor_field").solved()
    return [Panel("stress xx", case.mesh, stress[:, 0, 0]), Panel("stress xy", case.mesh, stress[:, 0, 1])]


PICTURES: dict[str, Callable[[str], list[Panel]]] = {
    each.__name__: each
    for each in (
        predict_on_your_mesh,
        mesh_from_gmsh,
        openfoam_case,
        train_a_network,
        your_own_equation,
        robin_condition,
        periodic_channel,
        slip_walls,
        tensor_field,
    )
}


def main(names: list[str]) -> None:
    for name in names or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            path = IMAGES / f"{name}.png"
            draw(path, [PICTURES[name](folder)], panel_width=2.2)
            path.write_bytes(with_palette(path.read_bytes()))


if __name__ == "__main__":
    main(sys.argv[1:])
