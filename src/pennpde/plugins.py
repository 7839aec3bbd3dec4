"""Installed packages that add to this one.

A package names a module of its own under the entry point `pennpde.plugins`; imported, it registers its networks,
losses or readers. Commands are named under `pennpde.commands`, readers of mesh files by their suffix under
`pennpde.formats`. Nothing is imported before a name is asked for that this package does not know.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points


@cache
def load_installed() -> tuple[str, ...]:
    """Import the plugins that are installed, once; returns their names."""
    found = entry_points(group="pennpde.plugins")
    for plugin in found:
        plugin.load()
    return tuple(plugin.name for plugin in found)


@cache
def commands() -> dict[str, str]:
    """The modules of the subcommands that installed packages add to `penn`, by name."""
    return {command.name: command.value for command in entry_points(group="pennpde.commands")}


@cache
def formats() -> dict[str, str]:
    """The modules of the readers of mesh files that installed packages add, by suffix with its dot."""
    return {f".{reader.name}": reader.value for reader in entry_points(group="pennpde.formats")}
