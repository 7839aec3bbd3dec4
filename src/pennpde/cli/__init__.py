"""The command `penn`: one small module per subcommand, imported when it is called.

To add the subcommand `penn time`, write `cli/time.py` with a function `run` and name it in `SUBCOMMANDS`::

    EXAMPLES = ["penn time plate.vtu --repeats 5"]

    def run(
        output: Output,
        mesh: Annotated[Path, Argument(help="Mesh file to measure on.")],
        repeats: Annotated[int, Option(min=1, help="Number of measurements.")] = 3,
    ) -> dict:
        "Measure the operators on a mesh."  # the first line is the summary in `penn --help`
        from pennpde.operators import Operators  # torch, PyVista and all of ours: imported in here

        for _ in output.progress(range(repeats), "measuring"):
            ...
        output.say("1.2 ms")                  # for people
        return {"seconds": 0.0012}            # for programs: what --json prints

The frame gives every subcommand `--json`, `--quiet` and `--debug`, the exit codes, and errors without a traceback
(`conventions.py`); options belong to groups of the help. `run` raises what is wrong as ValueError,
KeyError, OSError ... with a message for the user. It never prints to stdout, exits, or catches all exceptions.

A subcommand with subcommands of its own, such as `penn generate flow`, has functions like `run`, named in
`COMMANDS = {"flow": flow, ...}`, and `ABOUT` instead of a docstring; `DEFAULT` is the one that need not be named.
Another package adds a subcommand by naming its module under the entry point `pennpde.commands`.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pennpde import __version__, registry
from pennpde.cli.conventions import CONTEXT, as_command, is_usage_error, write

SUBCOMMANDS = ("demo", "predict", "study", "optimise", "collect", "train", "calibrate", "info", "view")


def _module_of() -> dict[str, str]:
    """The module of every subcommand: ours, then those of installed packages."""
    return {name: f"pennpde.cli.{name}" for name in SUBCOMMANDS} | registry.commands()


class _Subcommands(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(_module_of())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        modules = _module_of()
        if cmd_name in modules and cmd_name not in self.commands:
            self.commands[cmd_name] = as_command(cmd_name, import_module(modules[cmd_name]))
        elif cmd_name not in modules:
            # Typer suggests a name for a mistyped one from those that are loaded.
            for name in modules:
                self.get_command(ctx, name)
        return self.commands.get(cmd_name)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"penn {__version__}")
        raise typer.Exit


application = typer.Typer(
    name="penn",
    cls=_Subcommands,
    no_args_is_help=True,
    rich_markup_mode=None,  # frames around the help would double the time that it takes
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


@application.callback()
def _penn(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Physics-embedded neural networks on meshes: predict, study, optimise, train, view."""


def _show_usage(error: Any) -> None:
    """Wrong usage, wrapped to the width of the terminal, which Typer does not."""
    message, context = error.format_message(), getattr(error, "ctx", None)
    if "\n" in message or context is None:  # a whole help
        error.show()
        return
    print(f"{context.get_usage()}\nTry '{context.command_path} -h' for help.\n", file=sys.stderr)
    write(f"Error: {message}", sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with these arguments (default: those of the process) and exit."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.exit(application(args=given, prog_name="penn", standalone_mode=False) or 0)
    except typer.Abort:
        print("Aborted!", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        if is_usage_error(error):
            _show_usage(error)
            sys.exit(getattr(error, "exit_code", 1))
        if not isinstance(error, OSError):
            raise
        if "--debug" in given or error.errno not in (errno.ENOSPC, errno.EIO):
            raise
        # What a command says is written outside of the frame that describes its errors.
        print(f"penn: stdout cannot be written: {error.strerror}", file=sys.stderr)
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries again at its end
        sys.exit(1)
