"""The table of rivals on the plane flows: same cases for all, moments apart, losses said."""

import torch

from pennlab.paper.plane_flow_errors import errors, stacked
from pennlab.paper.plane_flow_table import Comparison, settings
from pennpde.case import Case, Dirichlet
from problems import rectangle


def rival(scale: float, *, without: str = "") -> dict:
    rows = {
        "step_2000.a": {"0.5": {"u": 0.1, "p": 0.2}, "6": {"u": 0.3, "p": 0.4}, "steady": {"u": 0.2, "p": 0.2}},
        "step_2000.b": {"0.5": {"u": 0.3, "p": 0.2}},
        "u-bend_3000.a": {"2": {"u": 0.5, "p": 0.5}},
    }
    return {
        case: {
            "seconds": 2.0 * scale,
            "errors": {time: {name: scale * each for name, each in row.items()} for time, row in moments.items()},
        }
        for case, moments in rows.items()
        if case != without
    }


def cells(table: str, title: str, row: str) -> list[str]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    (found,) = [line for line in lines if line[:2] == [title, row]]
    return found


def test_means_are_over_cases_of_means_over_moments():
    table = Comparison({"other": rival(0.5), "ours": rival(1.0)}).table()
    _, _, seconds, overall, early, middle, late, steady, median = cells(table, "trained families", "ours")
    assert seconds == "2.0"
    assert overall == "25.0 / 23.3"  # u: the mean of 0.2 and 0.3
    assert (early, middle, late, steady) == ("20.0 / 20.0", "–", "30.0 / 40.0", "20.0 / 20.0")
    assert median == "25.0 / 23.3"
    assert cells(table, "trained families", "other")[4] == "**10.0** / **10.0**"


def test_a_rival_without_results_is_named_and_takes_no_case_away():
    compared = Comparison({"ours": rival(1.0)}, missing=["third"])
    assert cells(compared.table(), "unseen families", "third")[2:4] == ["not yet", "–"]
    assert cells(compared.table(), "trained families", "*number of cases*")[3] == "2"


def test_a_case_that_one_rival_lacks_counts_for_none():
    compared = Comparison({"other": rival(0.5, without="step_2000.b"), "ours": rival(1.0)})
    assert cells(compared.table(), "trained families", "*number of cases*")[3] == "1"


def test_determined_moments_are_apart():
    known = {"step_2000": {"times": [0.5, 6.0], "u": [0.01, 0.2], "steady_u": None}}
    compared = Comparison({"other": rival(2.0), "ours": rival(1.0)}, sensitivity={"limit": 0.04, "flows": known})
    assert compared.determined("step_2000.b", "0.5") is True
    assert compared.determined("step_2000.a", "6") is False
    assert compared.determined("step_2000.a", "steady") is False
    assert compared.determined("u-bend_3000.a", "2") is None
    _, _, _, overall, determined, early, middle, late, steady, undetermined, _ = cells(
        compared.table(), "trained families", "ours"
    )
    assert overall == "**25.0** / **23.3**"
    assert determined == early == "**20.0** / **20.0**"
    assert (middle, late, steady) == ("–", "–", "–")
    assert undetermined == "**25.0** / **30.0**"


def test_losses_name_the_rival_that_is_better():
    lines = Comparison({"worse": rival(2.0), "better": rival(0.5), "ours": rival(1.0)}).losses().splitlines()
    assert lines[0] == "- **worse** has the smaller error of u in 0 of 3 cases, and on average nowhere."
    assert lines[1].startswith(
        "- **better** has the smaller error of u in 3 of 3 cases, and on average in u of trained"
    )
    assert "unseen families (all, 1 < t ≤ 4.5)" in lines[1]
    assert "`u-bend_3000.a` 50 %" in lines[2]


def test_a_setting_that_fails_on_the_hard_flow_does_not_look_better_for_it():
    def solved(u: float) -> dict:
        return {"programs": 1.0, "errors": {"x.a": {"1": {"u": u, "p": u}}}}

    tuning = {
        "fine": {"easy": solved(0.01), "hard": solved(0.5)},
        "coarse": {"easy": solved(0.02), "hard": {"failed": ""}},
    }
    lines = settings(tuning).splitlines()
    assert "| fine | 2 of 2 | 1.00 / 1.0 |" in lines[-2]
    assert "| coarse | 1 of 2 | 2.00 / 2.0 |" in lines[-1]


def test_the_level_of_the_pressure_counts_only_where_it_is_prescribed():
    mesh = rectangle((3, 3), (1.0, 1.0))
    truth = {
        "u": torch.ones(16, 2, 1, dtype=torch.float64),
        "p": torch.linspace(1, 2, 16, dtype=torch.float64)[:, None],
    }
    found = {"u": 1.1 * truth["u"], "p": truth["p"] + 1.0}
    for number, expected in ((1, 0.0), (4, 0.6531)):
        mask = torch.zeros(16, dtype=torch.bool)
        mask[:number] = True
        case = Case(
            mesh,
            initial={"u": (0.0, 0.0), "p": 0.0},
            dirichlet={"p": Dirichlet(mask, torch.zeros(16, dtype=torch.float64))},
            targets=truth,
        )
        (row,) = errors(case, [1.0], stacked(found)).values()
        assert abs(row["u"] - 0.1) < 1e-6
        assert abs(row["p"] - expected) < 2e-3
