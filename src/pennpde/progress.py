"""What is being computed, for whoever watches: the live line of the command, the page in the browser."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Hear = Callable[[str, float], None]
"""Takes what is being computed, and how much of it is done, from zero to one."""
_HEAR: ContextVar[Hear | None] = ContextVar("hear", default=None)


def tell(stage: str, share: float = 0.0) -> None:
    """Tell whoever watches what begins, or how much of it is done; cheap where nobody does."""
    hear = _HEAR.get()
    if hear is not None:
        hear(stage, share)


@contextmanager
def watched(hear: Hear) -> Iterator[None]:
    """Within this context, `hear` is told; it must be quick."""
    before = _HEAR.set(hear)
    try:
        yield
    finally:
        _HEAR.reset(before)
