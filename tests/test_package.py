"""The package as a whole: its names, its tree, its layers."""

import ast
import re
import tomllib
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import pennpde
from paths import PACKAGE, ROOT

PRESENT = [name for name, module in pennpde._MODULE_OF.items() if find_spec(f"pennpde.{module}")]


def test_every_public_name_is_loaded_at_first_use():
    assert sorted(pennpde.__all__) == sorted(PRESENT), "a name is missing in __all__ or in the imports"
    for name in PRESENT:
        assert getattr(pennpde, name) is vars(pennpde)[name]
        assert name in dir(pennpde)


def test_an_unknown_name_is_refused_with_those_that_exist():
    with pytest.raises(AttributeError, match=r"'Mehs'.*'Mesh'"):
        pennpde.Mehs  # noqa: B018


def test_the_version_is_that_of_the_installed_package():
    assert pennpde.__version__ == version("pennpde")


# The tree

# `cli` lists its subcommands in SUBCOMMANDS, and cli/test_cli.py compares them with its files.
PACKAGES = sorted(file.parent for file in PACKAGE.rglob("__init__.py") if file.parent not in (PACKAGE, PACKAGE / "cli"))
# Here the names of unknowns belong: equations, and the datasets and networks of the paper.
KNOW_UNKNOWNS = (
    *("models/", "flow/", "quantities/", "study/optimisation/", "viewer/subjects.py"),
    *("data/storage.py", "data/runs/", "train/experiment.py"),
)


def test_ten_modules_or_fewer_are_at_the_top():
    """Besides packages, which have one idea each."""
    modules = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert len(modules) <= 10, sorted(modules)


def test_imports_have_ten_layers_or_fewer():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers" and each["containers"] == ["pennpde"]]
    assert len(layers) <= 10


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_the_docstring_of_a_package_lists_its_modules(package):
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    there = {file.stem for file in package.glob("*.py")} - {"__init__", "__main__"}
    there |= {f"{file.parent.name}/" for file in package.glob("*/__init__.py")}
    listed = re.findall(r"^([a-z]\w*/?)  +\S", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(there)


def names_of_unknowns(file: Path) -> list[int]:
    """Lines that have the name of one of the paper's unknowns as a string."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [node.lineno for node in nodes if isinstance(node, ast.Constant) and node.value in ("u", "p", "T")]


def test_only_equations_datasets_and_the_paper_know_unknowns_by_name():
    files = {file.relative_to(PACKAGE).as_posix(): file for file in sorted(PACKAGE.rglob("*.py"))}
    generic = {path: file for path, file in files.items() if not path.startswith(KNOW_UNKNOWNS)}
    assert {path: found for path, file in generic.items() if (found := names_of_unknowns(file))} == {}


# Signatures


def made_by_position(file: Path) -> list[str]:
    """Objects made with more than six arguments that only their order tells apart."""
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    names = [(ast.unparse(call.func).split(".")[-1], call) for call in calls if len(call.args) > 6]
    return [f"{file.name}:{call.lineno} {name}" for name, call in names if name[:1].isupper() or name == "cls"]


def test_no_object_is_made_with_more_than_six_arguments_by_position():
    """Compiled loops are left out: Numba makes its tuples by position."""
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if file.name != "kernels.py"]
    assert [found for file in files for found in made_by_position(file)] == []
