"""What the laboratory adds to pennpde: further networks, and a loss."""

from __future__ import annotations

from torch import Tensor, nn

from pennpde import registry
from pennpde.case import Case
from pennpde.train.steps import register_loss

registry.register("gradient-of-table-1", "pennlab.paper.gradient:GradientNetwork")
registry.register("flow-as-written", "pennlab.paper.flow_as_written:flow_as_written")
registry.register("released-flow", "pennlab.released.flow:ReleasedFlow")
registry.register("released-advection-diffusion", "pennlab.released.advection_diffusion:ReleasedAdvectionDiffusion")
registry.register("advection-diffusion-as-written", "pennlab.paper.transport_as_written:transport_as_written")
registry.register("ducts-with-the-papers-outlet", "pennlab.paper.paper_outlet:flow_with_the_papers_outlet")
registry.register("mp-pde", "pennlab.paper.baselines.mp_pde:MPPDE")
registry.register("mesh-graph-net", "pennlab.paper.baselines.mesh_graph_net:MeshGraphNet")
registry.register("plane-mesh-graph-net", "pennlab.paper.baselines.plane_mesh_graph_net:PlaneMeshGraphNet")


def _pushforward(model: nn.Module, case: Case, weights: Tensor) -> Tensor:
    from pennlab.paper.baselines.mp_pde import pushforward

    return pushforward(model, case, weights)


register_loss("pushforward", _pushforward)
