"""A trained network packed for others: weights, configuration, errors, model card, pictures and licence in one file.

What a training and its calibration leave in the folder of a network is taken along: the report with its pictures, and
the expected errors. The other side is `packed`, through which `load_pretrained` reads such files.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pennpde import __version__, checkpoints, packed
from pennpde.checkpoints import CONFIG, EXPECTED_ERROR, WEIGHTS, CheckpointError, Config
from pennpde.files import read_regular, replacing_folder, write_atomically

CARD, LICENCE = "README.md", "LICENSE"
TAKEN_ALONG = (EXPECTED_ERROR, "report.json")
MOST_PICTURES, LARGEST_PICTURE, LONGEST_LICENCE = 20, 4 * 2**20, 2**20
_PNG = b"\x89PNG\r\n\x1a\n"
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{1,60}")
_LICENCE_FILES = ("LICENSE", "LICENCE", "LICENSE.txt", "LICENCE.txt", "LICENSE.md", "LICENCE.md")
# Fixed, so that the same network gives the same file and the same hash.
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Pack:
    """What was packed.

    Attributes:
        path: The .zip file, or a folder.
        sha256: Of the file; None for a folder.
        files: Sizes by name.
        licensed: Whether it says what others may do with it.
    """

    path: Path
    sha256: str | None
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
        out: A .zip file, or a folder, which must be empty; by default NAME.zip in the current folder.
        licence: A name of SPDX such as CC-BY-4.0, or a text file; by default the licence in the network's folder.
        pictures: PNG files for the card, besides those in the network's folder.
        about: A paragraph for the card.
    """
    folder = checkpoints.folder_of(network)
    model = checkpoints.load(folder)  # what cannot be loaded is not shared
    config = checkpoints.config_of(model)
    assert config is not None
    out = Path(f"{folder.name}{packed.SUFFIX}") if out is None else Path(out)
    content = {name: (folder / name).read_bytes() for name in (WEIGHTS, CONFIG)}
    if hashlib.sha256(content[WEIGHTS]).hexdigest() != json.loads(content[CONFIG]).get("weights_sha256"):
        raise CheckpointError(
            f"{folder} was left halfway by an interrupted save; save the network again, then pack it."
        )
    content |= {name: (folder / name).read_bytes() for name in TAKEN_ALONG if (folder / name).is_file()}
    drawn = _pictures(folder, pictures)
    content |= {f"pictures/{name}": picture for name, picture in drawn.items()}
    licence_text = _licence(folder, licence)
    if licence_text is not None:
        content[LICENCE] = licence_text.encode()
    name = folder.name if out.suffix != packed.SUFFIX else out.stem
    content[CARD] = _card(name, config, content, list(drawn), licence, licence_text is not None, about).encode()
    content[packed.MANIFEST] = (json.dumps(packed.listing(content), indent=2) + "\n").encode()
    size = sum(map(len, content.values()))
    if size > packed.MOST_BYTES:
        raise ValueError(f"{folder} packs to {size:,} bytes; a packed network has at most {packed.MOST_BYTES:,}.")
    digest = _write(out, content)
    return Pack(out, digest, {name: len(each) for name, each in content.items()}, licence_text is not None)


def _write(out: Path, content: Mapping[str, bytes]) -> str | None:
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == packed.SUFFIX:
        archive = _zipped(content)
        write_atomically(out, archive)
        return hashlib.sha256(archive).hexdigest()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists already; give another folder, an empty one, or a name that ends in .zip.")
    with replacing_folder(out) as temporary:
        for name, each in content.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            write_atomically(temporary / name, each)
    return None


def _zipped(content: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type, entry.external_attr, entry.create_system = zipfile.ZIP_DEFLATED, 0o100644 << 16, 3
            archive.writestr(entry, content[name])
    return stream.getvalue()


# Pictures and licence


def _pictures(folder: Path, more: Sequence[str | Path]) -> dict[str, bytes]:
    paths = [*sorted(folder.glob("*.png")), *sorted((folder / "pictures").glob("*.png")), *map(Path, more)]
    found: dict[str, bytes] = {}
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"There is no picture {path}.")
        content = read_regular(path, LARGEST_PICTURE)
        if not content.startswith(_PNG):
            raise ValueError(f"{path} is not a PNG file.")
        found[re.sub(r"[^A-Za-z0-9_.+-]", "_", path.stem)[:90].lstrip(".-+") + ".png"] = content
    if "learning_curve.png" not in found and (curve := _learning_curve(folder)) is not None:
        found = {"learning_curve.png": curve, **found}
    if len(found) > MOST_PICTURES:
        raise ValueError(f"There are {len(found)} pictures; a packed network has at most {MOST_PICTURES}.")
    return found


def _learning_curve(folder: Path) -> bytes | None:
    """A picture of loss and validation error over the training, where its log is there."""
    path = folder / "log.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get("step")]
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    drawn = False
    for column, label in (("loss", "loss"), ("validation", "validation error")):
        try:
            points = [(int(row["step"]), float(row[column])) for row in rows if row.get(column)]
        except ValueError:
            continue
        points = [(step, value) for step, value in points if math.isfinite(value) and value > 0]
        if len(points) > 1:
            axes.semilogy(*zip(*points, strict=True), label=label)
            drawn = True
    if not drawn:
        return None
    axes.set(xlabel="step", title="Training")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    stream = io.BytesIO()
    figure.savefig(stream, dpi=100, format="png", metadata={"Software": None})
    return stream.getvalue()


