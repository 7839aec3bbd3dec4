"""The paper's claims are judged by the committed record of the tests on seeds, and the page says what it says."""

import json
import math
import re

import pytest

from paths import ROOT

RESULT = json.loads((ROOT / "lab" / "benchmarks" / "results" / "claims.json").read_text(encoding="utf-8"))
FLOW, TRANSPORT = RESULT["flow"], RESULT["advection_diffusion"]
PAGE = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")


def claims() -> dict[str, tuple[str, str]]:
    """By claim its verdict and its numbers."""
    lines = PAGE[PAGE.index("| claim | verdict |") :].splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][2:]
    return {claim: (verdict, numbers) for claim, verdict, numbers in rows}


def claim_of(name: str) -> tuple[str, str]:
    (found,) = [told for claim, told in claims().items() if claim.endswith(f"({name})")]
    return found


def written(text: str) -> list[float]:
    """The errors in a text, such as 8.5e-4 or (2.64 ± 0.07)e-4."""
    return [float(f"{mantissa}e-{power}") for mantissa, power in re.findall(r"([\d.]+)(?: ± [\d.]+\))?e-(\d+)", text)]


@pytest.fixture(scope="module")
def measured():
    import sys

    sys.path.insert(0, str(ROOT / "lab" / "benchmarks"))
    import claims as benchmark

    return benchmark


def test_the_record_and_the_table_are_those_of_the_committed_records(measured):
    widest = measured.widest_scatter()
    assert widest == pytest.approx(RESULT["widest_scatter"])
    for problem in measured.PROBLEMS:
        again = json.loads(json.dumps(measured.judged(problem, widest)))
        assert again.keys() == RESULT[problem.folder].keys()
        for row, told in again.items():
            assert told["mean"] == pytest.approx(RESULT[problem.folder][row]["mean"])
            assert told.get("verdict") == RESULT[problem.folder][row].get("verdict")
    assert measured.table(RESULT) in PAGE


def test_rows_are_judged_where_training_has_no_relatives_and_never_by_short_rows(measured):
    flow, transport = measured.PROBLEMS
    assert (flow.judged, transport.judged) == ("unrelated", "off_lattice")
    for problem in measured.PROBLEMS:
        for row in RESULT[problem.folder]:
            for record in measured.seeds(problem, row, problem.judged):
                assert record["test_set"]
                assert record["training"]["steps"] >= problem.steps


def test_verdicts_follow_from_p_and_the_side(measured):
    assert measured.welch([1.0, 1.1, 0.9], [10.0, 11.0, 9.0], 0.5) < 1e-3
    assert measured.welch([1.0, 1.1, 0.9], [1.05, 1.0, 0.95], 0.5) > 0.05
    # A single seed is far only by the widest scatter: three seeds beside it do not make it certain.
    assert measured.welch([2.0], [1.0, 1.01, 0.99], 0.5) > 0.05
    for rows in (FLOW, TRANSPORT, RESULT["series"]):
        for told in rows.values():
            if "p" in told:
                ratio = told.get("over_penn", told.get("over"))
                side = "worse" if ratio > 1 else "better"
                assert told["verdict"] == (side if told["p"] < 0.05 else "not decided")


@pytest.mark.parametrize("row", [*"ABCDEFG", "w0", "mp_pde_20_128"])
def test_a_claim_on_a_row_has_its_verdict_and_its_errors(row):
    verdict, numbers = claim_of(row)
    in_flow = FLOW[row]["verdict"]
    said = verdict.partition(", ")[0]
    assert said.startswith({"worse": "confirmed", "better": "contradicted"}.get(in_flow, "not decided"))
    for each in (row, "penn"):
        assert any(math.isclose(value, FLOW[each]["mean"], rel_tol=0.03) for value in written(numbers)), each
    if row in TRANSPORT:
        expected = "confirmed" if TRANSPORT[row]["verdict"] == "worse" else "not decided"
        rest = verdict.partition(", ")[2] or verdict
        assert expected in rest


@pytest.mark.parametrize("name", list(RESULT["series"]))
def test_a_claim_on_sizes_has_the_verdict_of_its_series(name):
    verdict, numbers = claim_of(name)
    told = RESULT["series"][name]
    assert verdict == {"worse": "confirmed", "better": "contradicted"}.get(told["verdict"], "not decided")
    assert f"p = {told['p']:.2g}" in numbers


def test_every_claim_is_confirmed_contradicted_or_not_decided():
    found = claims()
    assert len(found) >= 15
    assert all(verdict.startswith(("confirmed", "contradicted", "not decided")) for verdict, _ in found.values())


def test_the_floors_next_to_table_7_are_those_of_the_records():
    page = " ".join(PAGE.split())
    for title, row in (("start field", "floor_start"), ("nearest training case", "floor_nearest")):
        record = json.loads((ROOT / "lab" / "records" / "flow" / row / "0.json").read_text(encoding="utf-8"))
        pooled = record["pooled"]["domain"]
        total = pooled["u"]["mse"] + pooled["p"]["mse"]
        assert f"{title} {total / 1e-4:.3g}," in page
