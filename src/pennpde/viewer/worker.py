"""A process that predicts and reads files for the page: `python -m pennpde.viewer.worker`.

A line of JSON comes in, an answer goes out: a JSON object and any number of byte strings, behind their lengths. Nothing
is unpickled, so that a file that gets hold of this process gets no further. `pool` is the other end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

MOST_MEMORY = 6 * 2**30

Answer = tuple[dict[str, Any], list[bytes]]


def main(arguments: Sequence[str] | None = None) -> None:
    """What the process does until its parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--uploads", type=Path, required=True)
    parser.add_argument("--plugin")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if hasattr(os, "nice"):
        os.nice(5)  # the page itself answers first, however much there is to compute
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    bench: Any = None
    try:
        bench = _workbench(given)
        send(answers, bench.start(), [])
    except Exception as error:
        from pennpde.viewer.reading import words_of

        send(answers, {"error": words_of(error)}, [])
        return
    with contextlib.suppress(Exception):  # what is wrong will show in the first request
        bench.warm_up()
    for line in sys.stdin.buffer:
        send(answers, *_answer(bench, json.loads(line)))


def _workbench(given: argparse.Namespace) -> Any:
    import torch

    from pennpde.registry import load_plugin
    from pennpde.viewer.workbench import Workbench

    torch.set_num_threads(given.threads)
    if given.plugin:
        load_plugin(given.plugin)
    bench = Workbench.of(given.model, given.data, given.uploads)
    if given.data is None and (bench.usual_data / "manifest.json").is_file():
        return Workbench(bench.model, given.model, bench.usual_data, given.uploads)
    return bench


def _answer(bench: Any, message: dict[str, Any]) -> Answer:
    from pennpde.viewer.reading import words_of
    from pennpde.viewer.requests import Request

    try:
        if message["do"] == "read":
            return bench.read(Path(message["path"]), message["name"]), []
        request = Request.of(message["request"])
        if message["do"] == "view":
            view = bench.view(request)
            return {"view": view.number, "title": view.title, **view.words}, [view.record]
        with tempfile.TemporaryDirectory(prefix="penn-view-") as folder:
            path = Path(folder) / f"flow{message['suffix']}"
            bench.file(request, path)
            return {}, [path.read_bytes()]
    except MemoryError:
        return {"error": "This needs more memory than the page has for it. Use `penn predict`."}, []
    except Exception as error:
        return {"error": words_of(error)}, []


def send(stream: IO[bytes], content: dict[str, Any], parts: Sequence[bytes]) -> None:
    """Write one answer."""
    head = json.dumps({"content": content, "sizes": [len(part) for part in parts]}).encode()
    stream.write(len(head).to_bytes(8, "little") + head)
    for part in parts:
        stream.write(part)
    stream.flush()


if __name__ == "__main__":
    main()
