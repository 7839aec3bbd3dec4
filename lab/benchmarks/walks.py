"""How many files of the library a reader walks through: those that `penn predict CASE` and `penn train DATA` enter.

Prints, for each command, the files of pennpde in which a function runs, in the order in which they are entered first,
with the number of functions that run there, and the size of the library; writes
`lab/benchmarks/results/walks.json`. Code that runs while a module is imported does not count, nor does what other
processes do; compiled kernels are not seen.
"""

import contextlib
import inspect
import io
import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "walks.json"
ROOT = Path(__file__).parents[2]
DATASET = ROOT / "data" / "advection_diffusion"
"""The smallest dataset that has cases to train on."""
CASE = """
[patches]
inlet = "x == 0"
outlet = "x == 3"
wall = "rest"
[dirichlet.u]
inlet = [1.0, 0.0]
wall = 0.0
[dirichlet.p]
outlet = 0.0
[parameters]
viscosity = 1e-2
"""


class Walk:
    """The functions of the library that run, by file, files in the order of their first call."""

    def __init__(self, package: Path):
        self.prefix = f"{package}/"
        self.seen: dict[str, set[CodeType]] = {}
        self.importing = threading.local()

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Called by Python at each call of a function and each return."""
        code = frame.f_code
        if code.co_name == "<module>":
            self.importing.depth = getattr(self.importing, "depth", 0) + {"call": 1, "return": -1}.get(event, 0)
        elif (
            event == "call"
            and code.co_filename.startswith(self.prefix)
            and code.co_flags & inspect.CO_OPTIMIZED  # else it is the body of a class
            and not getattr(self.importing, "depth", 0)
        ):
            self.seen.setdefault(code.co_filename.removeprefix(self.prefix), set()).add(code)

    def files(self) -> list[dict[str, Any]]:
        return [{"file": file, "functions": len(codes)} for file, codes in self.seen.items()]


def walk(arguments: list[str]) -> list[dict[str, Any]]:
    """The files that a command enters, in this process, which must be new."""
    import pennpde
    from pennpde.cli import main

    found = Walk(Path(pennpde.__file__).parent)
    threading.setprofile(found.profile)
    sys.setprofile(found.profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main(arguments)
    except SystemExit as stopped:
        if stopped.code:
            raise
    finally:
        sys.setprofile(None)
    return found.files()


def commands(folder: Path) -> dict[str, list[str]]:
    """By the name of a row: the arguments of `penn`."""
    from pennpde.mesh import Mesh

    columns, rows = 30, 10
    x, y = np.meshgrid(np.linspace(0, 3, columns + 1), np.linspace(0, 1, rows + 1))
    corner = (np.arange(rows)[:, None] * (columns + 1) + np.arange(columns)).ravel()
    quads = np.stack([corner, corner + 1, corner + columns + 2, corner + columns + 1], axis=1)
    Mesh.from_arrays(np.stack([x.ravel(), y.ravel()], axis=1), quads).save(folder / "duct.vtu")
    (folder / "duct.toml").write_text(CASE)
    return {
        "penn predict CASE": ["predict", str(folder / "duct.vtu"), "--case", str(folder / "duct.toml"), "--quiet"],
        "penn train DATA": ["train", str(DATASET), "--out", str(folder / "net"), "--steps", "2", "--quiet"],
    }


def size() -> dict[str, int]:
    """Modules and lines of the library."""
    files = sorted((ROOT / "src" / "pennpde").rglob("*.py"))
    return {"modules": len(files), "lines": sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)}


def main() -> None:
    """Walk through each command in a process of its own, print the files and write the record."""
    if len(sys.argv) > 1:
        print(json.dumps(walk(sys.argv[1:])))
        return
    record: dict[str, Any] = {"library": size()}
    print("library: {modules} modules, {lines} lines".format(**record["library"]))
    with tempfile.TemporaryDirectory() as folder:
        for name, arguments in commands(Path(folder)).items():
            process = [sys.executable, __file__, *arguments]
            finished = subprocess.run(process, check=True, stdout=subprocess.PIPE, text=True)
            files = json.loads(finished.stdout.splitlines()[-1])
            functions = sum(each["functions"] for each in files)
            print(f"{name}: {len(files)} files, {functions} functions")
            print(*(f"  {each['file']:36}{each['functions']:4}" for each in files), sep="\n")
            record[name] = {"files": len(files), "functions": functions, "entered": files}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
