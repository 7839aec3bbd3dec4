"""The check of shapes that runs beside all other tests."""

import pytest
import torch
from jaxtyping import Float, TypeCheckError, jaxtyped
from shapes import checked, unchecked
from torch import Tensor


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


def test_the_signatures_of_the_operators_are_checked():
    from pennpde.operators import Operators

    assert hasattr(Operators.grad, "__wrapped__"), "the module was imported before pytest could instrument it"


def test_checked_functions_compile_as_one_graph():
    compiled = torch.compile(doubled, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(torch.ones(2, 2)), 2 * torch.ones(2, 2))
