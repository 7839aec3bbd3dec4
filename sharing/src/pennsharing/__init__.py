"""Networks in one file: `pack` makes it, and with this package installed `--model` and `load_pretrained` read it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennsharing.packing import Pack, pack

__all__ = ["Pack", "pack"]


def __getattr__(name: str) -> Any:
    """At first use: the help of `penn` names this package's command and must not wait for torch."""
    if name not in __all__:
        raise AttributeError(f"module 'pennsharing' has no attribute {name!r}; it has {', '.join(__all__)}")
    from pennsharing import packing

    return getattr(packing, name)
