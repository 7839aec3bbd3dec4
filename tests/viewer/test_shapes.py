"""The designs of the page: every place of every slider gives a sound mesh whose flow can be set up."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from pennpde.mesh.triangulation import fill
from pennpde.models.designs import flow_through
from pennpde.viewer.shapes import SHAPES, outline_of

KINDS = [each.kind for each in SHAPES]


def test_there_are_ten_designs_at_least_and_no_torch_is_needed_for_their_outlines():
    assert len(set(KINDS)) >= 10
    program = (
        "import sys, pennpde.viewer.shapes as s; s.outline_of('bend', {'angle': 45}); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("shape", SHAPES, ids=KINDS)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_every_place_of_the_sliders_gives_a_flow(shape, place):
    values = {each.name: each.low + place * (each.high - each.low) for each in shape.measures}
    mesh = fill(shape.polygons(values), 1 / shape.cells)
    assert mesh.number_of_points < 4000
    case = flow_through(mesh, 2.0, 1e-3)
    velocity = case.dirichlet["u"].values
    assert float(velocity.norm(dim=1).max()) == pytest.approx(2.0)
    if "inlet" in mesh.patches:
        assert mesh.patches.keys() >= {"inlet", "outlet", "wall"}
        facets = mesh.patches["inlet"].facets
        assert float(mesh.facet_areas[facets].norm(dim=1).sum()) == pytest.approx(1.0)  # the unit of length
    else:
        lid = mesh.patches["moving"].points
        assert bool((velocity[lid, 0] >= 0).all())
        assert torch.allclose(velocity[lid, 1], torch.zeros(len(lid), dtype=velocity.dtype))


def test_an_outline_follows_its_slider_and_stays_within_its_ends():
    def diameter(value):
        body = np.array(outline_of("cylinder", {"diameter": value})[1]["corners"])
        return float(np.ptp(body[:, 0]))

    assert diameter(0.2) == pytest.approx(0.2, rel=0.02)
    assert diameter(0.4) == pytest.approx(0.4, rel=0.02)
    assert diameter(9.0) == diameter(0.5)
    with pytest.raises(ValueError, match="There is no design 'cone'"):
        outline_of("cone", {})
