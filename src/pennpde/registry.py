"""What is found by name: networks, and what installed packages add to this one.

A stored network contains the name of its builder and the builder's arguments, no code. To store and load your own
network, register its builder first::

    pennpde.registry.register("burgers", burgers_network)

Commands accept the file or module that does so as `--plugin`; it is the only user code that they execute. An installed
package names a module of its own under the entry point `pennpde.plugins`, which registers networks or losses when it is
imported, commands under `pennpde.commands`, readers of mesh files by their suffix under `pennpde.formats`, and of
networks in one file under `pennpde.networks`. Nothing is imported before a name is asked for that this package does not
know.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module, util
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    Builder = Callable[..., nn.Module]

# A string is imported on first use: describing one network must not import all others.
_BUILDERS: dict[str, Builder | str] = {
    "gradient": "pennpde.models.gradient:gradient_network",
    "advection-diffusion": "pennpde.models.advection_diffusion:advection_diffusion_network",
    "flow": "pennpde.flow.coarse_march:flow_network",
    "flow-scheme": "pennpde.flow.scheme:FlowScheme",
    "ducts": "pennpde.models.ducts:flow_network",
}

_SHIPPED = frozenset(_BUILDERS)

WEIGHTS = Path(__file__).parent / "weights"
"""A folder for each network that comes with the package."""
_FORMER_NAMES = {"flow-paper": "ducts"}
"""Of networks in configurations and commands that were written before they were renamed."""


# Installed packages


@cache
def load_installed() -> None:
    """Import the plugins that are installed, once."""
    for plugin in entry_points(group="pennpde.plugins"):
        plugin.load()


@cache
def commands() -> dict[str, str]:
    """The modules of the subcommands that installed packages add to `penn`, by name."""
    return {command.name: command.value for command in entry_points(group="pennpde.commands")}


@cache
def formats() -> dict[str, str]:
    """The modules of the readers of mesh files that installed packages add, by suffix with its dot."""
    return {f".{reader.name}": reader.value for reader in entry_points(group="pennpde.formats")}


@cache
def network_readers() -> dict[str, str]:
    """The modules that find networks in other places than folders, by suffix without its dot or "address"."""
    return {reader.name: reader.value for reader in entry_points(group="pennpde.networks")}


# Networks


def names() -> list[str]:
    load_installed()
    return sorted(_BUILDERS)


def shipped() -> list[str]:
    """The networks that come with the package."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/config.json"))


def check_exists(name: str) -> None:
    """Notice that there is no network of a name, file, folder or address; takes no library."""
    if "://" in name or Path(name).exists() or present_name(name) in (known := shipped()):
        return
    raise FileNotFoundError(
        f"There is no network {name!r}: there is no such folder, and the shipped networks are "
        f"{', '.join(known) or 'none'}.{did_you_mean(name, known)}"
    )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the known name that is nearest to a mistyped one, if any is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def present_name(name: str) -> str:
    """The name that a network has today."""
    return _FORMER_NAMES.get(name, name)


def register(name: str, builder: Builder | str) -> None:
    """Register the builder of your own network; a second one of the same name replaces the first.

    Args:
        name: In configurations.
        builder: The function, or where it is, as "module:function": then it is imported at first use.
    """
    if name in _SHIPPED:
        raise ValueError(
            f"pennpde has a network {name!r} itself; choose another name than {', '.join(sorted(_SHIPPED))}."
        )
    _BUILDERS[name] = builder


def load_plugin(name: str) -> None:
    """Run a user's Python file, or import a module, that registers networks."""
    path = Path(name)
    if path.suffix == ".py" and not path.is_file():
        raise FileNotFoundError(f"There is no plugin {name}; give a Python file, or the name of an installed module.")
    try:
        if path.suffix != ".py":
            import_module(name)
            return
        spec = util.spec_from_file_location(f"pennpde_plugin_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(util.module_from_spec(spec))
    except (Exception, SystemExit) as error:
        # Whatever a user's own code raises: without its name it would look like a fault of the command.
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise
        raise ValueError(f"The plugin {name} cannot be loaded: {type(error).__name__}: {error}") from error


def builder(name: str) -> Builder:
    """The function that makes networks of this name."""
    name = present_name(name)
    if name not in _BUILDERS:
        load_installed()
    if name not in _BUILDERS:
        raise KeyError(
            f"There is no network {name!r}; there are {', '.join(names())}. One of your own must be registered first: "
            f"pennpde.registry.register({name!r}, function), in a command with --plugin FILE.py."
        )
    found = _BUILDERS[name]
    if isinstance(found, str):
        module, _, function = found.partition(":")
        found = _BUILDERS[name] = getattr(import_module(module), function)
    return found


def build(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Make a network; an argument that it does not take is refused with those that it takes."""
    function = builder(name)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"The arguments of the network {name!r} are {arguments!r}; they must be a table by name.")
    known = inspect.signature(function).parameters
    for argument, value in arguments.items():
        if argument in known and (wanted := _wanted(known[argument], value)):
            raise ValueError(f"The network {name!r} cannot be made with {argument} = {value!r}: it must be {wanted}.")
    try:
        return function(**arguments)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise ValueError(f"The network {name!r} takes {', '.join(known)}: {error}.") from error


_AT_LEAST_ONE = ("width", "hidden", "iterations", "steps", "rounds")
_MOST = {"width": 4096, "hidden": 4096}
"""Matrices have the square of a width: beyond this a network does not fit into memory."""
_LARGEST = 100_000


def _wanted(parameter: inspect.Parameter, value: Any) -> str | None:
    """What a number must be that no network can be made of, as a TOML file or a configuration may hold it."""
    kind = str(getattr(parameter.annotation, "__name__", parameter.annotation))
    least, most = int(parameter.name in _AT_LEAST_ONE), _MOST.get(parameter.name, _LARGEST)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "int" and not (number and isinstance(value, int) and least <= value <= most):
        return f"a whole number from {least} to {most}"
    if kind == "float" and not (number and math.isfinite(value)):
        return "a number"
    if kind == "bool" and not isinstance(value, bool):
        return "true or false"
    return None
