"""The package as a whole: what importing it costs and which names it has."""

import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

import pytest

import pennpde

HEAVY = ("vtk", "vtkmodules", "pyvista", "pydantic", "dask", "distributed", "skfem", "matplotlib", "trame", "typer")
MATHEMATICS = ("kernels", "mesh", "operators", "conditions", "layers", "solver", "metrics", "network", "training")
PRESENT = [name for name, module in pennpde._MODULE_OF.items() if find_spec(f"pennpde.{module}")]


def _in_a_new_process(statements: str) -> str:
    finished = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_importing_the_package_loads_nothing_heavy():
    loaded = _in_a_new_process(
        f"import sys, pennpde; print([m for m in {(*HEAVY, 'torch', 'numpy')} if m in sys.modules])"
    )
    assert loaded == "[]"


def test_the_mathematics_imports_where_vtk_and_pydantic_are_not_installed():
    present = [f"pennpde.{name}" for name in MATHEMATICS if find_spec(f"pennpde.{name}")]
    # None in sys.modules makes an import raise, as if the package were missing.
    loaded = _in_a_new_process(
        f"import sys; sys.modules.update(dict.fromkeys({HEAVY})); import {', '.join(present)}\n"
        "print('torch._dynamo' in sys.modules)"
    )
    assert loaded == "False", "torch's compiler, which takes as long to import as all of torch, is loaded too early"


def test_every_public_name_is_loaded_at_first_use():
    assert sorted(pennpde.__all__) == sorted(PRESENT), "a name is missing in __all__ and the imports beside it"
    for name in PRESENT:
        assert getattr(pennpde, name) is vars(pennpde)[name]
        assert name in dir(pennpde)


def test_an_unknown_name_is_refused_with_those_that_exist():
    with pytest.raises(AttributeError, match=r"'Mehs'.*'Mesh'"):
        pennpde.Mehs  # noqa: B018


def test_the_version_is_that_of_the_installed_package():
    assert pennpde.__version__ == version("pennpde")
