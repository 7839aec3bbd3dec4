"""Execute the notebooks of docs/notebooks: their cells, in order, with what they print and show kept in the file.

python docs/notebooks.py [NAME ...]

A notebook is written as a program in cells (`docs/notebooks/NAME.py`: `# %%` begins a cell, `# %% [markdown]` one of
prose), which is what changes are made to. This runs the cells and writes `NAME.ipynb`, and the same as a page with its
pictures, `NAME.md`, for the documentation. No Jupyter is needed for it.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from code import InteractiveInterpreter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "notebooks"
_MARK = re.compile(r"^# %%( \[markdown\])?.*\n", re.MULTILINE)


@dataclass
class Cell:
    """A cell with what it printed, the text of its last value, and that value's picture."""

    source: str
    is_prose: bool
    printed: str = ""
    value: str = ""
    picture: bytes = b""


def cells_of(program: str) -> list[Cell]:
    """The cells of a program."""
    marks = [*_MARK.finditer(program)]
    ends = [*(mark.start() for mark in marks[1:]), len(program)]
    cells = []
    for mark, end in zip(marks, ends, strict=True):
        text = program[mark.end() : end].strip("\n")
        prose = mark[1] is not None
        cells.append(Cell(re.sub(r"^# ?", "", text, flags=re.MULTILINE) if prose else text, prose))
    return cells


class Failed(Exception):  # noqa: N818
    """A cell that raised an error."""


class Runner(InteractiveInterpreter):
    """Runs cells one after the other, as Jupyter would."""

    def __init__(self) -> None:
        super().__init__({"__name__": "__main__"})
        self.shown: list[Any] = []

    def showtraceback(self) -> None:
        kind, error, _ = sys.exc_info()
        raise Failed(f"{kind.__name__ if kind else 'Error'}: {error}") from error

    def run(self, cell: Cell) -> None:
        """Run a cell; the value of its last line, if it has one, is shown."""
        tree = ast.parse(cell.source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), _displayed(self.shown):
            self.runcode(compile(tree, "<cell>", "exec"))
            if last is not None:
                self.runcode(compile(ast.Interactive([last]), "<cell>", "single"))
        cell.printed = printed.getvalue()
        for value in self.shown:
            cell.value = repr(value)
            if hasattr(value, "_repr_png_"):
                cell.picture = value._repr_png_()
        self.shown.clear()


@contextlib.contextmanager
def _displayed(shown: list[Any]) -> Iterator[None]:
    before = sys.displayhook
    sys.displayhook = lambda value: None if value is None else shown.append(value)
    try:
        yield
    finally:
        sys.displayhook = before


def executed(program: str) -> list[Cell]:
    """The cells of a program after a run in an empty folder."""
    cells, runner, here = cells_of(program), Runner(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in cells:
                if not cell.is_prose:
                    runner.run(cell)
        finally:
            os.chdir(here)
    return cells


def notebook(cells: list[Cell]) -> dict[str, Any]:
    """The notebook in the terms of its format, version 4.5."""
    made, number = [], 0
    for place, cell in enumerate(cells):
        common = {"id": f"cell-{place}", "metadata": {}, "source": cell.source.splitlines(keepends=True)}
        if cell.is_prose:
            made.append({"cell_type": "markdown", **common})
            continue
        number += 1
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            text = cell.printed.splitlines(keepends=True)
            outputs.append({"output_type": "stream", "name": "stdout", "text": text})
        if cell.value:
            data: dict[str, Any] = {"text/plain": [cell.value]}
            if cell.picture:
                data["image/png"] = base64.b64encode(cell.picture).decode()
            result = {"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data}
            outputs.append(result)
        made.append({"cell_type": "code", **common, "execution_count": number, "outputs": outputs})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def page(name: str, cells: list[Cell]) -> tuple[str, dict[str, bytes]]:
    """The same as a page in Markdown, and its pictures by their names."""
    parts, pictures = [], {}
    for place, cell in enumerate(cells):
        if cell.is_prose:
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        if text := "".join([cell.printed, "" if cell.picture else cell.value]).rstrip():
            parts.append(f"```text\n{text}\n```")
        if cell.picture:
            file = f"{name}_{place}.png"
            pictures[file] = cell.picture
            parts.append(f"![{cell.value}]({file})")
    parts.append(
        f"The notebook with these outputs is {{download}}`{name}.ipynb`; `python docs/notebooks.py` makes both."
    )
    return "\n\n".join(parts) + "\n", pictures


def main() -> None:
    """Run the notebooks that are named, or all, and write them."""
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.py"))
    for name in names:
        cells = executed((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        text, pictures = page(name, cells)
        for old in FOLDER.glob(f"{name}_*.png"):
            old.unlink()
        for file, content in pictures.items():
            (FOLDER / file).write_bytes(content)
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")
        made = json.dumps(notebook(cells), indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.ipynb").write_text(made + "\n", encoding="utf-8")
        print(f"docs/notebooks/{name}.ipynb: {len(cells)} cells, {len(pictures)} pictures")


if __name__ == "__main__":
    main()
