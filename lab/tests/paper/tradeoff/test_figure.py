"""The figure of error against seconds."""

import json

import pytest
from matplotlib.axes import Axes

from pennlab.paper.tradeoff import figure
from sweeps import NAMES, network_row, traded

pytestmark = pytest.mark.slow  # with others like it more than some seconds


def test_the_figure_tells_kinds_of_networks_apart_and_leaves_out_what_blew_up(solved, tmp_path, monkeypatch):
    names = (
        "PENN n = 16, r = 8",
        "PENN n = 4, r = 4",
        "MP-PDE n = 128, TW = 20",
        "(A) without this",
        "(B) without that",
    )
    rows = [network_row(dict.fromkeys(NAMES, 0.001), 0.1) | {"title": name, "model": name} for name in names]
    drawn: dict[str, list[str]] = {}
    real = Axes.scatter

    def scatter(self, x, y, **options):
        drawn.setdefault(str(options.get("label")), []).append(str(options.get("color")))
        assert all(value < 0.05 for value in y)
        return real(self, x, y, **options)

    monkeypatch.setattr(Axes, "scatter", scatter)
    worse = json.loads(json.dumps(solved))
    first = next(row for row in worse["rows"] if any(each["outcome"] == "finished" for each in row["records"]))
    for each in first["records"]:
        for error in each.get("errors", {}).values():
            error["mse"] = 1.0
    figure.draw(traded(worse, *rows), tmp_path / "figure.png")
    assert drawn["PENN"] == [figure.COLOURS[0]]
    assert drawn["MP-PDE"] == [figure.COLOURS[1]]
    assert drawn["PENN without one of its parts"] == [figure.COLOURS[2]]
