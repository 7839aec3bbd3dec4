"""The authors' released networks: reads their weights, and computes what their code computes.

`load` reads a weight file. The networks themselves are in the modules next to this one; each maps a `Case` to fields,
and by `forward_scaled` the authors' scaled inputs to scaled outputs. They are not the networks of the paper's
equations (those are in `models`): their advection is the gradient of half the squared velocity, their Laplacian of a
vector the gradient of its divergence.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pennlab.released.advection_diffusion import ReleasedAdvectionDiffusion
from pennlab.released.flow import ReleasedFlow
from pennlab.released.gradient import ReleasedGradient
from pennlab.released.layers import Inputs, Kind
from pennpde.checkpoints import Config
from pennpde.penn.encoder import Encoder

__all__ = [
    "Inputs",
    "ReleasedAdvectionDiffusion",
    "ReleasedFlow",
    "ReleasedGradient",
    "load",
]

ReleasedNetwork = ReleasedFlow | ReleasedAdvectionDiffusion | ReleasedGradient

DEFAULT_ITERATIONS = 8

# What the authors call the rows of their ablation tables; longer names first, because they contain the shorter ones.
_ROWS: Mapping[str, Kind] = {
    "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding": "G",
    "wo_boundary_condition_in_neural_nonlinear_solver": "B",
    "wo_boundary_condition_in_nns": "B",
    "wo_boundary_condition_input": "D",
    "wo_neural_nonlinear_solver": "C",
    "wo_pseudoinverse_decoder": "F",
    "wo_encoded_boundary": "A",
    "wo_dirichlet_layer": "E",
    "penn": "PENN",
}

_GROUP = "GROUP1.group.dict_block."

# The authors' names inside a block, by our layer; those of IsoGCN and GraphConvolution are written there.
_NAMES_WITHIN: Mapping[type[nn.Module], Mapping[str, str]] = {
    Encoder: {"linears.": "network.linears."},
}


def load(path: str | Path, iterations: int | None = None, kind: str | None = None) -> ReleasedNetwork:
    """A released network from its weight file, in the precision of the file.

    Problem, width and, as far as they show in names and shapes, the row of the ablation table come from the file. Two
    things do not show: the number of iterations, and rows that differ only in wiring (PENN, C and D; B, F and G). They
    are looked for in the name of the file, then in that of its folder ("flow_penn_n16_rep4.npz",
    "wo_neural_nonlinear_solver/model"). Without a name it is 8 iterations, and PENN where that is possible.

    Args:
        path: An .npz with one array a parameter, or the authors' own checkpoint (or the folder that holds it as
            "model"). A checkpoint is read without unpickling code.
        iterations: Outer iterations of the solver.
        kind: "PENN" or "A" to "G"; for the gradient experiment "neumannisogcn" or "isogcn".
    """
    path = Path(path)
    path = path / "model" if path.is_dir() else path
    weights = _network_in(_read_tensors(path), path, kind)
    if iterations is None:
        found = next((re.search(r"rep(\d+)", name) for name in _names_of(path) if re.search(r"rep(\d+)", name)), None)
        iterations = int(found[1]) if found else DEFAULT_ITERATIONS
    network = _architecture(weights, path, iterations, kind)
    _fill(network, weights, path)
    if config := _config(network):
        object.__setattr__(network, "checkpoint_config", config)
    return network


def _config(network: ReleasedNetwork) -> Config | None:
    """What `penn evaluate` writes into its record; None for the networks of the gradient experiment, which has none."""
    if isinstance(network, ReleasedGradient):
        return None
    arguments = {"width": network.width, "kind": network.kind, "iterations": network.iterations}
    row = "authors" if network.kind == "PENN" else f"authors_{network.kind}"
    title = "Authors' weights" if network.kind == "PENN" else f"({network.kind}) Authors' weights"
    if isinstance(network, ReleasedAdvectionDiffusion):
        paper = "penn" if network.kind == "PENN" else f"ablation_{network.kind.lower()}"
        return Config("released-advection-diffusion", arguments, row=row, title=title, paper=paper)
    size = f"n{network.width}_r{network.iterations}"
    title += f", n = {network.width}, r = {network.iterations}"
    paper = f"penn_{size}" if network.kind == "PENN" else f"ablation_{network.kind.lower()}"
    return Config("released-flow", arguments, row=f"{row}_{size}", title=title, paper=paper)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file by name, whatever it is wrapped in."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            arrays = any(name.endswith(".npy") for name in archive.namelist())
        if arrays:
            return {name: torch.from_numpy(array) for name, array in read_arrays(path).items() if array.ndim}
    if not path.exists():
        raise FileNotFoundError(f"There is no weight file {path}.")
    # Checkpoints hold losses as NumPy numbers. Rebuilding one runs no code of the file.
    rebuild = np.float64(0).__reduce__()[0]
    numbers: list[Any] = [(rebuild, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    numbers += [np.dtype, np.dtypes.Float64DType, np.dtypes.Float32DType, np.dtypes.Int64DType]
    try:
        with torch.serialization.safe_globals(numbers):
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the broken file led it to
        raise ValueError(
            f"{path} is neither an .npz file nor a PyTorch checkpoint that can be read without running code of its "
            f"own ({type(error).__name__})."
        ) from error
    return dict(_tensors_in(checkpoint))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; a file that is none, or holds pickled objects, is an error that names it."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise ValueError(f"{path} cannot be read as an .npz file: {error}") from error


def _tensors_in(part: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(part, Tensor):
        yield prefix, part
    elif isinstance(part, Mapping):
        for name, each in part.items():
            yield from _tensors_in(each, f"{prefix}/{name}" if prefix else str(name))


def _network_in(tensors: Mapping[str, Tensor], path: Path, kind: str | None) -> dict[str, Tensor]:
    """The parameters of one network by the authors' names, without what the file puts before them."""
    networks: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        wrapping, found, rest = name.partition("dict_block.")
        if found:
            networks.setdefault(wrapping, {})[rest] = tensor
    if not networks:
        held = ", ".join(sorted(tensors)[:5]) or "no tensors"
        raise ValueError(
            f"{path} holds no released network: none of its names contains 'dict_block.'. It holds {held}"
            f"{', ...' if len(tensors) > 5 else ''}."
        )
    if len(networks) == 1:
        return next(iter(networks.values()))
    chosen = [weights for wrapping, weights in networks.items() if wrapping.split("/")[0] == kind]
    if len(chosen) != 1:
        raise ValueError(
            f"{path} holds {len(networks)} networks, {', '.join(sorted(networks))}; choose one with kind=, which is "
            f"now {kind!r}."
        )
    return chosen[0]


