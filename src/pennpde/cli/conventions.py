"""Conventions of all subcommands: shared options, output for people and programs, errors, exit codes.

Exit codes: 0 success, 1 failure, 2 wrong usage, 3 refused: the result is too wrong to be handed out, 4 stopped by
--max-seconds; another one where the record of a subcommand has an "exit_code", such as 130 of a training that ctrl+c
has paused. Results go to stdout, everything else to stderr.
"""

import inspect
import json
import math
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from pathlib import Path
from textwrap import wrap
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer import Argument, Option
from typer.core import TyperCommand, TyperGroup

from pennpde import registry
from pennpde.files import plain

if TYPE_CHECKING:
    from pennpde.data.workers import Status
    from pennpde.mesh import Mesh
    from pennpde.penn import Predictor

# How text looks on a terminal: wrapped between words, a live line while one waits, help with options in groups.


WHAT, WHEN, FILES, TRUST = "What to predict", "When", "Files to write", "Accuracy and trust"
"""Groups of options in the help of a subcommand: `Option(rich_help_panel=WHEN)`."""
GENERAL, _OPTIONS = "General", "Options"
_WIDEST = 120
"""Columns; lines longer than this are hard to read."""
_PATHS = {"folder": "FOLDER", "dataset": "FOLDER", "second": "FOLDER", "toml": "FILE.toml", "problem": "FILE.toml"}
"""What a path leads to, by the first word of its help; else a file."""
_WORDS = {"Path": "FILE", "path": "FILE", "int": "NUMBER", "float": "NUMBER", "str": "NAME"}
_KIND = re.compile(rf"<(?:list\[)?({'|'.join(_WORDS)})\]?(?: range)?>")
"""Python's words for what an option takes."""
_VALUE = re.compile(r" *\S.*? {2,}(?=\S)")
"""The part of a line before its second column."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}
_STYLES = {"good": "bold green", "fair": "bold yellow", "poor": "bold red", "refused": "bold red"}


def _word(text: str, kind: re.Match[str]) -> str:
    """What an option takes, by its kind and its help."""
    word = _WORDS[kind[1]]
    return _PATHS.get(text.split(maxsplit=1)[0].lower(), word) if word == "FILE" else word


class _Examples:
    """The examples at the end of a help: a line that is too long goes on in the next one, as a shell takes it."""

    epilog: str | None

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        if not self.epilog:
            return
        formatter.write("\nExamples:\n")
        for line in self.epilog.splitlines():
            command, _, comment = line.partition("   # ")
            if comment and len(line) > formatter.width - 4:
                formatter.write(f"  # {comment}\n")
                line = command.rstrip()  # noqa: PLW2901
            how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "subsequent_indent": "    "}
            parts = wrap(re.sub(" (?!-)", "\xa0", line), formatter.width - 4, **how)
            formatter.write(" \\\n".join(f"  {each}" for each in parts).replace("\xa0", " ") + "\n")


class Group(_Examples, TyperGroup):
    """Subcommands of a subcommand."""


class Command(_Examples, TyperCommand):
    """A command whose options are in groups; frames around them would double the time that the help takes."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                # What an argument is called says what it is.
                name = (
                    record[0].partition(" <")[0].upper()
                    if argument
                    else _KIND.sub(partial(_word, record[1]), record[0])
                )
                own = "Arguments" if argument else GENERAL if "--help" in parameter.opts else _OPTIONS
                text = re.sub(
                    r"([\d.]+)<=x<=([\d.]+)\]$", r"\1 to \2]", re.sub(r"x>=(\d+)\]$", r"at least \1]", record[1])
                )
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or own, []).append((name, text))
        for name, records in sorted(groups.items(), key=lambda group: group[0] == GENERAL):  # which comes last
            with formatter.section(name):
                formatter.write_dl(records)


def write(renderable: Any, stream: Any, style: str = "") -> None:
    """Print to a stream: text wrapped between words on a terminal, as it is elsewhere.

    Text is printed verbatim: a file may be called "[red].vtu". Its first word has a colour where it is a grade.
    """
    console = _console(stream)
    if not isinstance(renderable, str):
        console.print(renderable)
        return
    from rich.text import Text

    text = _wrapped(renderable) if console.is_terminal else renderable
    printed = Text(text, style)
    word = re.match(r"(?: *grade +)?(\w+)(?::|$)", text)
    if word and word[1] in _STYLES:
        printed.stylize(_STYLES[word[1]], word.start(1), word.end(1))
    console.print(printed, soft_wrap=True)


