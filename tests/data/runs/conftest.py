"""Pictures take longer than all the rest: they are drawn where a test asks for it."""

import pytest

from finished_runs import no_picture
from pennpde.data.runs import collect as collecting


@pytest.fixture
def drawn() -> None:
    """Ask for pictures."""


@pytest.fixture(autouse=True)
def _without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(collecting, "draw_all", no_picture)
