"""Memory that is used again instead of being given back: many short-lived arrays of the same sizes, step after step."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT = 256 * 2**20
_LARGEST = 32 * 2**20
"""Arrays up to this size; the C library takes no larger number."""


@cache
def keep_freed_memory() -> bool:
    """Let the C library keep up to 256 MB of freed memory for the next arrays; whether it understood.

    By default it returns arrays of a megabyte to the system as soon as they are freed, and every new one costs a page
    fault per 4 kB: a third of the time of a flow with 7,000 points. Holds for the whole process.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not the GNU library: others decide for themselves
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, _KEPT))


def give_back_freed_memory() -> bool:
    """Return freed memory to the system now; whether the C library understood.

    For arrays that stay. They are put into gaps between short-lived ones, which then fit no longer: without this, a
    process that keeps a new array after each of many computations takes four times the memory of what it keeps.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):
        return False
