"""`penn pack`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from pennpde.cli.conventions import Output, Plugin

EXAMPLES = [
    "penn pack nets/mine --licence CC-BY-4.0",
    "penn pack nets/mine --out shared/bends.zip --picture bend.png",
]


def run(
    output: Output,
    network: Annotated[str, Argument(help="Folder of a trained network.")],
    out: Annotated[
        Path | None, Option("--out", "-o", help="A .zip file; default: NAME.zip in the current folder.")
    ] = None,
    licence: Annotated[
        str | None,
        Option(
            "--licence",
            "--license",
            help="SPDX name such as CC-BY-4.0, or a text file; default: the LICENSE in the network's folder.",
        ),
    ] = None,
    picture: Annotated[list[Path] | None, Option(help="PNG file for the model card; may be repeated.")] = None,
    about: Annotated[str, Option(help="A paragraph for the model card.")] = "",
    plugin: Plugin = None,
) -> dict[str, Any]:
    """Pack a trained network for others: one file with weights, errors, model card, pictures and licence.

    Whoever gets it gives its path, or the https address where you put it, as --model.
    """
    from pennpde.registry import load_plugin
    from pennsharing.packing import pack

    if plugin is not None:
        load_plugin(plugin)
        output.warn(f"the network needs {plugin}, which is not packed: code is never shared this way")
    made = pack(network, out, licence=licence, pictures=picture or [], about=about)
    if not made.licensed:
        output.warn("no licence is given, so nobody else may use the network; choose one with --licence")
    output.say(
        f"{made.path}: {len(made.files)} files, {sum(made.files.values()):,} bytes",
        *(f"  {name:28}{size:>10,}" for name, size in sorted(made.files.items())),
        f"Use it: penn predict INPUT --model {made.path}",
    )
    output.say(f"After an upload: penn predict INPUT --model 'https://.../{made.path.name}#sha256={made.sha256}'")
    return {"written": str(made.path), "sha256": made.sha256, "files": dict(made.files), "licensed": made.licensed}
