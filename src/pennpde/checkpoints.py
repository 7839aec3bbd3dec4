"""A network on disk: `model.safetensors` and `config.json`. Nothing in them is code, nothing is unpickled.

`config.json` names the builder of the network and its arguments, and says where the weights come from: training row,
dataset, seed, errors, and the range of problems that the network was trained on.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pennpde import __version__, registry
from pennpde.files import read_regular, write_atomically, write_json

if TYPE_CHECKING:
    from pennpde.trust.certificate import Ranges

FORMAT = "pennpde model"
FORMAT_VERSION = 2
_FORMER_NAMES = {"flow": "ducts"}
"""Of networks in format version 1, before the general flow network took the name of the paper's."""
_PREVIOUS = "previous"
"""In a configuration whose weights are still to come: the configuration of the weights that are there."""
_MOST_BYTES = 10_000_000
"""Of a configuration."""
WEIGHTS, CONFIG = "model.safetensors", "config.json"
EXPECTED_ERROR = "expected_error.json"
"""What `penn calibrate` adds: how wrong the network is on reference solutions. Belongs to the weights next to it."""


def expected_error_file(level: str = "") -> str:
    """The name of that file for one of the levels of accuracy of a network that has such."""
    return f"expected_error_{level}.json" if level else EXPECTED_ERROR


class CheckpointError(ValueError):
    """A folder holds no network, or one that is damaged or of another program or version."""


