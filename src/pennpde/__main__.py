"""`python -m pennpde` is the command `penn`."""

from pennpde.cli import main

if __name__ == "__main__":
    main()
