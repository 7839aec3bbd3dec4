"""`penn view`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pennpde.cli.conventions import Output

EXAMPLES = [
    "penn view",
    "penn view --data data/flow                 # compare with OpenFOAM",
    "penn view --model runs/flow --port 0       # a network of yours, any free port",
]

_DATA = Path("data/flow")


def run(
    output: Output,
    model: Annotated[str, typer.Option(help="A network that comes with penn, or the folder of one of yours.")] = "flow",
    data: Annotated[
        Path | None,
        typer.Option(help="A flow dataset to compare with; default: data/flow, where it exists.", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own lets others in.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 7366,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page in a browser.")] = False,
) -> dict[str, Any]:
    """Predict in the browser: move a slider, upload a mesh, see the flow.

    Serves a page on this machine until it is stopped with Ctrl+C. The page loads nothing from elsewhere.
    """
    import asyncio
    import errno
    import webbrowser

    import trame.app  # noqa: F401  # the error names what is to be installed; what trame brings along it would not

    from pennpde.viewer.reading import Reader
    from pennpde.viewer.server import Page
    from pennpde.viewer.workbench import Workbench

    if data is None and (_DATA / "manifest.json").is_file():
        data = _DATA
    workbench = Workbench.of(model, data)
    reader = Reader()
    page = Page(workbench, reader)
    addresses = []

    def on_ready(address: str) -> None:
        addresses.append(address)
        output.say(f"{address}   (Ctrl+C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            output.warn(f"whoever reaches {host} can use this page: it asks for no password")
        if not no_browser:
            webbrowser.open(address)

    async def serve() -> None:
        try:
            # Its libraries load while the page does.
            await asyncio.gather(asyncio.to_thread(reader.start), page.run(host, port, on_ready))
        finally:
            reader.close()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        output.say("ended")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(f"port {port} is taken; give another with --port, or --port 0 for any that is free") from None
        raise
    return {"address": addresses[0] if addresses else None}