def _wrapped(text: str) -> str:
    """Broken between words at the width of the terminal; what follows is below the line's second column."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = []
    for line in text.split("\n"):
        column = _VALUE.match(line)
        indent = column.end() if column and column.end() < width / 2 else len(line) - len(line.lstrip()) + 2
        # A name of a file is not broken: it would no longer be one.
        how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "replace_whitespace": False}
        words = line.replace(" %", "\xa0%")
        lines += [line] if len(line) <= width else wrap(words, width, subsequent_indent=" " * indent, **how)
    return "\n".join(lines).replace("\xa0", " ")


def is_terminal(stream: Any) -> bool:
    """Whether somebody may be watching a stream."""
    return _console(stream).is_terminal


def _console(stream: Any) -> Any:
    from rich.console import Console

    # Made for each call: sys.stdout changes under pytest, and making a console costs microseconds.
    return Console(file=stream, markup=False, highlight=False)


class LiveLine:
    """The last line of a terminal: what is being computed, how much of it is done, and seconds, so far and still."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._start = self._stage_start = 0.0
        self._stage, self._share = "", 0.0

    def show(self, stage: str, stream: Any) -> None:
        """Begin with a stage; what `progress.tell` is told follows."""
        from rich.live import Live

        from pennpde import progress

        self._start = time.perf_counter()
        self._hear(stage, 0.0)
        how: dict[str, Any] = {"refresh_per_second": 8, "transient": True, "redirect_stdout": False}  # may be a file
        self._open.enter_context(Live(get_renderable=self._line, console=_console(stream), **how))
        self._open.enter_context(progress.watched(self._hear))

    def close(self) -> None:
        """Remove the line."""
        self._open.close()

    def _hear(self, stage: str, share: float) -> None:
        if stage != self._stage or share < self._share:  # another one, or the same on other cells
            self._stage_start = time.perf_counter()
        self._stage, self._share = stage, share

    def _line(self) -> Any:
        from rich.text import Text

        now, share, left = time.perf_counter(), "", ""
        if self._share > 0:
            still = (now - self._stage_start) * (1.0 / self._share - 1.0)
            share = f" {self._share:.0%}"
            left = f", about {duration(still)} left of this" if still >= 1.0 else ""
        words = f"{self._stage}{share} … {now - self._start:.0f} s{left}"
        return Text(words, style="dim", no_wrap=True, overflow="ellipsis")


Item = TypeVar("Item")

_EXTRAS = {
    "animation": ("imageio_ffmpeg",),
    "viewer": ("aiohttp", "trame_client", "trame_vuetify"),
    "study": ("distributed", "pyarrow"),
}

# What libraries raise for input they cannot use. Anything else, but for the exceptions that we define ourselves,
# is more likely our fault than the user's.
_EXPECTED = (ValueError, LookupError, OSError, ImportError, ArithmeticError, NotImplementedError)


