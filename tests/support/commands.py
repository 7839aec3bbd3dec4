"""`penn` in this process, and networks to run it with: small, untrained, stored as trained ones are."""

from pathlib import Path

import torch
from typer.testing import CliRunner, Result

from pennpde import checkpoints, registry
from pennpde.checkpoints import Config
from pennpde.cli import application

FLOW = {"width": 4, "iterations": 2, "pressure_iterations": 2}
HEAT = {"width": 4, "iterations": 2, "hidden": 8}


def penn(*arguments: object) -> Result:
    return CliRunner().invoke(application, list(map(str, arguments)), prog_name="penn")


def store(folder: Path, network: str = "ducts", ranges: dict | None = None, **arguments: object) -> Path:
    """A network of random weights in a folder."""
    settings = {"ducts": FLOW, "advection-diffusion": HEAT}.get(network, {}) | arguments
    torch.manual_seed(0)
    model = registry.build(network, settings)
    return checkpoints.save(model, folder, Config(network, settings, training_range=ranges or {}))
