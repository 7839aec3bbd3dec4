"""What the laboratory adds to pennpde: further networks, a loss, and a reader of finished flows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor, nn

from pennpde import registry
from pennpde.case import Case
from pennpde.train import known_cases, losses
from pennpde.train.calibrate import Known

registry.register("gradient-of-table-1", "pennlab.paper.gradient:GradientNetwork")
registry.register("flow-as-written", "pennlab.paper.flow_as_written:flow_as_written")
registry.register("mp-pde", "pennlab.paper.baselines.mp_pde:MPPDE")
registry.register("mesh-graph-net", "pennlab.paper.baselines.mesh_graph_net:MeshGraphNet")
registry.register("plane-mesh-graph-net", "pennlab.paper.baselines.plane_mesh_graph_net:PlaneMeshGraphNet")


def _pushforward(model: nn.Module, case: Case, weights: Tensor) -> Tensor:
    from pennlab.paper.baselines.mp_pde import pushforward

    return pushforward(model, case, weights)


def _splits(_: Path) -> list[str]:
    from pennlab.datasets.plane_flow import flows

    return list(flows.splits())


def _read(folder: Path, split: str | None, every: int) -> Iterator[Known]:
    from pennlab.known_cases import read_finished

    return read_finished(folder, split, every)


losses.register("pushforward", _pushforward)
known_cases.register(known_cases.Reader(lambda folder: any(folder.glob("part_*.tar")), _splits, _read))
