"""Reports: the paper's tables from records, and pictures."""

import json

import pytest
import torch

from evaluated_flows import flow_case, off_by
from paths import ROOT
from pennlab.evaluation import evaluate
from pennlab.paper.openfoam_sweep.sweep import read_record
from pennlab.paper.tables import Timed, markdown, paper_numbers, read_records, within
from pennlab.paper.tradeoff.measure import KIND, times_of_networks
from pennpde.pictures import draw_case
from problems import heated_plate, polynomial

CASES = [flow_case("a_0.10"), flow_case("b_0.10_0.20"), flow_case("c_0.10_0.20")]


def record(u=0.0, p=0.0, transformed=False, **about):
    facts = {"model": "m", "row": "penn", "title": "Ours", "paper": "penn_n16_r8", "split": "test"}
    facts |= {"dataset": {"kind": "flow", "hash": "0123"}} | about
    plain = evaluate(off_by(u, p), CASES, about=facts).to_plain()
    return json.loads(json.dumps(plain | {"transformed": transformed}))


def rows_of(text, heading="Method"):
    """The first table under a heading, by the first cell of its rows."""
    lines = [line.strip("| \n") for line in text.splitlines() if line.startswith("|")]
    start = next(number for number, line in enumerate(lines) if line.startswith(heading))
    return [[cell.strip() for cell in line.split(" | ")] for line in lines[start:]]


