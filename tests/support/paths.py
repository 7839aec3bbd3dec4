"""Where things lie that tests read or run."""

import importlib.util
from pathlib import Path
from types import ModuleType

SUPPORT = Path(__file__).resolve().parent
TESTS = SUPPORT.parent
ROOT = TESTS.parent
PACKAGE = ROOT / "src" / "pennpde"


def module_names() -> list[str]:
    """The modules and packages of pennpde by their dotted names, from the files, without importing them."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for file in files
    ]


def load_script(path: Path) -> ModuleType:
    """A script that lies in no package, as a module."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