def _licence(folder: Path, given: str | Path | None) -> str | None:
    """The text of the licence, if there is one."""
    if given is None:
        path = next((folder / name for name in _LICENCE_FILES if (folder / name).is_file()), None)
        return None if path is None else _text(path)
    if Path(given).is_file():
        return _text(Path(given))
    if not _SPDX.fullmatch(str(given)):
        raise ValueError(
            f"The licence {str(given)!r} is neither a file nor a name of SPDX, such as CC-BY-4.0 or Apache-2.0."
        )
    return f"SPDX-License-Identifier: {given}\n\nThe text is at https://spdx.org/licenses/{given}.html\n"


def _text(path: Path) -> str:
    try:
        return read_regular(path, LONGEST_LICENCE).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file; a licence must be.") from None


# The card


def _card(
    name: str,
    config: Config,
    content: Mapping[str, bytes],
    pictures: Sequence[str],
    licence: str | Path | None,
    licensed: bool,
    about: str,
) -> str:
    spdx = str(licence).lower() if licence is not None and not Path(licence).is_file() else "other" if licensed else ""
    head = ["---", "library_name: pennpde", "tags: [physics, mesh, partial-differential-equations]"]
    head += [f"license: {spdx}"] if spdx else []
    parts = [
        "\n".join([*head, "---"]),
        f"# {_plain(config.title) or name}",
        _sentence(config),
        *([about.strip()] if about.strip() else []),
        "## Use",
        "```sh\n"
        f"pip install pennpde          # packed by version {__version__}\n"
        f"penn predict mesh.vtu --case case.toml --model {name}.zip --out fields.vtu\n"
        "```",
        "```python\n"
        "import pennpde as penn\n\n"
        f'network = penn.load_pretrained("{name}.zip")  # or https://.../{name}.zip#sha256=...\n'
        "```",
        "Nothing in this package is code. Every prediction comes with a certificate, which says whether the case lies "
        "within the training range below.",
        "## Errors",
        *_errors(config, content),
        "## Training",
        _training(config),
        "## Training range",
        _range(config),
    ]
    if EXPECTED_ERROR in content:
        parts += [
            "## Expected errors",
            f"`{EXPECTED_ERROR}` holds the errors of this network on cases with known truth, so that a prediction "
            "comes with the error to expect.",
        ]
    if pictures:
        parts += ["## Pictures", "\n\n".join(f"![{picture[:-4]}](pictures/{picture})" for picture in pictures)]
    parts += ["## Licence", "See `LICENSE`." if licensed else "None is given: ask whoever gave you this network."]
    return "\n\n".join(parts) + "\n"


def _sentence(config: Config) -> str:
    cases = config.dataset.get("train")
    source = f" on {cases} cases" if isinstance(cases, int) else ""
    source += f" of the dataset `{_plain(config.dataset['kind'])}`" if config.dataset.get("kind") else ""
    trained = f", trained{source}" if source else ""
    return f"A network of kind `{_plain(config.network)}` with {config.parameters:,} parameters{trained}."


def _errors(config: Config, content: Mapping[str, bytes]) -> list[str]:
    parts = []
    report = _report(content.get("report.json"))
    if report:
        parts.append(_table(["relative L2 error", "field", "mean", "largest"], report))
    rows = [
        [_plain(split), _plain(field), f"{value:.3g}"]
        for split, errors in config.metrics.items()
        if isinstance(errors, Mapping)
        for field, value in errors.items()
        if isinstance(value, int | float)
    ]
    if rows:
        parts.append(_table(["split", "field", "mean squared error"], rows))
    return parts or ["None were recorded."]


def _report(content: bytes | None) -> list[list[str]]:
    """The rows of the report of a training, in words; none where there is no report that is understood."""
    try:
        errors = json.loads(content or b"{}").get("relative_l2", {})
        return [
            [f"{_plain(split)}: {_plain(predictor)}", _plain(field), f"{each['mean']:.2%}", f"{each['worst']:.2%}"]
            for split, by_predictor in errors.items()
            for predictor, by_field in by_predictor.items()
            for field, each in by_field.items()
        ]
    except (ValueError, AttributeError, KeyError, TypeError):
        return []


def _training(config: Config) -> str:
    facts = {
        **{f"{name} cases": config.dataset.get(name) for name in ("train", "validation", "test")},
        "hash of the dataset": config.dataset.get("hash"),
        "steps": config.training.get("steps"),
        "minutes": config.training.get("minutes"),
        "device": config.training.get("device"),
        "seed": config.seed,
        "trained with pennpde": config.version,
    }
    rows = [
        [name, f"{value:.4g}" if isinstance(value, float) else _plain(value)]
        for name, value in facts.items()
        if value is not None
    ]
    return _table(["", ""], rows)


def _range(config: Config) -> str:
    rows: list[list[str]] = []
    spanned: Mapping[str, Any] = config.training_range
    for name, bounds in spanned.items():
        if isinstance(bounds, list | tuple) and all(isinstance(value, int | float) for value in bounds) and bounds:
            rows.append([_plain(name), f"{bounds[0]:.4g}", f"{bounds[-1]:.4g}"])
    return _table(["quantity", "from", "to"], rows) if rows else "None was recorded: the certificate cannot compare."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(value: object) -> str:
    """Text of a file without what Markdown would make something else of."""
    return re.sub(r"[\r\n|<>`\[\]]", " ", str(value)).strip()[:200]
