"""The check of shapes that runs with all other tests."""

import importlib

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from torch import Tensor

from shapes import checked, unchecked


@jaxtyped(typechecker=checked)
def doubled(field: Float[Tensor, "points space"]) -> Float[Tensor, "points space"]:
    return 2 * field


def test_a_wrong_shape_is_refused_unless_the_check_is_off():
    with pytest.raises(TypeCheckError, match="field"):
        doubled(torch.ones(3))
    with unchecked():
        doubled(torch.ones(3))
    with pytest.raises(TypeCheckError, match="field"):
        doubled(torch.ones(3))


@pytest.mark.parametrize(
    "name",
    [
        "mesh.mesh:Mesh.point_normals",
        "operators.operators:Operators.grad",
        "case.conditions:Dirichlet.apply",
        "penn.mlp:MLP.forward",
        "train.cases:Batches.draw",
        "data.vtkhdf:unpack",
    ],
)
def test_signatures_of_every_layer_are_checked(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(f"pennpde.{module}")
    for part in path.split("."):
        found = getattr(found, part)
    # jaxtyping also takes bytecode for its own that was written before the module was named in pyproject.toml.
    reason = "imported before pytest could instrument it, or from old bytecode: delete the __pycache__ folders of src"
    assert hasattr(found, "__wrapped__"), reason


def test_checked_functions_compile_as_one_graph():
    compiled = torch.compile(doubled, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2, 2)), 2 * torch.ones(2, 2))
