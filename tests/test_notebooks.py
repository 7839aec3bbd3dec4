"""The notebooks of the documentation: they show what their programs say, and run."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paths import ROOT

PROGRAMS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))


@pytest.fixture(scope="module")
def notebooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["notebooks"] = module  # where dataclasses look
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_notebook_and_its_page_have_the_cells_of_the_program(program: Path, notebooks: ModuleType):
    cells = notebooks.cells_of(program.read_text(encoding="utf-8"))
    shown = json.loads(program.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    assert ["".join(each["source"]) for each in shown] == [cell.source for cell in cells]
    assert [each["cell_type"] == "markdown" for each in shown] == [cell.is_prose for cell in cells]
    assert any(output for each in shown for output in each.get("outputs", ())), "it was not executed"
    page = program.with_suffix(".md").read_text(encoding="utf-8")
    assert all(cell.source in page for cell in cells)
    for picture in re.findall(r"\]\((\S+\.png)\)", page):
        assert (program.parent / picture).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_the_same_words(program: Path, notebooks: ModuleType):
    shown = json.loads(program.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]
    cells = notebooks.executed(program.read_text(encoding="utf-8"))
    for cell, each in zip(cells, shown, strict=True):
        before = "".join(line for output in each.get("outputs", ()) for line in output.get("text", ()))
        assert re.sub(r"[\d.]+", "#", cell.printed) == re.sub(r"[\d.]+", "#", before)  # numbers differ by machine
        assert bool(cell.picture) == any("image/png" in output.get("data", ()) for output in each.get("outputs", ()))


def test_an_error_in_a_cell_is_not_swallowed(notebooks: ModuleType):
    with pytest.raises(notebooks.Failed, match="ZeroDivisionError"):
        notebooks.executed("# %%\n1 / 0\n")