class Refusal(Exception):  # noqa: N818
    """A result is there, but too wrong to be handed out: exit code 3.

    Attributes:
        record: What --json prints all the same.
    """

    def __init__(self, message: str, record: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.record = record or {}


@dataclass(frozen=True)
class Output:
    """Where a subcommand writes: text for people, JSON for programs, or nothing."""

    json: bool = False
    quiet: bool = False
    live: LiveLine = field(default_factory=LiveLine)

    def begin(self, stage: str) -> None:
        """Show a live line with the stage and the seconds until the result is there, on a terminal only."""
        if not self.quiet and is_terminal(sys.stderr):
            self.live.show(stage, sys.stderr)

    def say(self, *renderables: Any) -> None:
        """Print text, or anything that rich can draw, unless --quiet or --json was given."""
        if self.quiet or self.json:
            return
        self.live.close()
        for renderable in renderables:
            write(renderable, sys.stdout)

    def warn(self, message: str) -> None:
        """Print a warning to stderr; --quiet does not silence it, --json does not contain it."""
        write(f"warning: {message}", sys.stderr, "yellow")

    def note(self, message: str) -> None:
        """Print a note to stderr, unless --quiet or --json was given."""
        if not (self.quiet or self.json):
            write(f"note: {message}", sys.stderr)

    def progress(self, items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
        """Iterate over the items with a progress bar, which is shown only on a terminal."""
        from pennpde.data.workers import Status

        with self.progress_bar(description) as show:
            for done, item in enumerate(items):
                if show is not None:
                    show(Status(total, done))
                yield item

    @contextmanager
    def progress_bar(self, description: str) -> Iterator[Callable[["Status"], None] | None]:
        """A function that shows how far a generation is; None where nobody watches."""
        if self.quiet or not is_terminal(sys.stderr):
            yield None
            return
        self.live.close()
        from rich import progress as shown
        from rich.console import Console

        columns = (
            shown.TextColumn("{task.description}"),
            shown.BarColumn(),
            shown.MofNCompleteColumn(),
            shown.TextColumn("{task.fields[failed]}", style="red"),
            shown.TimeElapsedColumn(),
            shown.TextColumn("left"),
            shown.TimeRemainingColumn(),
        )
        # Cases take minutes: the speed of the last half minute, rich's default, says nothing.
        with shown.Progress(
            *columns, console=Console(file=sys.stderr), transient=True, speed_estimate_period=1800
        ) as bar:
            task = bar.add_task(description, total=None, failed="")

            def show(status: "Status") -> None:
                over = status.done + status.failed + status.under_way
                failed = f"{status.failed} failed" if status.failed else ""
                bar.update(task, total=status.total, completed=over, failed=failed)

            yield show


def duration(seconds: float) -> str:
    """In words."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Options of several subcommands

Model = Annotated[
    str,
    Option(
        metavar="NETWORK",
        help="Shipped network, folder of your own, packed file, or its https address.",
        rich_help_panel=WHAT,
    ),
]
StudyInput = Annotated[
    Path,
    Argument(metavar="INPUT", help="Study file (.toml), OpenFOAM case or template, mesh or .geo file (with --case)."),
]
Plugin = Annotated[
    str | None,
    Option(metavar="FILE.py", help="Python file or module that registers your own networks.", rich_help_panel=GENERAL),
]
Verbose = Annotated[
    bool,
    Option("--verbose", "-v", help="Also print the certificate and all notes.", rich_help_panel=GENERAL),
]
Repair = Annotated[
    bool | None,
    Option(
        "--repair/--no-repair",
        rich_help_panel=GENERAL,
        help="Repair the mesh, with a note for each change: cells of second order become linear, points of no cell are "
        "left out, points at the same place are merged where the mesh falls apart. Default: repair.",
    ),
]

CaseFile = Annotated[
    Path | None,
    Option(metavar="FILE.toml", help="Patches, boundary conditions and parameters for a mesh.", rich_help_panel=WHAT),
]
Length = Annotated[
    float | None,
    Option(metavar="LENGTH", help="Reference length (flow: the inlet width).", rich_help_panel=WHAT),
]
Speed = Annotated[
    float | None,
    Option(metavar="SPEED", help="Reference speed (flow: the inlet speed).", rich_help_panel=WHAT),
]
Resolution = Annotated[
    Literal["auto", "own", "network"],
    Option(
        help="Mesh to predict on: own (yours), network (remeshed to the network's cell size), or auto (remesh if "
        "your mesh is unlike the training meshes).",
        rich_help_panel=WHAT,
    ),
]
Times = Annotated[
    str | None,
    Option(
        metavar="FIRST:LAST:INTERVAL",
        help="Predict several times: 0.5:4:0.5, or a list such as 0.5,1,2.",
        rich_help_panel=WHEN,
    ),
]
Steady = Annotated[
    bool,
    Option("--steady", help="Predict the steady state; with --time or --times after these.", rich_help_panel=WHEN),
]
Accuracy = Annotated[
    float | None,
    Option(
        metavar="PER_CENT",
        help="Expected error that is good enough, of the first unknown (flow: the velocity): the cheapest level of "
        "accuracy is taken on which it holds (of a study for each design, else all have one level). For networks with "
        "such levels; penn predict with flow: 2.",
        rich_help_panel=TRUST,
    ),
]
Fast = Annotated[
    bool,
    Option("--fast", help="The fastest level of accuracy, whatever its error.", rich_help_panel=TRUST),
]
Fine = Annotated[
    bool,
    Option("--fine", help="The most accurate level.", rich_help_panel=TRUST),
]
Force = Annotated[
    bool,
    Option(
        "--force",
        help="Keep fields and numbers even where the expected error is above 50 %.",
        rich_help_panel=TRUST,
    ),
]
Mesher = Annotated[
    str | None,
    Option(help="What makes the mesh of an OpenFOAM template: blockMesh, or a script in it such as Allrun.mesh."),
]


def level_of(accuracy: float | None, *, fast: bool, fine: bool) -> str | None:
    """The level of accuracy that is asked for by its name."""
    if sum((accuracy is not None, fast, fine)) > 1:
        raise typer.BadParameter("--accuracy, --fast and --fine exclude each other; give one of them")
    return "fast" if fast else "fine" if fine else None


def predictor(model: str, plugin: str | None, purpose: str) -> "Predictor":
    """The network of a name that solves boundary value problems.

    Args:
        model: What the user gave.
        plugin: To be loaded before.
        purpose: What no other network is good for, for the message.
    """
    from pennpde.checkpoints import load_pretrained
    from pennpde.penn import Predictor
    from pennpde.registry import load_plugin

    if plugin is not None:
        load_plugin(plugin)
    network = load_pretrained(model)
    if not isinstance(network, Predictor):
        raise ValueError(f"{model} is a {type(network).__name__}, which is no Predictor; {purpose}")
    return network


def check_device(name: str | None) -> None:
    """Refuse a device that PyTorch does not know, or that this machine does not have, before any work."""
    from pennpde import machine

    try:
        if name is not None:
            machine.check_device(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--device") from None


def read_mesh(path: Path, repair: bool, output: Output) -> "Mesh":
    """The mesh of a file, read in a process that a damaged file may crash; what was repaired is printed as notes."""
    from pennpde.mesh import Mesh, reader_process

    try:
        mesh = Mesh.from_contents(reader_process.shared().read(path), repair)
    except ValueError as error:
        named = str(error).startswith(str(path))
        raise ValueError(str(error) if named else f"{path} cannot be used. {error}") from error
    for note in mesh.notes:
        output.note(f"{path}: {note}")
    return mesh


# The frame


def as_command(name: str, module: ModuleType) -> Any:
    """The command that typer runs for a subcommand's module: its `run`, or a group of those in `COMMANDS`.

    With `DEFAULT` one of these need not be named.
    """
    examples = list(getattr(module, "EXAMPLES", ()))
    commands: Mapping[str, Callable[..., Any]] | None = getattr(module, "COMMANDS", None)
    application = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    if commands is None:
        application.command(name, cls=Command, **_help(inspect.getdoc(module.run), examples))(
            _with_conventions(name, module.run)
        )
        return typer.main.get_command(application)
    for own, run in commands.items():
        words = f"{name} {own}"
        shown = [example for example in examples if _subcommand_of(module, example) == own]
        application.command(own, cls=Command, **_help(inspect.getdoc(run), shown))(_with_conventions(words, run))
    application.callback(cls=Group, no_args_is_help=True, **_help(module.ABOUT, examples))(lambda: None)
    group = typer.main.get_command(application)
    group.name = name
    default = getattr(module, "DEFAULT", None)
    if default is not None:
        parse = group.parse_args
        known = {"-h", "--help", *commands}
        group.parse_args = lambda context, given: parse(  # pyright: ignore[reportAttributeAccessIssue]
            context, [default, *given] if given and given[0] not in known else given
        )
    return group


def _subcommand_of(module: ModuleType, example: str) -> str:
    """Which of a module's commands an example shows: the one that it names, or that which is meant without a name."""
    word = example.split()[2]
    return word if word in module.COMMANDS else getattr(module, "DEFAULT", "")


def _help(text: str | None, examples: Sequence[str]) -> dict[str, Any]:
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text or "").strip().split("\n\n")]
    return {
        "help": "\n\n".join(paragraphs),
        "short_help": paragraphs[0],  # typer would cut it off at the end of a line
        "epilog": "\n".join(examples),
        "context_settings": CONTEXT,
    }


