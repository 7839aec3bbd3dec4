"""How text looks on a terminal: wrapped between words, a live line while one waits, help with options in groups."""

import re
import shutil
import time
from contextlib import ExitStack
from textwrap import wrap
from typing import Any

from typer.core import TyperCommand

WHAT, WHEN, FILES, TRUST = "What to predict", "When", "Files to write", "Accuracy and trust"
"""Groups of options in the help of a subcommand: `Option(rich_help_panel=WHEN)`."""
GENERAL, _OPTIONS = "General", "Options"
_WIDEST = 120
"""Columns; lines longer than this are hard to read."""
_WORDS = {"Path": "PATH", "path": "PATH", "int": "NUMBER", "float": "NUMBER", "str": "NAME"}
_KIND = re.compile(rf"<(?:list\[)?({'|'.join(_WORDS)})\]?(?: range)?>")
"""Python's words for what an option takes."""
_VALUE = re.compile(r" *\S.*? {2,}(?=\S)")
"""The part of a line before its second column."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST}
_STYLES = {"good": "bold green", "fair": "bold yellow", "poor": "bold red", "refused": "bold red"}


class Command(TyperCommand):
    """A command whose options are in groups; frames around them would double the time that the help takes."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                argument = parameter.param_type_name == "argument"
                # What an argument is called says what it is.
                name = record[0].partition(" <")[0] if argument else _KIND.sub(lambda kind: _WORDS[kind[1]], record[0])
                own = "Arguments" if argument else GENERAL if "--help" in parameter.opts else _OPTIONS
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or own, []).append((name, record[1]))
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
        how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False, "drop_whitespace": True}
        short = len(line) <= width
        how |= {"subsequent_indent": " " * indent, "replace_whitespace": False}
        lines += [line] if short else wrap(line.replace(" %", "\xa0%"), width, **how)
    return "\n".join(lines).replace("\xa0", " ")


def is_terminal(stream: Any) -> bool:
    """Whether somebody may be watching a stream."""
    return _console(stream).is_terminal


def _console(stream: Any) -> Any:
    from rich.console import Console

    # Made for each call: sys.stdout changes under pytest, and making a console costs microseconds.
    return Console(file=stream, markup=False, highlight=False)


class LiveLine:
    """The last line of a terminal: what is being computed, how much of it is done, and the seconds so far."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._start = 0.0
        self._stage, self._share = "", 0.0

    def show(self, stage: str, stream: Any) -> None:
        """Begin with a stage; what `progress.tell` is told follows."""
        from rich.live import Live

        from pennpde import progress

        self._start = time.perf_counter()
        self._hear(stage, 0.0)
        live = Live(
            get_renderable=self._line,
            console=_console(stream),
            refresh_per_second=8,
            transient=True,
            redirect_stdout=False,  # results may go to a file
        )
        self._open.enter_context(live)
        self._open.enter_context(progress.watched(self._hear))

    def close(self) -> None:
        """Remove the line."""
        self._open.close()

    def _hear(self, stage: str, share: float) -> None:
        self._stage, self._share = stage, share

    def _line(self) -> Any:
        from rich.text import Text

        share = f" {self._share:.0%}" if self._share > 0 else ""
        words = f"{self._stage}{share} … {time.perf_counter() - self._start:.0f} s"
        return Text(words, style="dim", no_wrap=True, overflow="ellipsis")
