"""README and docs: their Python runs, their commands exist, and how code is taken out of a page."""

import importlib
import re
import runpy
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import pyvista
from typer.main import get_command

import documents
import pennpde
from commands import penn
from documents import PAGES
from foam_cases import write_plane_channel
from paths import ROOT
from pennlab.datasets import packing
from pennlab.datasets.flow.cases import TIMES
from pennpde import registry
from pennpde import train as experiments
from pennpde.cli import application
from pennpde.data import storage
from pennpde.mesh import Mesh
from pennpde.models.designs import coarse_mesh, flow_case
from problems import rectangle

QUICK = ("predict", "info")
"""Subcommands that are run where a page shows them; the others are only parsed."""


def quick_commands(page: str) -> list[list[str]]:
    return [words for _, words in documents.commands(page, run=True) if words[0] == "penn" and words[1] in QUICK]


TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
WITH_PYTHON = [name for name, text in TEXTS.items() if documents.program(text, run=True)]
COMMANDS = [
    pytest.param(name, words, id=f"{name}:{line}")
    for name, text in TEXTS.items()
    for line, words in documents.commands(text)
]
INLINE = [
    pytest.param(words, id=f"{name}:{line}")
    for name, text in TEXTS.items()
    for line, words in documents.inline_commands(text)
]


# Files that the pages speak of


def duct(path: Path) -> None:
    mesh = rectangle((68, 22), (3.0, 1.0))
    Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4)).save(path)  # without patches


def flows(path: Path, frames: int = 1) -> None:
    """A flow dataset of one small case in each split, whose truth is its start."""
    splits = {"train": ["a_0.30"], "validation": ["b_0.50_0.50"], "test": ["a_0.90"]}
    cases = []
    for (name,) in splits.values():
        case = flow_case(coarse_mesh(name, cells_per_length=4), name)
        targets = {field: values[..., None].repeat_interleave(frames, -1) for field, values in case.initial.items()}
        cases.append(flow_case(case.mesh, name, targets))
    storage.write(path, cases, splits, "flow", TIMES[-frames:])
    packing.pack(path)  # as `penn generate` leaves it


MAKERS: dict[str, Callable[[Path], Any]] = {
    "duct.vtu": duct,
    "duct.toml": lambda path: path.write_text(documents.files(TEXTS["tutorial.md"])["duct.toml"]),
    "myCase": write_plane_channel,
    "myOpenFOAMCase": write_plane_channel,
    "data/flow": flows,
    "data/flow_frames": lambda path: flows(path, len(TIMES)),
}


def furnish(folder: Path, page: str) -> None:
    """Write the files that a page shows, and those that its code names."""
    for name, content in documents.files(page).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    code = "\n".join(block.text for block in documents.blocks(page))
    for name, make in MAKERS.items():
        if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w.-])", code) and not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            make(folder / name)


# The pages


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_PYTHON)
def test_the_python_of_a_page_runs_from_top_to_bottom(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pyvista, "OFF_SCREEN", True)  # a page may plot
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))  # a page may register a network
    furnish(tmp_path, TEXTS[name])
    program = tmp_path / f"{Path(name).stem}.py"
    program.write_text(documents.program(TEXTS[name], run=True), encoding="utf-8")
    runpy.run_path(str(program), run_name="__main__")


def parse(words: Sequence[str]) -> None:
    """Parse a command line as `penn` would, without running it; raises what typer raises for wrong ones."""
    command: Any = get_command(application)
    context = command.make_context("penn", list(words))
    rest = [*context._protected_args, *context.args]
    while hasattr(command, "resolve_command") and rest:
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args]


@pytest.mark.parametrize(("page", "words"), COMMANDS)
def test_a_command_of_a_page_can_be_given(page, words):
    program, *rest = words
    if program == "penn":
        parse(rest)
        if rest[0] == "train" and rest[1].endswith(".toml"):  # else the folder of a dataset
            rows = experiments.read(ROOT / rest[1])
            assert "--row" not in rest or rest[rest.index("--row") + 1] in rows
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        assert set(rest) <= set(targets)
    elif program == "python":
        if rest[0] == "-m":
            importlib.import_module(rest[1])
        else:
            assert (ROOT / rest[0]).is_file()
    elif program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for wanted in re.findall(r"\[(.*?)\]", " ".join(rest)):
            assert set(wanted.split(",")) <= set(extras)
    elif program.startswith("."):
        assert (ROOT / program).is_file()
    else:
        assert program in ("dask", "git", "gmsh"), f"{program} is a command of whom?"


