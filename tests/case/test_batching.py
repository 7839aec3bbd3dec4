"""Cases side by side in one."""

import pytest
import torch
from torch.testing import assert_close

from flow_problems import flow, square, tensors_of
from pennpde.case import Case, batch, unbatch
from problems import heated_plate


def three_cases(same_size: bool = False) -> list[Case]:
    shapes = [("quad", 4), ("quad", 4), ("quad", 4)] if same_size else [("quad", 4), ("triangle", 3), ("polygon", 2)]
    return [
        flow(square(kind, size, seed=seed), viscosity=10.0**-seed, name=f"case {seed}")
        for seed, (kind, size) in enumerate(shapes)
    ]


@pytest.mark.parametrize("same_size", [False, True])
def test_a_batch_is_its_cases_side_by_side_bit_for_bit(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    assert together.sizes == tuple(case.number_of_points for case in cases)
    assert together.number_of_points == sum(together.sizes) == together.mesh.number_of_points
    assert together.name == "case 0 + case 1 + case 2"
    for name, values in tensors_of(together).items():
        parts = [tensors_of(case)[name] for case in cases]
        assert torch.equal(values, torch.stack(parts) if name.startswith("parameters") else torch.cat(parts)), name
    for name in ("u", "p"):
        separate = [
            case.operators[name].laplacian(case.initial[name], case.neumann[name].normal_derivative) for case in cases
        ]
        found = together.operators[name].laplacian(together.initial[name], together.neumann[name].normal_derivative)
        assert torch.equal(found, torch.cat(separate))


@pytest.mark.parametrize("same_size", [False, True])
def test_each_point_of_a_batch_knows_its_case_and_its_parameters(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    assert torch.equal(together.index, torch.cat([torch.full((n,), k) for k, n in enumerate(together.sizes)]))
    for name, like in (
        ("viscosity", together.initial["p"]),
        ("viscosity", together.initial["u"]),
        ("viscosity", together.initial["u"][..., None].expand(-1, -1, 3)),
        ("gravity", together.initial["u"]),
        ("gravity", together.initial["u"][..., None].expand(-1, -1, 3)),
    ):
        expected = torch.cat(
            [case.parameter(name, part) * part for case, part in zip(cases, like.split(together.sizes), strict=True)]
        )
        found = together.parameter(name, like) * like
        assert found.shape == like.shape
        assert torch.equal(found, expected)
    assert together.parameter("viscosity", together.initial["u"].float()).dtype == torch.float32


@pytest.mark.parametrize("same_size", [False, True])
def test_sums_over_a_batch_are_taken_case_by_case(same_size):
    cases = three_cases(same_size)
    together = batch(cases)
    sums = together.sum(together.initial["u"])
    assert_close(sums, torch.stack([case.initial["u"].sum(dim=0) for case in cases]))
    for name, values in together.initial.items():
        assert_close(together.total(values), torch.stack([case.initial[name].sum() for case in cases]))
    spread = together.at_points(sums)
    assert torch.equal(spread, sums[together.index])
    assert_close(cases[0].sum(cases[0].initial["p"]), cases[0].initial["p"].sum(dim=0, keepdim=True))


def test_unbatch_takes_apart_what_batch_put_together():
    cases = three_cases()
    together = batch(cases)
    for fields, case in zip(unbatch(together.initial, together), cases, strict=True):
        assert fields.keys() == case.initial.keys()
        assert all(torch.equal(fields[name], case.initial[name]) for name in fields)
    alone = cases[0]
    assert batch([alone]) is alone
    assert torch.equal(unbatch(alone.initial, alone)[0]["u"], alone.initial["u"])


def test_batches_can_be_batched_and_converted():
    first, second, third = three_cases()
    nested, flat = batch([batch([first, second]), third]), batch([first, second, third])
    assert nested.sizes == flat.sizes
    for name, values in tensors_of(flat).items():
        assert torch.equal(tensors_of(nested)[name], values), name
    single = flat.to(torch.float32)
    assert single.sizes == flat.sizes
    assert torch.equal(single.operators["u"].gradient.values, flat.operators["u"].gradient.values.float())


def test_cases_that_do_not_go_together_are_named():
    mesh = square()
    one = Case(mesh, {"T": 0.0}, parameters={"c": 1.0}, name="one")
    other = Case(mesh, {"T": 0.0}, name="other")
    with pytest.raises(ValueError, match=r"same parameters; 'one' has \['c'\], 'other' has \[\]"):
        batch([one, other])
    with pytest.raises(ValueError, match="at least one case"):
        batch([])
    with pytest.raises(ValueError, match="cannot be concatenated"):
        batch([other, Case(square("hexahedron", 2), {"T": 0.0}, name="solid")])


def test_a_case_that_was_predicted_without_gradients_can_still_be_trained_on():
    case = heated_plate()
    with torch.inference_mode():
        case.operators["T"].grad(case.initial["T"])
    field = torch.ones_like(case.initial["T"], requires_grad=True)
    case.operators["T"].laplacian(field).square().sum().backward()
    assert field.grad is not None