def methods_of(text, heading="Method"):
    """The first cells of the rows of the first table."""
    lines = text[text.index(f"| {heading}") :].splitlines()
    table = lines[: next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [line.split(" | ")[0].strip("| ") for line in table[2:]]


def test_short_rows_say_so_in_the_first_column_of_every_table():
    short, whole = ({"steps": steps, "budget": {"steps": steps}} for steps in (2000, 20_000))
    rows = [record(training=whole), record(row="n4_r4", paper="penn_n4_r4", title="Small", training=short)]
    rows += [record(row="B", paper="ablation_b", title="(B)", training=short)]
    text = markdown(rows)
    assert methods_of(text) == ["Ours", "Small (short: 2,000 of 20,000 steps)"]
    assert text.count("| Small (short: 2,000 of 20,000 steps) |") == 3, "errors, errors by type, size and time"
    assert text.count("| (B) (short: 2,000 of 20,000 steps) |") == 2
    assert "fewer steps than it was to have" in text
    assert "hort" not in markdown([record(training=whole)])


def test_rows_of_the_authors_protocol_are_short_until_they_have_the_steps_of_their_own_budget():
    whole = {"steps": 20_000, "batch": 8, "budget": {"steps": 20_000}}
    some = {"steps": 90_000, "batch": 1, "budget": {"steps": 160_000}}
    written = record(row="paper", title="As written", training=some)
    assert methods_of(markdown([record(training=whole), written])) == [
        "As written (short: 90,000 of 160,000 steps)",
        "Ours",
    ]
    epochs = {"steps": 1_000, "batch": 100, "cases": 960, "budget": {"epochs": 2_000}}
    transport = {"kind": "advection-diffusion", "hash": "0123"}
    rows = record(row="released", title="Released", training=epochs) | {"dataset": transport}
    rows["pooled"] = {"domain": {"T": {"mse": 1.0, "standard_error": 0.1}}, "dirichlet": {}}
    rows["types"] = {}
    assert methods_of(markdown([rows])) == ["Released (short: 1,000 of 19,200 steps)"]
    rows = [record(training=whole), record(row="B", paper="ablation_b", title="(B)", training=whole)]
    _, apart = markdown([*rows, written]).split(", ablations")
    assert methods_of(apart) == ["Ours", "(B)"], "ablations are those of our network"


def test_seeds_that_were_short_and_now_have_all_steps_join_the_first_one():
    whole, short = ({"steps": steps, "cases": 203} for steps in (20_000, 2_000))
    whole, short = whole | {"budget": {"steps": 20_000}}, short | {"budget": {"minutes": 6.2}}
    f = {"row": "F", "paper": "ablation_f", "title": "(F)"}
    before = [record(training=whole), record(p=0.1, seed=0, training=whole, **f), record(seed=1, training=short, **f)]
    _, apart = markdown(before).split("## Incompressible flow, ablations")
    assert [name for name in methods_of(apart) if name.startswith("(F)")] == [
        "(F) [20000 steps, 203 cases]",
        "(F) [6.2 minutes, 203 cases] (short: 2,000 of 20,000 steps)",
    ]
    after = [*before[:2], record(p=0.2, seed=1, training=whole, **f), record(p=0.3, seed=2, training=whole, **f)]
    _, apart = markdown(after).split("## Incompressible flow, ablations")
    (row,) = [row for row in rows_of(apart)[:5] if row[0].startswith("(F)")]
    assert row[0] == "(F) (3 seeds)"
    assert row[4] == "46.67 ± 40.41"  # 10, 40 and 90 in units of 1e-3


def test_floors_stand_in_the_table_of_ablations_as_well():
    training = {"steps": 20_000, "budget": {"steps": 20_000}}
    rows = [record(training=training), record(row="B", paper="ablation_b", title="(B)", training=training)]
    floor = record(row="floor_start", paper="", title="Start field")
    _, apart = markdown([*rows, floor]).split("## Incompressible flow, ablations")
    assert methods_of(apart) == ["Ours", "(B)", "Start field"]


def test_times_measured_together_replace_those_of_the_records_and_others_are_marked():
    rows = [record(title="Timed"), record(row="n4_r4", paper="penn_n4_r4", title="Other")]
    rows = [each | {"device": "some GPU"} for each in rows]
    text = markdown(rows, {"Timed": Timed(0.0744, 0.003, "one core")})
    timed, other = (
        next(line for line in text.splitlines()[::-1] if f"| {name}" in line) for name in ("Timed", "Other")
    )
    assert "| 0.0744 ± 0.003 | 5.33 ± 0.13 | one core |" in timed
    assert " ‡ |" in other
    assert "| some GPU |" in other
    assert "‡" not in markdown(rows)


def test_the_papers_numbers_stand_beside_ours():
    header, _, row, *_ = rows_of(markdown([record(u=0.01, p=0.1)]))
    found = dict(zip(zip(header, ["", *header], strict=False), row, strict=True))
    assert found["Method", ""] == "Ours"
    # u is off by 0.01 in two of three components
    assert found["u (×10⁻⁴)", "Trans."].startswith("0.67 ±")
    assert found["paper", "u (×10⁻⁴)"] == "4.36 ± 0.03"
    assert found["p (×10⁻³)", "paper"].startswith("10.00 ±")
    assert found["paper", "p (×10⁻³)"] == "1.17 ± 0.01"


def test_seeds_are_averaged_and_their_spread_is_shown():
    text = markdown([record(p=0.1, seed=0), record(p=0.2, seed=1)])
    row = rows_of(text)[2]
    assert row[0] == "Ours (2 seeds)"
    assert row[4] == "25.00 ± 21.21"  # 10 and 40 in units of 1e-3


def test_a_row_trained_for_another_budget_is_no_seed_of_it_and_every_row_says_what_it_has_had():
    long = {"steps": 53000, "minutes": 19.7, "device": "a GPU", "cases": 406, "batch": 8, "budget": {"minutes": 20.3}}
    short = long | {"steps": 8000, "minutes": 11.0, "cases": 203, "budget": {"minutes": 11}}
    text = markdown([record(seed=0, training=long), record(seed=1, training=long), record(training=short)])
    methods = [row[0] for row in rows_of(text)[2:4]]
    assert methods[0].endswith("[20.3 minutes, 406 cases] (2 seeds)")
    assert methods[1].endswith("[11 minutes, 203 cases] (short: 8,000 of 20,000 steps)")
    assert "53,000 steps of 8, 406 cases, 19.7 min on a GPU" in text
    assert "8,000 steps of 8, 203 cases, 11.0 min on a GPU" in text
    assert "[" not in markdown([record(training=long)])  # where there is nothing to tell apart


def test_ablations_have_a_table_of_their_own_beside_the_full_network_of_their_budget():
    short, long = ({"budget": {"minutes": minutes}, "steps": 30_000} for minutes in (6, 20))
    full = [record(training=short), record(training=short, transformed=True), record(training=long)]
    variant = record(row="corrected", title="Ours, corrected", training=short)
    ablation = record(row="B", paper="ablation_b", title="(B)", training=short)
    others = [ablation | {"transformed": True}, record(row="n4_r4", paper="penn_n4_r4", title="Small", training=short)]
    text = markdown([variant, ablation, *others, *full])
    main, apart = text.split("## Incompressible flow, ablations")
    assert [row[0] for row in rows_of(main)[2:7]] == [
        "Ours [20 minutes]",
        "Ours [6 minutes]",
        "Ours [6 minutes]",
        "Ours, corrected",
        "Small",
    ]
    assert [row[1] for row in rows_of(main)[2:7]] == ["no", "no", "yes", "no", "no"]
    assert "(B)" not in main
    assert [row[:2] for row in rows_of(apart)[2:5]] == [["Ours", "no"], ["Ours, corrected", "no"], ["(B)", "no"]]
    assert apart.count("(B)") == 2, "its errors and its size"
    assert "ablations (" not in markdown(full), "no table without an ablation"


def test_moved_and_unmoved_test_sets_have_rows_of_their_own():
    text = markdown([record(), record(transformed=True)])
    assert [row[1] for row in rows_of(text)[2:4]] == ["no", "yes"]


def test_types_of_shapes_have_columns_of_their_own():
    text = markdown([record(p=0.1)])
    assert "u (×10⁻⁴) a" in text
    assert "p (×10⁻³) c" in text


def test_a_divergent_row_of_the_paper_says_so():
    assert "divergent" in markdown([record(paper="ablation_a")])
    assert markdown([record(paper="")])  # one that the paper does not have has no published numbers


def test_the_papers_numbers_are_those_that_the_task_states():
    numbers = paper_numbers()
    assert numbers["gradient"]["nisogcn"]["grad"] == [6.70e-3, 0.15e-3]
    assert numbers["gradient"]["nisogcn"]["neumann_phi"] == [3.52e-3, 0.02e-3]
    assert numbers["flow"]["penn_n16_r8"]["u"][0] == 4.36e-4
    assert numbers["flow"]["penn_n16_r8"]["p"][0] == 1.17e-3
    assert numbers["flow"]["mp_pde_n128_tw20"]["u"][0] == 1.30e-4
    assert numbers["flow"]["mp_pde_n128_tw20"]["parameters"] == 709_316
    assert numbers["advection-diffusion"]["penn"]["T"][0] == 1.795e-4
    assert numbers["flow"]["ablation_a"]["u"] is None
    # Total errors are the sums of those of u and p, as printed: the two tables of the paper agree to their last digit.
    for row in numbers["flow"].values():
        if "total" in row:
            assert row["total"][0] == pytest.approx(row["u"][0] + row["p"][0], abs=1.1e-5)


def test_records_are_read_from_files_and_folders_and_others_refused(tmp_path):
    (tmp_path / "one.json").write_text(json.dumps(record()))
    (tmp_path / "other.json").write_text('{"kind": "training"}')
    assert len(read_records([tmp_path])) == len(read_records([tmp_path / "one.json"])) == 1
    with pytest.raises(ValueError, match=r"other\.json is not a record of an evaluation"):
        read_records([tmp_path / "other.json"])
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken\.json is no JSON"):
        read_records([tmp_path])
    with pytest.raises(ValueError, match="There is no record"):
        read_records([])
    with pytest.raises(ValueError, match="the records are of own"):
        markdown([record(dataset={"kind": "own"})])


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(CASES[0], id="2D"),
        pytest.param(heated_plate(cells=(4, 4), targets=True), id="times", marks=pytest.mark.slow),
        pytest.param(polynomial(cells=(3, 4, 5)), id="3D"),
    ],
)
def test_truth_prediction_and_error_are_drawn(case, tmp_path):
    fields = {
        name: target + 0.1 * torch.randn(target.shape, dtype=target.dtype) for name, target in case.targets.items()
    }
    draw_case(case, fields, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_tables_of_the_documentation_are_those_of_the_committed_records():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    measured = read_record(ROOT / "lab" / "benchmarks" / "results" / "tradeoff.json", KIND, "penn bench tradeoff")
    assert page == within(page, markdown(read_records([ROOT / "lab" / "records"]), times_of_networks(measured)))


def test_tables_go_between_the_marks_of_a_page_or_stand_alone():
    page = "# Ours\n<!-- tables -->\nold\n<!-- end of tables -->\nrest\n"
    assert within(page, "new\n") == "# Ours\n<!-- tables -->\n\nnew\n\n<!-- end of tables -->\nrest\n"
    assert within("# Ours\n", "new\n") == "new\n"
    with pytest.raises(ValueError, match=r"lacks the mark '<!-- tables -->'"):
        within("# Ours\n", "new\n", required=True)


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("# Ours\n<!-- tables -->\nold\n", "end of tables"),
        ("# Ours\nold\n<!-- end of tables -->\n", "<!-- tables -->"),
        ("<!-- end of tables -->\n<!-- tables -->\nold\n", "end of tables"),
    ],
)
def test_half_a_pair_of_marks_is_refused_rather_than_the_page_lost(page, missing):
    with pytest.raises(ValueError, match=f"lacks the mark '.*{missing}"):
        within(page, "new\n")


def test_a_second_test_set_is_no_seed_of_the_first_and_has_a_table_of_its_own():
    first, second = record(u=0.01), record(u=0.02, test_set="without relatives in training")
    text = markdown([first, second])
    assert "2 seeds" not in text
    assert rows_of(text)[2] == rows_of(markdown([first]))[2]
    assert "| Ours | without relatives in training | 3 | 2.67" in text
