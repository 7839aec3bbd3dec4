"""Networks against OpenFOAM: who is faster and more accurate, and the table that says so."""

import json

import pytest

from pennlab.paper.openfoam_sweep.sweep import TestSet
from pennlab.paper.tradeoff import measure as tradeoff
from pennlab.paper.tradeoff import presentation
from sweeps import NAMES, RULES, network_row, swept, traded

pytestmark = pytest.mark.slow  # with others like it more than some seconds


def test_a_setting_that_is_faster_and_more_accurate_than_a_network_is_named(solved):
    slow = network_row(dict.fromkeys(NAMES, 0.01), 2.0, title="Slow")
    quick = network_row(dict.fromkeys(NAMES, 0.01), 0.1, title="Quick", model="quick")
    record = traded(solved, slow, quick)
    (lost,) = tradeoff.losses(record)
    assert (lost.loser.name, lost.winner.name) == ("Slow", "tuned-15-0.04")
    assert lost.totals == pytest.approx((0.02, 0.01))
    assert lost.seconds == pytest.approx((2.0, 1.0))
    text = presentation.markdown(record)
    assert "**Slow** loses to OpenFOAM `tuned-15-0.04`: 2 s against 1 s" in text
    row = next(line for line in text.splitlines() if line.startswith("| Slow"))
    assert "`tuned-15-0.04`" in row
    # More accurate, though slower: said as well.
    assert "More accurate than the best network" in text
    assert "`gamg-smooth-22.5-0.01`" in text.partition("## All rows")[0]


def test_many_defeats_of_one_network_are_one_sentence(solved):
    hopeless = network_row(dict.fromkeys(NAMES, 10.0), 100.0, title="Hopeless")
    record = traded(solved, hopeless)
    defeats = tradeoff.losses(record)
    assert len(defeats) > 1
    lines = [line for line in presentation.markdown(record).splitlines() if line.startswith("- **Hopeless**")]
    assert len(lines) == 2, "one without and one with what comes before"
    assert f"loses to OpenFOAM `{defeats[0].winner.name}`" in lines[0]
    assert all(f"`{each.winner.name}`" in lines[0] for each in defeats)
    sentence = presentation._sentence(defeats[0], *defeats[1:] * presentation._NAMED * 2)
    quickest = min(defeats[1:], key=lambda each: each.seconds[1])
    assert f"{(len(defeats) - 1) * presentation._NAMED * 2} others; the quickest, `{quickest.winner.name}`" in sentence


def test_where_no_setting_wins_that_is_said(solved):
    text = presentation.markdown(traded(solved, network_row(dict.fromkeys(NAMES, 0.001), 0.1)))
    assert text.count("no measured setting of OpenFOAM is both faster and more accurate") == 2
    assert "No setting of OpenFOAM that was measured is more accurate than Net" in text


def test_preparation_can_decide(solved):
    # 0.9 s against 1 s for the solution alone; with 0.2 + 3 s before against 0.3 s
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.9)
    for each in row["records"]:
        each["seconds"]["first_call"] = 3.9
    record = traded(solved, row)
    assert tradeoff.losses(record) == []
    (lost,) = tradeoff.losses(record, prepared=False)
    assert lost.seconds == pytest.approx((4.1, 1.3))


def test_rows_are_compared_on_the_cases_that_both_have(data, tmp_path):
    # Measured on the first case alone, where the network is good; over all cases the network is worse.
    record = swept(TestSet.read(data), tmp_path, ["tuned-9-0.05@1"], lambda *_: (0.01, 1.0))
    first, *others = record["cases"]
    network = network_row({first: 0.001} | dict.fromkeys(others, 1.0), 2.0)
    assert tradeoff.losses(traded(record, network)) == []
    (lost,) = tradeoff.losses(traded(record, network_row({first: 0.1} | dict.fromkeys(others, 0.0), 2.0)))
    assert lost.cases == 1


def test_a_setting_that_diverged_in_some_cases_is_on_no_front_but_its_wins_are_told(data, tmp_path):
    def rule(case, _):
        return (None, 0.0) if case.name.startswith("a") else (0.001, 0.1)

    record = traded(
        swept(TestSet.read(data), tmp_path, ["tuned-9-0.05"], rule), network_row(dict.fromkeys(NAMES, 0.01), 2.0)
    )
    (lost,) = tradeoff.losses(record)
    assert (lost.cases, lost.diverged) == (2, 1)
    assert "it diverged in 1 others" in presentation.markdown(record)
    assert [each.name for each in tradeoff.front(tradeoff.contenders(record))] == ["Net"]


