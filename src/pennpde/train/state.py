"""The state of a training in one file, to resume it: tensors, and JSON in the header. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from pennpde.case import Case
from pennpde.files import write_atomically

FORMAT = 1
FILE = "state.safetensors"


@dataclass(frozen=True, eq=False)
class State:
    """A training between two steps."""

    plain: Mapping[str, Any]
    """Step, seconds, course, settings ..., in JSON's terms."""
    tensors: Mapping[str, Tensor]
    """Weights, best weights, Adam's moments, states of random numbers; by "kind/name"."""

    def part(self, kind: str) -> dict[str, Tensor]:
        """The tensors of one kind, by name."""
        return {
            name.partition("/")[2]: tensor for name, tensor in self.tensors.items() if name.partition("/")[0] == kind
        }


def save(state: State, folder: Path) -> None:
    """Write the state atomically: a reader, also after a crash, finds the old or the new one complete."""
    from safetensors.torch import save as to_bytes

    folder.mkdir(parents=True, exist_ok=True)
    plain = json.dumps({"format": FORMAT, **state.plain})
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.tensors.items()}
    write_atomically(folder / FILE, to_bytes(tensors, metadata={"pennpde_training": plain}))


def load(folder: Path) -> State | None:
    """The state of the training in a folder; None where there is none."""
    from safetensors import SafetensorError, safe_open

    path = folder / FILE
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            plain = json.loads((file.metadata() or {})["pennpde_training"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not the state of a training, or it is damaged ({error}). Remove it to start again."
        ) from error
    if plain.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {plain.get('format')}, this version of pennpde reads {FORMAT}: continue it with the "
            "version that began it, or start again in another folder."
        )
    return State(plain, tensors)


def fingerprint(cases: Sequence[Case]) -> str:
    """A hash of names, points and targets: equal if two trainings see the same data."""
    digest = hashlib.sha256()
    for case in cases:
        digest.update(case.name.encode())
        digest.update(case.mesh.points.detach().cpu().numpy().tobytes())
        for name, target in sorted(case.targets.items()):
            digest.update(name.encode())
            digest.update(target.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
