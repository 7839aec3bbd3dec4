"""`penn operators`: the flow past a cylinder from its potential."""

import json
from pathlib import Path

import pytest

from pennlab.cli import operators
from pennpde.cli.conventions import as_command


@pytest.mark.slow
def test_the_condition_on_the_cylinder_stops_the_flow_through_it(tmp_path, capsys):
    with pytest.raises(SystemExit, match="0"):
        as_command("operators", operators).main(["--out", str(tmp_path), "--json"], prog_name="penn operators")
    record = json.loads(capsys.readouterr().out)
    assert Path(record["picture"]).read_bytes().startswith(b"\x89PNG")
    assert Path(record["fields"]).stat().st_size > 0
    assert record["mean_error"] < 2e-3  # 9e-4, most of it at the corners of the circle's grid
    assert record["flow_through"] < 0.2 * record["flow_through_without_condition"]  # w = 10 gives 0.1
