"""A recipe whose cases fail when told to, and a folder for its dataset."""

import pytest

from fake_recipe import FakeRecipe


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "marks").mkdir()
    return FakeRecipe(str(tmp_path / "marks"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "set"
