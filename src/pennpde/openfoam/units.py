"""Units as OpenFOAM writes them in symbols, such as `m^2 s^-1`."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

_UNITS: Mapping[str, tuple[int, int, int, int, int, int, int]] = {
    "kg": (1, 0, 0, 0, 0, 0, 0),
    "m": (0, 1, 0, 0, 0, 0, 0),
    "s": (0, 0, 1, 0, 0, 0, 0),
    "K": (0, 0, 0, 1, 0, 0, 0),
    "A": (0, 0, 0, 0, 0, 1, 0),
    "Cd": (0, 0, 0, 0, 0, 0, 1),
    "Hz": (0, 0, -1, 0, 0, 0, 0),
    "N": (1, 1, -2, 0, 0, 0, 0),
    "Pa": (1, -1, -2, 0, 0, 0, 0),
    "J": (1, 2, -2, 0, 0, 0, 0),
    "W": (1, 2, -3, 0, 0, 0, 0),
}


def powers_of(symbols: str) -> tuple[float, ...] | None:
    """Exponents of kilogram, metre, second, kelvin, mole, ampere and candela; None where a symbol is not known.

    Such as `m^2 s^-1`, `kg*m/s^2` or `Pa s`; each `/` is for the unit that follows it.
    """
    powers = np.zeros(7)
    for divided, unit, power in re.findall(r"(/?)\s*([^\s*/^]+)(?:\^(\S*?(?=[\s*/]|$)))?", symbols):
        try:
            exponent = float(power or 1.0)
        except ValueError:
            return None
        if unit not in _UNITS:
            return None
        powers += (-exponent if divided else exponent) * np.array(_UNITS[unit])
    return tuple(powers.tolist())