@pytest.mark.parametrize("words", INLINE)
def test_subcommands_and_options_that_a_sentence_names_exist(words):
    command: Any = get_command(application)
    words = [word.strip("[]") for word in words[1:]]
    context = command.make_context("penn", [], resilient_parsing=True)
    while hasattr(command, "get_command") and words and words[0].islower() and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"`penn` has no {words[0]!r}"
        command, words = found, words[1:]
    known = {"--help", *(flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts))}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if quick_commands(text)])
def test_quick_commands_of_a_page_run(name, tmp_path, monkeypatch):
    furnish(tmp_path, TEXTS[name])
    monkeypatch.chdir(tmp_path)
    for words in quick_commands(TEXTS[name]):
        finished = penn(*words[1:])
        assert finished.exit_code == 0, f"{' '.join(words)}: {finished.output}"


def test_the_pages_of_the_python_interface_have_every_public_name_once():
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    shown = re.findall(r"^\.\. auto(?:class|function|data):: (\w+)$", text, flags=re.MULTILINE)
    assert sorted(shown) == sorted(pennpde.__all__)


# How code is taken out of a page

PAGE = """\
# A page

```python
x = 1
```

<!-- test: before
from math import pi
-->

```python
y = x + pi
```

<!-- test: skip, needs a cluster -->
```python
import dask_jobqueue
```

<!-- test: types, takes ten minutes -->

```python
z: float = y
```

1. A list:

    ```sh
    $ penn predict a.vtu \\
        --case "b c.toml" > log   # a comment
    node1$ OMP_NUM_THREADS=1 penn info a.vtu
    # no command
    ```

<!-- test: file settings.json -->
```json
{}
```

```toml
# case.toml
[patches]
```

```{include} other.md
:option: value
```

Or `penn generate
flow --frames`, not `print`.
"""


def test_lines_of_a_page_keep_their_numbers():
    lines = documents.program(PAGE, run=False).splitlines()
    assert {number: line for number, line in enumerate(lines, 1) if line} == {
        4: "x = 1",
        8: "from math import pi",
        12: "y = x + pi",
        23: "z: float = y",
    }
    assert [line for line in documents.program(PAGE, run=True).splitlines() if line][-1] == "y = x + pi"
    assert documents.program("only words", run=False) == ""


def test_files_commands_and_inline_commands_are_found():
    assert documents.files(PAGE) == {"settings.json": "{}\n", "case.toml": "# case.toml\n[patches]\n"}
    assert [words for _, words in documents.commands(PAGE)] == [
        ["penn", "predict", "a.vtu", "--case", "b c.toml"],
        ["penn", "info", "a.vtu"],
    ]
    assert [words for _, words in documents.inline_commands(PAGE)] == [["penn", "generate", "flow", "--frames"]]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("```python\nx = 1\n", "never closed"),
        ("<!-- test: before\nx = 1\n", "never closed"),
        ("<!-- test: skip -->\n```python\n```\n", "REASON"),
        ("<!-- test: maybe, who knows -->\n```python\n```\n", "marks look like"),
        ("<!-- test: skip, a reason -->\nA sentence.\n", "none follows"),
    ],
)
def test_marks_that_cannot_be_are_refused(page, words):
    with pytest.raises(ValueError, match=words):
        documents.blocks(page)


@pytest.mark.parametrize("line", ["predikt", "predict a.vtu --modl flow", "generate flow", "train a.toml --steps many"])
def test_a_wrong_command_line_is_noticed(line):
    with pytest.raises(Exception, match=r"predikt|--modl|[Mm]issing|integer") as caught:
        parse(line.split())
    assert getattr(caught.value, "exit_code", None) == 2  # typer's own errors; their class moves between versions
