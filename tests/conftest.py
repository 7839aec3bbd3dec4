"""Fixtures that several test modules share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of arrays that the released code computed: $PENN_REFERENCE, or beside the repository."""
    given = os.environ.get("PENN_REFERENCE")
    folder = Path(given) if given else Path(__file__).parents[2] / "shared" / "reference"
    if not (folder / "samples").is_dir():
        pytest.skip(f"there are no reference arrays in {folder}; set PENN_REFERENCE to their folder")
    return folder
