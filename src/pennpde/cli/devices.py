"""The option `--device`: refused before any work where this machine does not have the device."""

import typer


def check_device(name: str | None) -> None:
    """Refuse a device that PyTorch does not know, or that is not there."""
    if name is None:
        return
    import torch

    try:
        torch.zeros(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise typer.BadParameter(
            f"{name!r} cannot be used on this machine; take cpu, or cuda where there is a GPU. PyTorch says: {reason}",
            param_hint="--device",
        ) from None
