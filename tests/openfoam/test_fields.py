"""Files of OpenFOAM's fields: whole ones are read, damaged ones are named."""

import numpy as np
import pytest

from foam_cases import write_brick, write_conditions, write_dictionary
from pennpde import openfoam
from pennpde.openfoam import FoamFormatError


@pytest.mark.parametrize("binary", [False, True])
def test_every_truncation_of_a_field_is_an_error(tmp_path, binary):
    folder = write_brick(tmp_path / "case", (1, 1, 1))
    path = folder / "0" / "U"
    path.parent.mkdir()
    if binary:
        openfoam.write_field(path, np.ones((4, 3)), openfoam.VELOCITY, {"left": {"type": "noSlip"}})
    else:
        write_conditions(folder, "U", "nonuniform List<vector> 2((1 0 0)(0 1 0))", {"left": "type noSlip;"})
    content = path.read_bytes().rstrip()
    openfoam.read_field(path)
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FoamFormatError):
            openfoam.read_field(path)


def test_a_field_that_is_missing_or_packed_badly_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="0/U"):
        openfoam.read_field(tmp_path / "0" / "U")
    (tmp_path / "p.gz").write_bytes(b"\x1f\x8b and no more")
    with pytest.raises(FoamFormatError, match="unpacked"):
        openfoam.read_field(tmp_path / "p")


def test_values_that_are_not_finite_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="not finite"):
        openfoam.write_field(tmp_path / "p", np.array([1.0, np.nan]), openfoam.PRESSURE, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        ({"startFrom": "startTime", "startTime": 0.5}, 0.5),
        ({"startFrom": "startTime", "startTime": 0.7}, 0.0),  # there is no such folder
        ({"startFrom": "latestTime", "startTime": 0.5}, 0.0),  # the last one may be the end of a finished run
        ({"startFrom": "firstTime"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_case_starts_where_its_settings_say_if_there_is_such_a_time(tmp_path, control, expected):
    for name in ("0", "0.5", "1"):
        (tmp_path / name).mkdir()
    write_dictionary(tmp_path / "system" / "controlDict", control)
    assert openfoam.start_time(tmp_path) == expected
