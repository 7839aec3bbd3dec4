"""Where things lie that tests read or run."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "pennpde"


def module_names() -> list[str]:
    """The modules and packages of pennpde by their dotted names, from the files, without importing them."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for file in files
    ]
