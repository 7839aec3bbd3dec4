"""Executes the shapes in our signatures while the tests run.

`pyproject.toml` names `shapes.checked` in pytest's option `--jaxtyping-packages`, behind the modules that it is
applied to. `operators.sparse` cannot be among them: torch reads its signatures to register
them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import torch
from beartype import beartype
from jaxtyping import AbstractArray, config


def checked(function: Callable) -> Callable:
    """The function with its shapes checked at every call; all other annotations are pyright's business."""
    hints = {name: hint for name, hint in function.__annotations__.items() if _has_shape(hint)}
    if not hints:
        return function
    function.__annotations__ = dict.fromkeys(function.__annotations__, Any) | hints
    return beartype(function)


def _has_shape(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        # jaxtyping can check " cells+1" only after " cells", and the offsets of a mesh come before its cell types.
        return "+" not in hint.dim_str
    return any(map(_has_shape, get_args(hint)))


class _AsideWhileCompiling(type(config)):
    """jaxtyping's settings; `torch.compile` and `torch.export` would trace into the checks and refuse them."""

    _disabled = False

    @property
    def jaxtyping_disable(self) -> bool:
        return self._disabled or torch.compiler.is_compiling()

    @jaxtyping_disable.setter
    def jaxtyping_disable(self, value: bool) -> None:
        self._disabled = value


config.__class__ = _AsideWhileCompiling


@contextmanager
def unchecked() -> Iterator[None]:
    """Let wrong arguments reach our own error messages, which is what users see."""
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", False)
