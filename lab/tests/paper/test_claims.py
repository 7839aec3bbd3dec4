"""The numbers that the page of results judges the paper's claims by are those of the committed records."""

import json
import re
from statistics import mean

import pytest

from paths import ROOT

FLOW = ROOT / "lab" / "records" / "flow"


def total(row: str) -> float:
    """The error of u and p together, mean over the seeds of a row."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (FLOW / row).glob("?.json")]
    pooled = [record["pooled"]["domain"] for record in records]
    return mean(each["u"]["mse"] + each["p"]["mse"] for each in pooled)


def written(text: str) -> list[float]:
    """The errors in a text, such as 8.5e-4 or (2.64 ± 0.07)e-4."""
    return [float(f"{mantissa}e-{power}") for mantissa, power in re.findall(r"([\d.]+)(?: ± [\d.]+\))?e-(\d+)", text)]


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
        # Two digits are written.
        assert any(value == pytest.approx(total(each), rel=0.03) for value in written(numbers)), (each, total(each))


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
