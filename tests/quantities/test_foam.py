"""Tables as OpenFOAM's function objects write them."""

import numpy as np
import pytest

from pennpde.prediction import predict
from pennpde.quantities import parse
from pennpde.quantities.foam import write_tables
from steady_flows import duct, plain, square


def test_the_tables_hold_the_forces_and_coefficients_of_each_written_time(tmp_path):
    outcome = predict(plain(), duct(square("triangle", 6)), times=[0.5, 1.0, 1.5], resolution="own")
    wanted = [parse("drag coefficient bottom speed 2 length 0.5"), parse("pressure drop left right")]
    written = write_tables(tmp_path, outcome, wanted, {0: "10.5", 2: "11.5"}, 10.0)
    assert len(written) == 3
    folder = tmp_path / "postProcessing"
    table = np.loadtxt(folder / "forceCoeffs" / "10" / "coefficient.dat")
    assert table[:, 0].tolist() == [10.5, 11.5]
    assert table[:, 1] == pytest.approx(wanted[0].of(outcome).values[[0, 2]], rel=1e-6)
    pitch = -parse("moment coefficient bottom speed 2 length 0.5").of(outcome).values[[0, 2]]
    assert table[:, 5] == pytest.approx(pitch, rel=1e-6)
    assert table[:, 11] - table[:, 12] == pytest.approx(2 * pitch, rel=1e-5)  # Cl(f) and Cl(r)
    heading = (folder / "forceCoeffs" / "10" / "coefficient.dat").read_text()
    assert "# magUInf     : 2.000000e+00" in heading
    row = (folder / "forces" / "10" / "force.dat").read_text().splitlines()[-1]
    numbers = [float(each) for each in row.replace("(", " ").replace(")", " ").split()]
    parts = [parse(f"{part}force x bottom").of(outcome).values[2] for part in ("", "pressure ", "viscous ")]
    assert numbers[1::3] == pytest.approx(parts, abs=1e-6)
    drop = np.loadtxt(folder / "quantities" / "10" / "quantities.dat")[:, 2]
    assert drop == pytest.approx(wanted[1].of(outcome).values[[0, 2]], rel=1e-6)
