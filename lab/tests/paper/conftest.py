"""A small dataset and the record of a sweep over it, for all tests of the comparison with OpenFOAM."""

from pathlib import Path
from typing import Any

import pytest

from sweeps import solved_by_rule, write_dataset


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def solved(data, tmp_path_factory) -> dict[str, Any]:
    return solved_by_rule(data, tmp_path_factory.mktemp("runs"))
