"""Tables: sorted, written, read by other programs."""

import csv
import math

import pytest

from pennpde.study.table import Row, Table, Verified

ROWS = (
    Row(1, {"x": 0.5}, "", (1.0,), {"loss": (2.0,)}, {"loss": (0.1,)}, {"u": 0.01}, "good", "fast", 0.2),
    Row(2, {"x": 1.0}, "cannot be meshed"),
    Row(3, {"x": 2.0}, "", (1.0,), {"loss": (1.0,)}, {"loss": (0.4,)}, {"u": 0.03}, "fair", "fast", 0.2),
)


def test_best_worst_and_most_uncertain_designs_have_numbers():
    table = Table(ROWS)
    assert [row.design for row in table.best()] == [3]
    assert [row.design for row in table.best("loss", 5, largest=True)] == [1, 3]
    assert [row.design for row in table.uncertain(number=3)] == [3, 1]
    with pytest.raises(KeyError, match="has loss"):
        table.best("gain")


def test_what_a_solver_found_stands_beside_with_the_actual_error():
    table = Table(ROWS, {3: Verified(3, "icoFoam", {"loss": [1.25]}, 12.0)})
    assert table["loss solver"] == [None, None, 1.25]
    assert table["loss actual error"] == [None, None, -0.25]
    assert table["solver"] == [None, None, "icoFoam"]


def test_a_csv_file_has_every_digit_and_a_reason_with_commas(tmp_path):
    rows = (*ROWS, Row(4, {"x": math.pi}, 'a "quoted", long\nreason'))
    Table(rows).save(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as stream:
        found = list(csv.DictReader(stream))
    assert [float(each["x"]) for each in found] == [0.5, 1.0, 2.0, math.pi]
    assert [each["loss"] for each in found] == ["2.0", "", "1.0", ""]
    assert found[3]["reason"] == 'a "quoted", long\nreason'


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ModuleNotFoundError, match="pip install 'pennpde\\[study\\]'"):
        Table(ROWS).save(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"\.csv or \.parquet"):
        Table(ROWS).save(tmp_path / "t.xlsx")


def test_a_parquet_file_has_the_same_columns(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    Table(ROWS).save(tmp_path / "t.parquet")
    assert parquet.read_table(tmp_path / "t.parquet").to_pydict() == Table(ROWS).columns
