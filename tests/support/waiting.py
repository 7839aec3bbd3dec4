"""Coroutines in tests: in a thread of their own, since a browser's tests leave an event loop in this one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def waited_for(coroutine: Coroutine[None, None, Result]) -> Result:
    """What a coroutine returns."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()
