"""`penn view`."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pennpde.cli.conventions import Model, Output, Plugin

EXAMPLES = [
    "penn view",
    "penn view --data data/flow                 # compare with OpenFOAM",
    "penn view --model runs/flow --port 0       # your own network, any free port",
    "penn view --model advection-diffusion      # a temperature, played over time",
]


def run(
    output: Output,
    model: Model = "flow",
    data: Annotated[
        Path | None,
        Option(help="Dataset to compare with; default: data/flow or data/advection_diffusion, if it exists."),
    ] = None,
    host: Annotated[str, Option(help="Address to listen on; other than 127.0.0.1, other machines can connect.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free port.")] = 7366,
    no_browser: Annotated[bool, Option("--no-browser", help="Do not open the page in a browser.")] = False,
    workers: Annotated[
        int | None,
        Option(
            min=1,
            max=64,
            help="Processes that predict; default: one per core, up to 4. One more handles files and large meshes.",
        ),
    ] = None,
    plugin: Plugin = None,
) -> dict[str, Any]:
    """Predict in the browser: move sliders, upload a mesh or an OpenFOAM case, look at the flow.

    Serves a page on this machine until Ctrl+C. The page loads nothing from the internet. Every browser has its own
    state, and its address bar holds a link to what it shows.
    """
    import asyncio
    import errno
    import webbrowser

    import trame_client  # noqa: F401  # fails here, with the name of the missing package
    import trame_vuetify  # noqa: F401

    from pennpde.viewer.server import Page

    page = Page(model, data, plugin=plugin, workers=workers)
    addresses = []

    def on_ready(address: str) -> None:
        addresses.append(address)
        output.say(f"{address}   (stop with Ctrl+C)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            output.warn(f"everybody who can reach {host} can use this page; there is no password")
        if not no_browser:
            webbrowser.open(address)

    try:
        asyncio.run(page.run(host, port, on_ready))
    except KeyboardInterrupt:
        output.say("stopped")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {port} is in use; choose another with --port, or any free one with --port 0") from None
        raise
    return {"address": addresses[0] if addresses else None}
