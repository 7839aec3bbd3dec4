"""Results of flow networks on many flows: measured in processes of one thread, and kept as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import torch

import pennpde
from pennpde import flow as stepping
from pennpde.checkpoints import config_of
from pennpde.files import write_json

Key = TypeVar("Key", bound=Hashable)


def made_with(network: str | Path = "flow") -> dict[str, str]:
    """Weights and solver: results made with others are measured again."""
    config = config_of(pennpde.load_pretrained(network))
    assert config is not None
    assert config.weights_sha256 is not None
    return {"weights": config.weights_sha256, "code": code()}


def code() -> str:
    """A hash of the solver, which decides on errors and seconds as much as the weights do."""
    digest = hashlib.sha256()
    for path in sorted(Path(stepping.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def as_they_come(
    measure: Callable[..., Any], tasks: Mapping[Key, tuple[Any, ...]], workers: int
) -> Iterator[tuple[Key, Any]]:
    """What `measure` gives for the arguments of each task, in the order in which they are done."""
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        waiting = {pool.submit(measure, *arguments): key for key, arguments in tasks.items()}
        for done in as_completed(waiting):
            yield waiting[done], done.result()


def by_flow(
    output: Path, about: Mapping[str, Any], measure: Callable[[str], Any], names: Iterable[str], workers: int
) -> dict[str, Any]:
    """What `measure` gives for each flow, written to a file as it comes.

    Flows that the file has are not measured again, as long as it was made with the same.

    Args:
        output: JSON, with what it was made with and the flows by name.
        about: What the results depend on, from `made_with` or `code`.
        measure: From the name of a flow to what is kept of it.
        names: Of the flows.
        workers: Processes.
    """
    kept = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    results: dict[str, Any] = kept if about.items() <= kept.items() else {**about, "flows": {}}
    tasks = {name: (name,) for name in names if name not in results["flows"]}
    for name, found in as_they_come(measure, tasks, workers):
        results["flows"] = dict(sorted({**results["flows"], name: found}.items()))
        write_json(output, results)
        print(name, found, flush=True)
    return results["flows"]
