"""Fields with fewer significant bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pennlab.datasets.recipe import rounded
from pennpde.case import Case
from pennpde.data import vtkhdf
from pennpde.mesh import Mesh
from stored_cases import some_case


@pytest.mark.slow
@given(bits=st.integers(2, 24), value=st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False))
@settings(deadline=None, max_examples=50)
def test_fewer_significant_bits_round_to_the_nearest_number_that_has_so_many(bits, value):
    case = Case(Mesh.from_arrays([[0.0, 0], [1, 0], [0, 1]], [[0, 1, 2]]), initial={"T": value})
    found = rounded(case, bits).initial["T"][0].item()
    assert abs(found - value) <= max(abs(value) * 2.0**-bits, 1e-44)
    mantissa = np.frexp(np.float64(found))[0] * 2.0**bits
    assert mantissa == round(mantissa) or abs(value) < 1e-37  # smaller numbers have fewer bits to begin with


def test_rounding_makes_files_smaller():
    sizes = [len(vtkhdf.pack(rounded(some_case("hexahedron"), bits))) for bits in (24, 16, 11)]
    assert sizes == sorted(sizes, reverse=True)
