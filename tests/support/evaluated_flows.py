"""Flows with known fields, and predictions that are wrong by known amounts."""

import torch

from pennpde.case import Case
from problems import rectangle


def flow_case(name: str, cells=(4, 4)) -> Case:
    mesh = rectangle(cells)
    x, y = mesh.points.T
    return Case(
        mesh,
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.0), "side": 0.0}, "p": {"outlet": 0.0}},
        neumann={"u": {"outlet": 0.0}, "p": {"inlet": 0.0, "side": 0.0}},
        targets={"u": torch.stack([y, x], dim=1), "p": x * y},
        name=name,
    )


def off_by(u: float, p: float):
    def model(case):
        return {"u": case.targets["u"] + u, "p": case.targets["p"] + p}

    return model