def _with_conventions(name: str, run: Callable[..., Mapping[str, Any] | None]) -> Callable[..., None]:
    """Replace the parameter `output` of a subcommand by the options that decide it."""

    @wraps(run)
    def command(*, json_output: bool, quiet: bool, debug: bool, **arguments: Any) -> None:
        output = Output(json_output, quiet)
        if not debug:
            # By default Python also prints the source line that the warning came from.
            warnings.showwarning = lambda message, *_: output.warn(str(message))
        try:
            record = run(output, **arguments)
        except Exception as error:
            if debug or isinstance(error, typer.Exit | typer.Abort) or is_usage_error(error):
                raise
            output.live.close()
            write(f"penn {name}: {describe(error)}", sys.stderr)
            if isinstance(error, Refusal) and json_output:
                _print_json(error.record)
            raise typer.Exit(3 if isinstance(error, Refusal) else 1) from None
        finally:
            output.live.close()
        if json_output:
            _print_json(record or {})
        if code := (record or {}).get("exit_code"):
            raise typer.Exit(code)

    own = inspect.signature(run, eval_str=True).parameters.values()
    shared = [
        _flag("json_output", "Print the result as JSON to stdout, and nothing else.", "--json"),
        _flag("quiet", "Print only warnings and errors.", "--quiet", "-q"),
        _flag("debug", "Show the traceback of an error.", "--debug"),
    ]
    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in own if each.name != "output"] + shared
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _print_json(record: Mapping[str, Any]) -> None:
    print(json.dumps(plain(record), indent=2, allow_nan=False))