def test_the_front_holds_those_whom_nobody_beats_the_fastest_first(solved):
    found = tradeoff.contenders(traded(solved, network_row(dict.fromkeys(NAMES, 0.01), 0.1)))
    assert [each.name for each in tradeoff.front(found)] == ["Net", "tuned-15-0.04", "gamg-smooth-22.5-0.01"]


def test_the_table_has_a_row_for_each_and_the_paper_s_numbers(solved):
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.1)
    text = presentation.markdown(traded(solved, row, row | {"transformed": True}))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 2 + len(RULES)
    diverged = next(line for line in lines if "gamg-smooth-22.5-0.05" in line)
    assert diverged.count("diverged") == 3
    assert "| 3, 3 failed |" in diverged
    assert diverged.endswith("| divergent |  |")
    assert next(line for line in lines if "gamg-smooth-22.5-0.01" in line).endswith("| 60.9 |  |")
    assert "`gamg-smooth-22.5-0.05` in 3 of 3 cases" in text


def test_rows_of_the_sweep_that_were_disturbed_have_a_mark(solved):
    assert "‡" not in presentation.sweep_markdown(solved)
    busy = json.loads(json.dumps(solved))
    row = next(row for row in busy["rows"] if row["errors"] is not None)
    for each in row["records"]:
        each["seconds"]["solve"] *= 2
    text = presentation.sweep_markdown(busy)
    (line,) = [line for line in text.splitlines() if line.startswith("|") and "‡" in line]
    assert line.startswith(f"| `{row['setting']}`")
    assert "‡ measured while other programs ran" in text


def test_other_processors_and_busy_ones_are_pointed_out(solved):
    row = network_row(dict.fromkeys(NAMES, 0.01), 0.1)
    assert "**" not in presentation.markdown(traded(solved, row)).partition("## Where")[0]
    other = traded(solved, row) | {"machine": {"cpu": "slide rule"}}
    assert "The times do not compare: OpenFOAM was timed on abacus" in presentation.markdown(other)
    for each in row["records"]:
        each["seconds"]["solve_cpu"] = 0.01
    assert "The machine was busy: for the networks, wall time is 10 times" in presentation.markdown(traded(solved, row))


def test_rows_on_the_mesh_of_the_truth_are_marked(data, tmp_path):
    record = swept(TestSet.read(data), tmp_path, ["gamg-smooth-90-0.005", "tuned-15-0.04"])
    assert [row["mesh_of_the_truth"] for row in record["rows"]] == [True, False]
    text = presentation.markdown(traded(record, network_row(dict.fromkeys(NAMES, 0.01), 0.1)))
    assert "| OpenFOAM `gamg-smooth-90-0.005` † |" in text


def test_seeds_of_one_row_are_told_apart(solved):
    rows = [network_row(dict.fromkeys(NAMES, 0.01), 0.1, model=f"runs/{seed}") for seed in (0, 1)]
    names = [each.name for each in tradeoff.contenders(traded(solved, *rows)) if each.is_network]
    assert names == ["Net (runs/0)", "Net (runs/1)"]


def test_trainings_of_one_title_are_told_apart_by_their_budget(solved):
    trainings = [{"budget": {"minutes": 6.2}, "cases": 203, "steps": 3000}, {"budget": {"minutes": 20}, "cases": 406}]
    rows = [network_row(dict.fromkeys(NAMES, 0.01), 0.1, model=f"runs/{number}") for number in range(3)]
    rows = [row | {"training": trainings[number > 0]} for number, row in enumerate(rows)]
    record = traded(solved, *rows, rows[0] | {"transformed": True})
    names = [each.name for each in tradeoff.contenders(record) if each.is_network]
    assert names == [
        "Net [6.2 minutes, 203 cases] (short: 3,000 of 20,000 steps)",
        "Net [20 minutes, 406 cases] (runs/1)",
        "Net [20 minutes, 406 cases] (runs/2)",
        "Net [6.2 minutes, 203 cases] (short: 3,000 of 20,000 steps)",
    ]
    assert "| 3,000 steps, 203 cases |" in presentation.markdown(record)


@pytest.mark.parametrize(
    ("row", "transformed", "total"),
    [
        ("penn_n16_r8", False, 1.606e-3),
        ("penn_n16_r8", True, 1.606e-3),
        ("mp_pde_n128_tw20", True, 0.477222),
        ("ablation_a", False, None),
    ],
)
def test_the_paper_s_number_of_a_network(row, transformed, total):
    printed = tradeoff._printed(row, transformed)
    assert printed == {"total": None if total is None else [pytest.approx(total)]}


def test_a_network_that_the_paper_has_not_has_no_number_of_it():
    assert tradeoff._printed("", False) is None
    assert tradeoff._printed("ablation_c", True) is None
