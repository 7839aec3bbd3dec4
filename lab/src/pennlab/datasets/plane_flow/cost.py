"""How long a flow takes to compute, about, without meshing it: so that a dataset grows by its cheap flows first."""

from __future__ import annotations

import numpy as np

from pennlab.datasets.plane_flow import flows
from pennlab.datasets.plane_flow.conditions import Wall
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.sizes import Sizing
from pennlab.datasets.plane_flow.truth import MOST_CELLS, wanted_sizes

SECONDS = 4.9e-6
"""For a cell and a time step with one outer corrector, measured over 398 flows on one core: half of them took between
0.8 and 1.2 times the estimate."""
WORTH = {"train": 1.0, "validation": 3.0}
WORTH_IN_TESTS = 20.0
"""A flow for tests is computed before one for training that costs a twentieth: without tests nothing can be said."""


def expected_cells(flow: Flow) -> float:
    """Cells of the truth at spacing 1: of the bulk size, and more of them where they grow from the walls' size."""
    bulk, wall = wanted_sizes(flow)
    lengths = flow.domain.lengths()
    along_walls = sum(lengths[name] for name, each in flow.conditions.items() if isinstance(each, Wall))
    layers = along_walls / Sizing.growth * max(0.0, 1.0 / wall - 1.0 / bulk)
    return 1.1547 * (flow.domain.area / bulk**2 + layers)


def expected_seconds(flow: Flow) -> float:
    """Of one core, for the moments."""
    cells = expected_cells(flow)
    coarser = max(1.0, float(np.sqrt(cells / MOST_CELLS)))
    _, wall = wanted_sizes(flow)
    resolution = Resolution.of(flow)
    # The fastest fluid at the finest cells decides on the step: about twice the bulk speed at cells of the walls' size.
    steps = 2.0 * flow.moments[-1] / (resolution.courant * wall * coarser)
    return SECONDS * min(cells, MOST_CELLS) * steps * resolution.outer_correctors


def rank(name: str, seed: int = 0) -> float:
    """The place of a flow among others: its cost over what it is worth."""
    return expected_seconds(flows.draw_flow(name, seed)) / WORTH.get(flows.split_of(name), WORTH_IN_TESTS)
