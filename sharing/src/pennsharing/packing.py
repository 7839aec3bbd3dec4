"""A trained network packed for others: weights, configuration, errors, model card, pictures and licence in one file.

What a training and its calibration leave in the folder of a network is taken along: the report with its pictures, and
the expected errors. The other side is `packed`, through which `load_pretrained` reads such files.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennpde import __version__, checkpoints
from pennpde.checkpoints import CONFIG, EXPECTED_ERROR, WEIGHTS, CheckpointError, Config
from pennpde.files import read_regular, write_atomically
from pennsharing import packed

CARD, LICENCE, REPORT = "README.md", "LICENSE", "report.json"
MOST_PICTURES, LARGEST_PICTURE, LONGEST_LICENCE = 20, 4 * 2**20, 2**20
_PNG = b"\x89PNG\r\n\x1a\n"
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{1,60}")
# Fixed, so that the same network gives the same file and the same hash.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Pack:
    """What was packed.

    Attributes:
        path: The .zip file.
        sha256: Of the file.
        files: Sizes by name.
        licensed: Whether it says what others may do with it.
    """

    path: Path
    sha256: str
    files: Mapping[str, int]
    licensed: bool


def pack(
    network: str | Path,
    out: str | Path | None = None,
    *,
    licence: str | Path | None = None,
    pictures: Sequence[str | Path] = (),
    about: str = "",
) -> Pack:
    """Pack a network for others, who load it with `load_pretrained` from the file or from an https address.

    Args:
        network: Its folder, or anything else that `load_pretrained` takes.
        out: A .zip file; by default NAME.zip in the current folder.
        licence: A name of SPDX such as CC-BY-4.0, or a text file; by default the LICENSE in the network's folder.
        pictures: PNG files for the card, besides those in the network's folder.
        about: A paragraph for the card.
    """
    folder = checkpoints.folder_of(network)
    config = checkpoints.config_of(checkpoints.load(folder))  # what cannot be loaded is not shared
    assert config is not None
    out = Path(f"{folder.name}{packed.SUFFIX}") if out is None else Path(out)
    if out.suffix != packed.SUFFIX:
        raise ValueError(f"{out} does not end in {packed.SUFFIX}: a packed network is one file.")
    taken = [WEIGHTS, CONFIG, *(name for name in (EXPECTED_ERROR, REPORT) if (folder / name).is_file())]
    content = {name: (folder / name).read_bytes() for name in taken}
    if hashlib.sha256(content[WEIGHTS]).hexdigest() != json.loads(content[CONFIG]).get("weights_sha256"):
        raise CheckpointError(
            f"{folder} was left halfway by an interrupted save; save the network again, then pack it."
        )
    content |= {f"pictures/{name}": picture for name, picture in _pictures(folder, pictures).items()}
    if (text := _licence(folder, licence)) is not None:
        content[LICENCE] = text.encode()
    content[CARD] = _card(out.stem, config, content, about).encode()
    content[packed.MANIFEST] = (json.dumps(packed.listing(content), indent=2) + "\n").encode()
    size = sum(map(len, content.values()))
    if size > packed.MOST_BYTES:
        raise ValueError(f"{folder} packs to {size:,} bytes; a packed network has at most {packed.MOST_BYTES:,}.")
    archive = _zipped(content)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, archive)
    sizes = {name: len(each) for name, each in content.items()}
    return Pack(out, hashlib.sha256(archive).hexdigest(), sizes, text is not None)


def _zipped(content: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o100644 << 16, 3
            archive.writestr(entry, content[name])
    return stream.getvalue()


def _pictures(folder: Path, more: Sequence[str | Path]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in [*sorted(folder.glob("*.png")), *map(Path, more)]:
        if not path.is_file():
            raise FileNotFoundError(f"There is no picture {path}.")
        content = read_regular(path, LARGEST_PICTURE)
        if not content.startswith(_PNG):
            raise ValueError(f"{path} is not a PNG file.")
        found[re.sub(r"[^A-Za-z0-9_.+-]", "_", path.stem)[:90].lstrip(".-+") + ".png"] = content
    if len(found) > MOST_PICTURES:
        raise ValueError(f"There are {len(found)} pictures; a packed network has at most {MOST_PICTURES}.")
    return found


def _licence(folder: Path, given: str | Path | None) -> str | None:
    """The text of the licence, if there is one."""
    path = folder / LICENCE if given is None else Path(given)
    if path.is_file():
        try:
            return read_regular(path, LONGEST_LICENCE).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not a text file; a licence must be.") from None
    if given is None:
        return None
    if not _SPDX.fullmatch(str(given)):
        raise ValueError(
            f"The licence {str(given)!r} is neither a file nor a name of SPDX, such as CC-BY-4.0 or Apache-2.0."
        )
    return f"SPDX-License-Identifier: {given}\n\nThe text is at https://spdx.org/licenses/{given}.html\n"


def _card(name: str, config: Config, content: Mapping[str, bytes], about: str) -> str:
    cases = config.dataset.get("train")
    trained = f", trained on {cases} cases" if isinstance(cases, int) else ""
    trained += f" of the dataset `{_plain(config.dataset['kind'])}`" if trained and config.dataset.get("kind") else ""
    parts = [
        f"# {_plain(config.title) or name}",
        f"A network of kind `{_plain(config.network)}` with {config.parameters:,} parameters{trained}.",
        about.strip(),
        "```sh\n"
        f"pip install pennpde          # packed by version {__version__}\n"
        f"penn predict mesh.vtu --case case.toml --model {name}.zip --out fields.vtu\n"
        "```",
        "Nothing in this package is code. Every prediction comes with a certificate, which says whether the case lies "
        "within the training range below.",
        "## Errors",
        *_errors(config, content.get(REPORT)),
        "## Training range",
        _range(config),
        *(f"![{each[9:-4]}]({each})" for each in content if each.startswith("pictures/")),
        "## Licence",
        "See `LICENSE`." if LICENCE in content else "None is given: ask whoever gave you this network.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _errors(config: Config, report: bytes | None) -> list[str]:
    """Tables of errors: what the report of the training says, and the configuration."""
    relative, squared = [], []
    try:
        for split, by_predictor in json.loads(report or b"{}").get("relative_l2", {}).items():
            for predictor, by_field in by_predictor.items():
                title = f"{_plain(split)}: {_plain(predictor)}"
                relative += [
                    [title, _plain(name), f"{e['mean']:.2%}", f"{e['worst']:.2%}"] for name, e in by_field.items()
                ]
    except (ValueError, AttributeError, KeyError, TypeError):
        relative = []  # a report that is not ours
    for split, errors in config.metrics.items():
        numbers = errors.items() if isinstance(errors, Mapping) else ()
        squared += [[_plain(split), _plain(name), f"{e:.3g}"] for name, e in numbers if isinstance(e, int | float)]
    tables = [
        (["relative L2 error", "field", "mean", "largest"], relative),
        (["split", "field", "mean squared error"], squared),
    ]
    return [_table(head, rows) for head, rows in tables if rows] or ["None were recorded."]


def _range(config: Config) -> str:
    spanned: Mapping[str, Any] = config.training_range
    rows = [
        [_plain(name), f"{bounds[0]:.4g}", f"{bounds[-1]:.4g}"]
        for name, bounds in spanned.items()
        if isinstance(bounds, list | tuple) and bounds and all(isinstance(value, int | float) for value in bounds)
    ]
    return _table(["quantity", "from", "to"], rows) if rows else "None was recorded: the certificate cannot compare."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: object) -> str:
    """Text of a file without what Markdown would make something else of."""
    return re.sub(r"[\r\n|<>`\[\]]", " ", str(value)).strip()[:200]
