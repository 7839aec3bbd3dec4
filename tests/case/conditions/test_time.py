"""Conditions that change with time: given as functions or tables, exact at every output time."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pennpde as penn
from pennlab.evaluation import evaluate
from pennpde.case import Case, Table, batch
from pennpde.case.units import Scale, Units
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.prediction import predict
from pennpde.testing import assert_dirichlet, assert_equivariant
from problems import heated_plate, rectangle

TIMES = (0.25, 0.5, 0.75, 1.0)


def rising(time: float) -> float:
    return 0.7 * math.sin(time)


def plate(inlet=rising, side=0.0, cells=(6, 5), **more) -> Case:
    known = heated_plate(cells=cells)
    return Case(
        known.mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"inlet": inlet}},
        neumann={"T": {"side": side, "outlet": 0.0}},
        parameters=dict(known.parameters) | more.pop("parameters", {}),
        features=known.features,
        name=f"plate {cells}",
        **more,
    )


def network(**options) -> penn.PENN:
    torch.manual_seed(0)
    return advection_diffusion_network(width=4, iterations=2, **options).double()


def test_a_function_is_taken_at_each_output_time_bit_for_bit():
    case = plate()
    fields, held = network()(case)["T"], case.dirichlet["T"].mask
    assert network().output_times == TIMES
    for place, time in enumerate(TIMES):
        assert (fields[held][:, place] == rising(time)).all()
    assert_dirichlet(network(), case)
    assert_dirichlet(network().float(), case)


def test_each_step_is_implicit_and_knows_nothing_of_later_values():
    early = network()(plate(lambda time: 0.3))["T"]
    late = network()(plate(lambda time: 0.3 if time < 0.6 else 5.0))["T"]
    assert torch.equal(early[:, :2], late[:, :2])
    assert (early[:, 2] - late[:, 2]).abs().max() > 1.0
    inside = ~plate().dirichlet["T"].mask
    assert (early[inside, 2] - late[inside, 2]).abs().max() > 0.1


def test_what_does_not_change_gives_what_a_number_gives():
    for constant in (lambda time: 0.7, Table([(0.0, 0.7), (1.0, 0.7)])):
        assert torch.equal(network()(plate(constant))["T"], network()(plate(0.7))["T"])


def test_a_table_is_linear_in_between_and_exact_at_its_rows():
    table = Table([(0.0, 0.1), (0.5, 0.3), (2.0, 0.9)])
    condition = plate(table).dirichlet["T"]
    inlet = condition.mask
    for time, value in ((0.0, 0.1), (0.5, 0.3), (2.0, 0.9)):
        assert (condition.at(time).values[inlet] == value).all()
    assert_close(condition.at(1.0).values[inlet], torch.full((int(inlet.sum()),), 0.5).double())
    with pytest.raises(ValueError, match=r"dirichlet\['T'\]\['inlet'\] is asked for at time 3, .* from 0 to 2"):
        condition.at(3.0)
    clamped = plate(Table(table.rows, outside="clamp")).dirichlet["T"]
    assert (clamped.at(3.0).values[inlet] == 0.9).all()
    assert (clamped.at(-1.0).values[inlet] == 0.1).all()


def test_a_network_asks_a_table_at_its_output_times_only():
    network()(plate(Table([(0.25, 0.0), (1.0, 1.0)])))
    with pytest.raises(ValueError, match="asked for at time 1"):
        network()(plate(Table([(0.0, 0.0), (0.9, 1.0)])))


def test_a_vector_or_a_field_may_change_and_other_patches_stay():
    mesh = rectangle((4, 4))
    x = mesh.points[:, 1].numpy()
    case = Case(
        mesh,
        initial={"u": (0.0, 0.0)},
        dirichlet={"u": {"inlet": lambda time: np.stack([time * x, 0 * x], axis=1), "outlet": (1.0, 2.0), "side": 0.0}},
    )
    values = case.at(2.0).dirichlet["u"].values
    middle = mesh.patch("inlet").points[1:-1]
    assert_close(values[middle, 0], 2.0 * mesh.points[middle, 1])
    assert (values[mesh.patch("outlet").points[1:-1]] == torch.tensor([1.0, 2.0]).double()).all()
    assert not values[mesh.patch("side").points].any()


def test_a_normal_derivative_that_changes_is_taken_at_each_step():
    changing = network()(plate(0.5, lambda time: 2.0 * time))["T"]
    assert torch.equal(changing[:, 0], network()(plate(0.5, 0.5))["T"][:, 0])
    assert (changing[:, 1] - network()(plate(0.5, 0.5))["T"][:, 1]).abs().max() > 1e-3


def test_a_case_at_a_time_is_steady_and_says_when():
    case = plate()
    then = case.at(0.4)
    assert not then.changes_with_time
    assert float(then.parameters["time"]) == 0.4
    given = plate(parameters={"time": 0.4})
    for each in (then, given):
        assert (each.dirichlet["T"].values[each.dirichlet["T"].mask] == rising(0.4)).all()
    assert torch.equal(network()(then)["T"], network()(plate(rising(0.4)))["T"])
    both = batch([case.at(0.1), case.at(0.2)])
    assert both.parameters["time"].tolist() == [0.1, 0.2]


def test_a_batch_gives_what_its_cases_give_one_by_one():
    cases = [plate(), plate(0.7, cells=(4, 4)), plate(Table([(0.0, 0.0), (1.0, 1.0)]), lambda time: time, (5, 3))]
    alone = [network()(case)["T"] for case in cases]
    assert_close(network()(batch(cases))["T"], torch.cat(alone), rtol=0, atol=1e-12)


def test_a_network_is_trained_on_such_cases(capsys):
    cases = [
        plate(cells=cells, targets={"T": heated_plate(cells=cells, targets=True).targets["T"]})
        for cells in ((6, 5), (5, 6))
    ]
    model = network().float()
    before = model(cases[0])["T"].detach()
    penn.fit(model, cases, steps=3, batch_size=2, device="cpu", learning_rate=1e-3)
    assert (model(cases[0])["T"] - before).abs().max() > 0
    assert_dirichlet(model, cases[0])


def test_motions_turn_values_of_every_time():
    assert_equivariant(network(), plate(), motions=1)
    mesh = rectangle((3, 3))
    case = Case(mesh, initial={"u": (0.0, 0.0)}, dirichlet={"u": {"inlet": lambda time: (time, 0.0)}})
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    moved = case.moved(turn, torch.zeros(2).double()).at(3.0).dirichlet["u"]
    assert_close(moved.values[moved.mask], torch.tensor([[0.0, 3.0]]).double().expand(int(moved.mask.sum()), 2))


def test_units_scale_times_and_values():
    scaled = Units(1.0, 0.5, {"T": Scale(2.0, 0.1)}).dimensionless(plate())
    condition = scaled.dirichlet["T"]
    assert_close(condition.at(3.0).values[condition.mask][0], torch.tensor((rising(1.5) - 0.1) / 2.0).double())
    timed = Units(1.0, 0.5).dimensionless(plate().at(3.0))
    assert float(timed.parameters["time"]) == 6.0


def test_a_prediction_in_other_units_holds_the_values_of_its_own_times():
    case = plate()
    outcome = predict(network(), case, length=2.0, speed=4.0)
    assert outcome.times == tuple(0.5 * time for time in TIMES)
    held = case.dirichlet["T"].mask
    for place, time in enumerate(outcome.times):
        assert (outcome.fields["T"][held][:, place] == rising(time)).all()
    assert outcome.certificate.dirichlet["T"] == 0.0


def test_an_evaluation_judges_by_the_values_of_each_time():
    case = plate(targets={"T": torch.zeros(42, 4)})
    record = evaluate(network(), [case], device="cpu", dtype=torch.float64).records[0]
    assert record.dirichlet["T"].mean == 0.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one row"),
        ([(0.0, 1.0), (0.0, 2.0)], r"must increase from row to row; got \[0.0, 0.0\]"),
        ([(1.0, 1.0), (0.5, 2.0)], "must increase"),
        ([(float("nan"), 1.0)], "must increase"),
        ([(0.0, 1.0, 2.0)], "row of a table is a time, which is a number"),
        ([1.0, 2.0], "row of a table is a time, which is a number"),
    ],
)
def test_tables_that_are_none_are_refused(rows, message):
    with pytest.raises(ValueError, match=f"(?i){message}"):
        Table(rows)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match='"error" or "clamp"; got \'repeat\''):
        Table([(0.0, 1.0)], outside="repeat")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"dirichlet\['T'\]\['inlet'\] at time 1 has shape \[3\]"):
        plate(Table([(0.0, 0.0), (1.0, (1.0, 2.0, 3.0))]))
    with pytest.raises(ValueError, match=r"dirichlet\['T'\]\['inlet'\] at time 0.5 holds a value that is not finite"):
        network()(plate(lambda time: math.nan if time == 0.5 else 0.0))