@dataclass(frozen=True)
class Config:
    """What `config.json` says."""

    network: str
    """The builder's name, see `models.registry`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """The builder's arguments."""
    row: str = ""
    """The experiment's row that trained it."""
    title: str = ""
    paper: str = ""
    """The row of the paper's tables to compare with."""
    dataset: Mapping[str, Any] = field(default_factory=dict)
    """Kind, hash and number of cases of each split."""
    seed: int | None = None
    scales: Mapping[str, float] = field(default_factory=dict)
    """What errors were divided by in the loss."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Settings, steps, minutes, device ..."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """Errors by split."""
    training_range: Ranges = field(default_factory=dict)
    """What the training cases spanned, see `trust.certificate.spanned`."""
    parameters: int = 0
    weights_sha256: str = ""
    version: str = __version__


def save(model: nn.Module, folder: str | Path, config: Config) -> Path:
    """Write a network; whoever reads meanwhile, or after a crash, finds the old or the new one, never a mixture.

    Args:
        model: The network; `registry.build(config.network, config.arguments)` must give one of the same shape.
        folder: Is made where it does not exist.
        config: Where the network comes from; number of parameters, hash and version are filled in.
    """
    from safetensors.torch import save as to_bytes

    registry.builder(config.network)  # refuse now what could not be loaded later
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    content = to_bytes(tensors, metadata={"format": "pt"})
    plain = asdict(config) | {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "weights_sha256": hashlib.sha256(content).hexdigest(),
        "version": __version__,
    }
    plain = {"format": FORMAT, "format_version": FORMAT_VERSION, **plain}
    # The hash ties the two files together. Whenever this is cut off, the weights that are there have their
    # configuration: until the new ones are there, the new configuration keeps the old one.
    old = _configuration_of_weights(folder)
    if old is not None:
        write_json(folder / CONFIG, plain | {_PREVIOUS: old})
    for old_calibration in folder.glob("expected_error*.json"):
        old_calibration.unlink(missing_ok=True)  # of the weights that are replaced
    write_atomically(folder / WEIGHTS, content)
    write_json(folder / CONFIG, plain)
    return folder


def load(folder: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> nn.Module:
    """The network of a folder, ready to predict. `config_of(network)` says how it was trained."""
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    if dtype in (torch.float16, torch.bfloat16):
        raise ValueError(
            f"A network cannot be loaded as {dtype}: its operators take differences of neighbouring values, which half "
            "precision cancels. Load it as float32, and predict under torch.autocast."
        )
    folder = Path(folder)
    config = read_config(folder)
    path = folder / WEIGHTS
    try:
        content = read_regular(path)
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has a {CONFIG} but no {WEIGHTS}: take a whole copy of the folder.") from None
    found = hashlib.sha256(content).hexdigest()
    if config.weights_sha256 and found != config.weights_sha256:
        before = _configuration_of_weights(folder)
        if before is None:
            raise CheckpointError(
                f"{path} is not the file that {CONFIG} was written with: its sha256 is {found}, expected is "
                f"{config.weights_sha256}. One of them is damaged or of another network; take a whole copy of the "
                "folder."
            )
        config = _config_from(before, folder / CONFIG)
    try:
        tensors = from_bytes(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged or no safetensors file: {error}.") from error
    try:
        model = registry.build(config.network, config.arguments)
    except (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError, MemoryError, AttributeError) as error:
        reason = error.args[0] if error.args else error
        raise CheckpointError(f"{folder / CONFIG} describes a network that cannot be made: {reason}") from error
    _fill(model, tensors, path)
    model.to(device=device, dtype=dtype).eval()
    object.__setattr__(model, "checkpoint_config", config)
    object.__setattr__(model, "checkpoint_folder", folder)
    return model


def load_pretrained(
    name: str | Path, *, dtype: torch.dtype | None = None, device: torch.device | str = "cpu"
) -> nn.Module:
    """A trained network: one that comes with the package, by its name, or any other, by where it lies.

    Args:
        name: of a shipped network; or its folder; with the package pennsharing also a file that `penn pack` made, or
            the https address of such a file, best with its hash: https://example.org/mine.zip#sha256=...
        dtype: of its numbers.
        device: where it computes.
    """
    return load(folder_of(name), dtype=dtype, device=device)


def folder_of(name: str | Path) -> Path:
    """Where a network lies: a shipped name, a folder, or what an installed package reads (`load_pretrained`)."""
    if not isinstance(name, str | PathLike):
        raise TypeError(f'The network is {name!r:.60}; give its name, such as "flow", or its folder.')
    if isinstance(name, str) and (registry.WEIGHTS / name / CONFIG).is_file():
        return registry.WEIGHTS / name
    folder = Path(name)
    if (present := registry.present_name(str(name))) != str(name) and not folder.exists():
        warnings.warn(f"The network {name} is called {present} now.", FutureWarning, stacklevel=3)
        return registry.WEIGHTS / present
    if folder.is_file() and folder.name in (WEIGHTS, CONFIG):
        return folder.parent
    registry.check_exists(str(name))
    kind = "address" if "://" in str(name) else folder.suffix.lower().removeprefix(".")
    if kind != "address" and not folder.is_file():
        return folder
    if (reader := registry.network_readers().get(kind)) is None:
        raise CheckpointError(
            f"{name} is no folder of a network, and nothing that is installed reads it; networks in one file and from "
            "https addresses need the package pennsharing, which lies in the folder `sharing` of the repository."
        )
    return import_module(reader).folder_of(str(name))


def config_of(model: nn.Module) -> Config | None:
    """Where a loaded network comes from; None for one that was not loaded."""
    return getattr(model, "checkpoint_config", None)


def origin_of(model: nn.Module) -> Path | None:
    """The folder that a network was loaded from; None for one that was not loaded."""
    return getattr(model, "checkpoint_folder", None)


def read_config(folder: str | Path) -> Config:
    """The configuration in a folder, checked."""
    path = Path(folder) / CONFIG
    try:
        content = json.loads(read_regular(path, _MOST_BYTES).decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{folder} holds no network: it has no {CONFIG}. A network is a folder with {CONFIG} and {WEIGHTS}, as "
            "`penn train` writes it."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    return _config_from(content, path)


def _configuration_of_weights(folder: Path) -> dict[str, Any] | None:
    """The configuration that the weights in a folder were written with, unchecked; None where there is none."""
    try:
        content = json.loads(read_regular(folder / CONFIG, _MOST_BYTES).decode("utf-8"))
        found = hashlib.sha256(read_regular(folder / WEIGHTS)).hexdigest()
    except (OSError, ValueError, RecursionError):
        return None
    candidates = [content, content.get(_PREVIOUS)] if isinstance(content, dict) else []
    for each in candidates:
        if isinstance(each, dict) and each.get("weights_sha256") == found:
            return {name: value for name, value in each.items() if name != _PREVIOUS}
    return None


def _config_from(content: Any, path: Path) -> Config:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(f"{path} is of another program: it does not say that its format is {FORMAT!r}.")
    version = content.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format version {version!r}, written by pennpde {content.get('version', '?')}; this is "
            f"{__version__}, which reads up to {FORMAT_VERSION}. Install a newer pennpde."
        )
    former = content.get("network")
    if version == 1 and isinstance(former, str):
        content = {**content, "network": _FORMER_NAMES.get(former, former)}
    elif isinstance(former, str):
        content = {**content, "network": registry.present_name(former)}
    known = {each.name for each in fields(Config)}
    try:
        # Entries added by a later version of the same format are ignored.
        return Config(**{name: value for name, value in content.items() if name in known})
    except TypeError as error:
        raise CheckpointError(f"{path} is not complete: {error}.") from error


def _fill(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        first = wrong[0]
        raise CheckpointError(
            f"{path} does not fit the network that {CONFIG} describes: {len(wrong)} tensors differ, the first is "
            f"{first!r}, which has shape {found.get(first, 'none')} instead of {expected.get(first, 'none')}."
        )
    kinds = model.state_dict()
    wrong = [name for name in tensors if tensors[name].is_floating_point() != kinds[name].is_floating_point()]
    if wrong:
        raise CheckpointError(
            f"{path} does not fit the network that {CONFIG} describes: {wrong[0]!r} is {tensors[wrong[0]].dtype} "
            f"instead of {kinds[wrong[0]].dtype}."
        )
    model.load_state_dict(dict(tensors))
