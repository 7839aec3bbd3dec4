"""Subcommands that the laboratory adds to `penn`."""