def describe(error: Exception) -> str:
    """The error message for users who do not read Python."""
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        for extra, packages in _EXTRAS.items():
            if package in packages:
                return f"this needs {package}, which is not installed; pip install 'pennpde[{extra}]'"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror  # without "[Errno 28]"
    # Libraries that find no room say anything.
    if not isinstance(error, ValueError | LookupError) and (allowed := _allowed_memory()) < _NEEDED_MEMORY:
        return (
            f"only {allowed / 1e6:.0f} MB of memory are allowed here (ulimit -v), and PyTorch with its compiler takes "
            f"{_NEEDED_MEMORY / 1e6:.0f} MB. Allow more"
        )
    if _is_lack_of_memory(error):
        return f"there is not enough memory: {error or type(error).__name__}. Use a smaller mesh, batch or network"
    # str(KeyError("text")) puts the text in quotes.
    message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    for_users = isinstance(error, _EXPECTED) or _is_ours(type(error).__module__)
    broken_import = isinstance(error, ImportError) and _is_ours(error.name or "")
    if message and for_users and not broken_import:
        return message
    return f"{type(error).__name__}: {message}\nThis looks like a bug in penn; --debug shows where."


def _flag(name: str, text: str, *flags: str) -> inspect.Parameter:
    annotation = Annotated[bool, Option(*flags, help=text, rich_help_panel=GENERAL)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)


_NEEDED_MEMORY = 1.2e9


def _allowed_memory() -> float:
    """Bytes that this process may have."""
    try:
        import resource
    except ImportError:  # not on Windows
        return math.inf
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if allowed == resource.RLIM_INFINITY else allowed


def _is_lack_of_memory(error: Exception) -> bool:
    # PyTorch raises RuntimeError on a CPU, and a class of its own on a GPU.
    words = ("out of memory", "not enough memory", "Unable to allocate", "can't allocate memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(each in str(error) for each in words)
    )


def _is_ours(module: str) -> bool:
    added = {command.partition(".")[0] for command in registry.commands().values()}
    return module.partition(".")[0] in {"pennpde", *added}


def is_usage_error(error: Exception) -> bool:
    # Typer's own errors print themselves and carry an exit code; their class has moved between its versions.
    return hasattr(error, "exit_code") and hasattr(error, "show")
