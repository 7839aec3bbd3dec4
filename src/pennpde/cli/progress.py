"""How far a generation of many cases is, on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pennpde.cli.conventions import Output

if TYPE_CHECKING:
    from pennpde.data.workers import Status


@contextmanager
def progress_bar(output: Output, description: str) -> Iterator[Callable[["Status"], None] | None]:
    """A function that shows how far a generation is; None where nobody watches."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if output.quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}", style="red"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Cases take minutes: the speed of the last half minute, rich's default, says nothing.
    with Progress(*columns, console=console, transient=True, speed_estimate_period=1800) as bar:
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
