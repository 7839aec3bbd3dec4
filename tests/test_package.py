"""The package as a whole: its names and its version."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest

import pennpde

PRESENT = [name for name, module in pennpde._MODULE_OF.items() if find_spec(f"pennpde.{module}")]


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
