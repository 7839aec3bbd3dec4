"""The committed tables are those of the committed records."""

import importlib
import json
from typing import Any

import pytest

from paths import ROOT
from pennlab.paper.openfoam_sweep import settings, sweep
from pennlab.paper.tradeoff import measure as tradeoff
from pennlab.paper.tradeoff import presentation


@pytest.mark.slow
def test_the_committed_table_is_that_of_the_committed_record():
    results = ROOT / "lab" / "benchmarks" / "results"
    record = sweep.read_record(results / "tradeoff.json", tradeoff.KIND, "penn bench tradeoff")
    assert (results / "tradeoff.md").read_text(encoding="utf-8") == presentation.markdown(record)
    solved = sweep.read_record(results / "openfoam_sweep.json", sweep.KIND, "penn bench openfoam")
    assert [row["setting"] for row in solved["rows"]] == [row["setting"] for row in record["openfoam"]["rows"]]
    assert [row["setting"] for row in solved["rows"]] == [each.setting.name for each in settings.read(())]
    assert (results / "openfoam_sweep.md").read_text(encoding="utf-8") == presentation.sweep_markdown(solved)


def test_the_pages_have_the_tables_of_the_committed_measurements(monkeypatch):
    root = ROOT
    monkeypatch.syspath_prepend(root / "lab" / "benchmarks")

    def record(name: str) -> Any:
        return json.loads((root / "lab" / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))

    def page(name: str) -> str:
        return (root / "docs" / f"{name}.md").read_text(encoding="utf-8")

    finer, unseen, curves = map(importlib.import_module, ("finer_truth", "unseen_meshes", "learning_curves"))
    assert finer.table(record("finer_truth")) in page("comparison")
    assert unseen.tables(record("unseen_meshes")) in page("results")
    assert unseen.page(record("unseen_meshes")) == page("unseen_meshes")
    assert importlib.import_module("page_load").table(record("page_load")) in page("viewer")
    meshes, judged = map(importlib.import_module, ("general_flow_meshes", "plane_flow_finer"))
    assert meshes.table(record("general_flow_meshes")) in page("general_flow_results")
    assert judged.table(record("plane_flow_finer")) in page("general_flow_results")
    trust, fresh = importlib.import_module("expected_error"), record("expected_error_fresh")
    assert trust.fresh_table(fresh) in page("trust_results")
    assert trust.clue_table(record("expected_error_flow")["clues"]) in page("trust_results")
    clock = importlib.import_module("equal_error")
    for flows in clock.apart(record("equal_error")):
        assert clock.table(flows) in page("flow")
    second = importlib.import_module("second_opinion")
    assert second.table(record("second_opinion")["flows"]) in page("trust_results")
    for runs in record("learning_curves").values():
        assert curves.table(runs) in page("experiments")