def _names_of(path: Path) -> tuple[str, str]:
    """Where the authors write what a network is: the name of the file, or that of the folder it lies in."""
    return path.stem.lower() + path.suffix.lower(), path.resolve().parent.name.lower()


def _architecture(weights: Mapping[str, Tensor], path: Path, iterations: int, kind: str | None) -> ReleasedNetwork:
    def size(name: str, axis: int) -> int | None:
        return weights[name].shape[axis] if name in weights and weights[name].ndim > axis else None

    if any(name.startswith("ISOGCN_1.") for name in weights):
        narrow = size("IN_MLP.linears.0.weight", 1) == 1
        # Tensors and kind must agree; _fill says what is missing where they do not.
        inferred = "neumannisogcn" if narrow else "isogcn"
        return ReleasedGradient(
            _choose(kind, [inferred], path, names=()),
            width=size("IN_MLP.linears.1.weight", 0) or 16,
            hidden=size("IN_MLP.linears.0.weight", 0) or 8,
        )
    width, hidden = size("IN_GEO.linears.1.weight", 0), size("IN_GEO.linears.0.weight", 0)
    if any(name.startswith("IN_T.") for name in weights):
        physical = any(name.startswith(_GROUP + "T_MLP_AFTER_DIRICHLET.") for name in weights)
        wide = size("IN_T.linears.0.weight", 1) == 3
        row = _choose(kind, _possible_rows(weights, physical=physical, boundary_features=wide), path)
        return ReleasedAdvectionDiffusion(width or 64, row, iterations, hidden=hidden or 16)
    if any(name.startswith(_GROUP + "U_MLP.") for name in weights):
        physical = any(name.startswith(_GROUP + "U_ENCODER.") for name in weights)
        wide = size("IN_U.linears.0.weight", 1) == 3
        row = _choose(kind, _possible_rows(weights, physical=physical, boundary_features=wide), path)
        geometry_hidden = size("ISOGCN_GRAD_GEO.coefficient_network.linears.0.weight", 0)
        return ReleasedFlow(width or 16, row, iterations, hidden=hidden, geometry_hidden=geometry_hidden)
    raise ValueError(
        f"{path} holds none of the released networks. Flow has the name 'dict_block.{_GROUP}U_MLP.linears.0.weight', "
        "advection-diffusion 'dict_block.IN_T.linears.0.weight', the gradient networks "
        f"'dict_block.ISOGCN_1.subchains.0.0.weight'; this file has {sorted(weights)[:5]}."
    )


