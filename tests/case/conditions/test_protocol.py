"""What the protocol promises of every kind: typed access, storage, and errors for what is not known."""

import numpy as np
import pytest
import torch

from pennpde.case import Across, Case, Table, batch
from pennpde.case.conditions import KINDS
from pennpde.data import vtkhdf
from problems import rectangle


def every_kind() -> Case:
    """A vector and a scalar, between them with conditions of all kinds."""
    mesh = rectangle((4, 4)).with_patches({"low": lambda x: np.isclose(x[:, 1], 0), "high": lambda x: x[:, 1] > 0.99})
    return Case(
        mesh,
        initial={"u": (0.0, 0.0), "T": 0.0, "p": 0.0},
        dirichlet={"u": {"inlet": (1.0, 0.5), "high": (None, 0.25)}},
        neumann={"u": {"outlet": 2.0}},
        slip={"u": "low"},
        robin={"u": {"high": (1.0, 2.0, (3.0, 4.0))}, "T": {"low": (1.0, 1.0, 2.0)}},
        conditions={"total_pressure": {"p": {"inlet": 1.5}}, "stress_free": {"u": "outlet"}},
        periodic={"T": {"inlet": Across("outlet", jump=1.5)}},
        name="all",
    )


def test_all_kinds_are_there():
    case = every_kind()
    assert {kind for kind, by_unknown in case.conditions.items() if by_unknown} == {kind.kind for kind in KINDS}


def test_every_tensor_of_every_kind_survives_a_file():
    case = every_kind()
    again = vtkhdf.unpack(vtkhdf.pack(case), "memory").case
    for kind, by_unknown in case.conditions.items():
        assert again.conditions[kind].keys() == by_unknown.keys()
        for name, condition in by_unknown.items():
            other = again.conditions[kind][name]
            assert type(other) is type(condition)
            for part in condition.roles():
                assert torch.equal(getattr(other, part), getattr(condition, part)), (kind, name, part)
    assert torch.equal(again.operators["T"].gradient.values, case.operators["T"].gradient.values)


def test_a_file_does_not_hold_a_function_of_time():
    case = Case(rectangle((3, 3)), initial={"T": 0.0}, dirichlet={"T": {"inlet": Table([(0.0, 1.0), (1.0, 2.0)])}})
    with pytest.raises(ValueError, match=r"change with time, .* case.at\(time\)"):
        vtkhdf.pack(case)
    assert vtkhdf.unpack(vtkhdf.pack(case.at(0.5)), "memory").case.dirichlet["T"].values.amax() == 1.5


def test_a_case_in_single_precision_has_all_its_conditions_in_it():
    case = every_kind().to(torch.float32)
    for by_unknown in case.conditions.values():
        for condition in by_unknown.values():
            for part in condition.roles():
                values = getattr(condition, part)
                assert not values.is_floating_point() or values.dtype == torch.float32


def test_cases_with_different_kinds_are_no_batch():
    other = Case(rectangle((3, 3)), initial={"u": (0.0, 0.0), "T": 0.0, "p": 0.0}, slip={"u": "side"})
    with pytest.raises(ValueError, match="Cases of one batch have the same periodic"):
        batch([every_kind(), other])


def test_a_kind_that_nobody_knows_is_refused():
    with pytest.raises(KeyError, match="kind 'contact' are not known; give them by class"):
        Case(rectangle((3, 3)), initial={"T": 0.0}, conditions={"contact": {"T": {}}})
    with pytest.raises(KeyError, match=r"robin names \['p'\], but the unknowns of the case are \['T'\]"):
        Case(rectangle((3, 3)), initial={"T": 0.0}, robin={"p": {"inlet": (1.0, 1.0, 1.0)}})
