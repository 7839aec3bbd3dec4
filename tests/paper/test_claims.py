"""The numbers that the page of results judges the paper's claims by are those of the committed records."""

import json

import pytest
from paths import ROOT

FLOW = ROOT / "records" / "flow"


def total(row: str) -> float:
    pooled = json.loads((FLOW / row / "0.json").read_text(encoding="utf-8"))["pooled"]["domain"]
    return pooled["u"]["mse"] + pooled["p"]["mse"]


def claims() -> list[list[str]]:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    lines = page[page.index("## The paper's claims") :].splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("w0", "The same helps the flow"),
        ("n16_r4", "More iterations"),
        ("A", "(A)"),
        ("B", "(B)"),
        ("C", "(C)"),
        ("D", "(D)"),
        ("E", "(E)"),
        ("n8_r8", "More channels"),
        ("F", "(F, G)"),
        ("G", "(F, G)"),
    ],
)
def test_a_claim_shows_the_errors_of_the_row_and_of_the_full_network(row, words):
    (numbers,) = [numbers for claim, _, numbers in claims() if words in claim]
    for each in (row, "penn"):
        assert f"{total(each):.1e}".replace("e-0", "e-") in numbers


def test_every_claim_is_confirmed_contradicted_or_not_decided():
    found = claims()
    assert len(found) >= 15
    assert all(verdict.startswith(("confirmed", "contradicted", "not decided")) for _, verdict, _ in found)


def test_a_confirmed_ablation_is_worse_by_more_than_seeds_are_apart():
    for claim, verdict, _ in claims():
        row = claim[claim.rfind("(") + 1 : -1]
        if row in ("A", "B", "C", "D", "E"):
            assert verdict.startswith("confirmed") == (total(row) > 1.4 * total("penn"))


def test_the_floors_next_to_table_7_are_those_of_the_records():
    page = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
    for title, row in (("start field", "floor_start"), ("nearest training case", "floor_nearest")):
        assert f"{title} {total(row) / 1e-4:.3g}," in page