def _possible_rows(weights: Mapping[str, Tensor], *, physical: bool, boundary_features: bool) -> list[Kind]:
    """The rows of the ablation table that these names and shapes may belong to."""
    if physical:
        return ["A"]
    if boundary_features:
        return ["E"]
    # Copies of shared tensors show which blocks there were, in files that kept the copies.
    conditions = any(name.startswith("IN_DIRICHLET.reference_block") for name in weights)
    if any(name.startswith("DECODER.linears") for name in weights):
        return ["F", "G"] if conditions else ["B", "F", "G"]
    if any(name.startswith("DECODER.reference_block") for name in weights):
        return ["PENN", "C"] if conditions else ["D"]
    return ["PENN", "C", "D"]


def _choose(kind: str | None, possible: list[Any], path: Path, names: tuple[str, ...] | None = None) -> Any:
    """The row that the caller or the file's name wants, checked against what its tensors allow."""
    said = "the call" if kind else "its name"
    if kind is None:
        known = _names_of(path) if names is None else names
        kind = next((row for name in known for text, row in _ROWS.items() if text in name), None)
    if kind in possible:
        return kind
    if kind not in (None, "PENN") or said == "the call":
        raise ValueError(
            f"{path} is row {kind!r} according to {said}, but its tensors are those of {' or '.join(possible)}. "
            "Give kind= one of these."
        )
    if len(possible) == 1:
        return possible[0]
    if "PENN" in possible:
        return "PENN"
    raise ValueError(
        f"{path} may be any of the rows {', '.join(possible)}, which have the same tensors. Give kind= one of them."
    )


def _fill(network: ReleasedNetwork, weights: Mapping[str, Tensor], path: Path) -> None:
    """Copy the weights into the network; copies that the file holds of shared tensors must agree with the tensors."""
    ours: dict[str, Tensor] = {}
    used: set[str] = set()
    wrong: list[str] = []
    for name, parameter in network.state_dict().items():
        names = _released_names(network, name)
        given = weights.get(names[0])
        if given is None:
            wrong.append(f"{names[0]} is missing")
            continue
        if given.shape != parameter.shape:
            wrong.append(f"{names[0]} is {list(given.shape)}, not {list(parameter.shape)}")
            continue
        if not torch.isfinite(given).all():
            wrong.append(f"{names[0]} is not finite")
        ours[name] = given
        used.update(names)
        wrong += [
            f"{copy} differs from {names[0]}, of which it is a copy"
            for copy in names[1:]
            if copy in weights and not torch.equal(weights[copy], given)
        ]
    wrong += [f"{name} is unknown" for name in sorted(weights.keys() - used) if "reference_block" not in name]
    if wrong:
        listed = "; ".join(wrong[:10]) + (f"; and {len(wrong) - 10} more" if len(wrong) > 10 else "")
        raise ValueError(f"{path} does not fit {type(network).__name__}({network.kind!r}): {listed}.")
    network.to(next(iter(ours.values())).dtype)
    network.load_state_dict(ours)


def _released_names(network: ReleasedNetwork, name: str) -> list[str]:
    """The authors' names of one of our parameters: that of the trained tensor, then those of its copies."""
    part, _, rest = name.partition(".")
    module = network.get_submodule(part)
    within = getattr(module, "released_names", None) or _NAMES_WITHIN.get(type(module), {})
    for theirs, ours in within.items():
        if rest.startswith(ours):
            rest = theirs + rest.removeprefix(ours)
            break
    return [f"{block}.{rest}" for block in network.released_blocks()[part]]
