"""What importing the package costs, and that it works where little is installed. One new process tells all of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paths import module_names
from pennpde.data import storage
from problems import heated_plate

HEAVY = ("vtk", "vtkmodules", "pyvista", "meshio", "matplotlib", "pydantic", "dask", "distributed", "trame")
HEAVY += ("aiohttp", "typer", "rich")

# The parts that are made of such a library: the command of typer, the page of trame.
MADE_OF_THEM = ("pennpde.cli", "pennpde.__main__", "pennpde.viewer.server")
MODULES = [name for name in module_names() if not name.startswith(MADE_OF_THEM)]

EXPERIMENT = """
[common]
dataset = "advection-diffusion"
network = "advection-diffusion"
arguments = { width = 4, iterations = 2, hidden = 8 }
training = { learning_rate = 1e-2, batch_size = 2, test_every = 1 }
[rows.penn]
"""

SCRIPT = f"""
import importlib, json, sys

def loaded(*more):
    return [name for name in ({HEAVY} + more) if name in sys.modules]

data, toml, out, told = sys.argv[1:]
found = {{}}
import pennpde
found["package"] = loaded("torch", "numpy", "scipy")
found["modules"] = {{}}
for name in {MODULES}:
    importlib.import_module(name)
    found["modules"][name] = loaded("torch._dynamo")
from pennpde.data import storage
storage.read(data)
found["reading"] = loaded("torch._dynamo")
# None in sys.modules makes an import raise, as if the library were missing.
sys.modules.update(dict.fromkeys({HEAVY}))
from pennlab.train import main
main([toml, "--data", data, "--out", out, "--device", "cpu", "--set", "epochs = 2"])
with open(told, "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, Any]:
    """What a process loaded that imports the package, then all of its modules, reads a dataset and trains."""
    folder: Path = tmp_path_factory.mktemp("imports")
    cases = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True) for k in range(1, 6)]
    names = [case.name for case in cases]
    storage.write(folder / "data", cases, {"train": names[:4], "validation": names[4:]}, "advection-diffusion")
    (folder / "rows.toml").write_text(EXPERIMENT)
    arguments = [folder / "data", folder / "rows.toml", folder / "run", folder / "told.json"]
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads((folder / "told.json").read_text())
    return found | {"stderr": finished.stderr, "run": folder / "run"}


@pytest.mark.slow
def test_importing_the_package_loads_nothing_heavy(told):
    assert told["package"] == []


def test_every_module_is_imported_without_loading_a_library_for_files_pictures_or_clusters(told):
    """Nor torch's compiler, which takes as long to import as all of torch."""
    assert len(told["modules"]) == len(MODULES) > 80
    assert {name: loaded for name, loaded in told["modules"].items() if loaded} == {}


def test_reading_a_dataset_needs_neither_vtk_nor_matplotlib(told):
    assert told["reading"] == []


def test_training_needs_only_torch_h5py_and_safetensors(told):
    assert (told["run"] / "model.safetensors").exists()
    assert "step 4  epoch 2.0" in told["stderr"]
