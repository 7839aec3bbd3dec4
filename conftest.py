"""Fixtures that several test modules share.

Our own modules and torch are imported inside: the process that only hands out tests to others reads this file too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pennlab.running import Installation
    from pennpde.mesh import Mesh

OPENFOAM = (
    *("blockMesh", "checkMesh", "decomposePar", "polyDualMesh"),
    *("icoFoam", "laplacianFoam", "pimpleFoam", "potentialFoam", "scalarTransportFoam", "simpleFoam"),
)


@pytest.fixture(autouse=True)
def _same_numbers_each_time() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _a_compiler_without_a_past() -> None:
    """torch.compile remembers which code it gave up on, and all functions whose shapes are checked share theirs."""
    if "torch._dynamo" in sys.modules:
        import torch

        torch.compiler.reset()


@pytest.fixture(scope="session")
def reference() -> Path:
    """The authors' samples and weights, and what their code computed of them."""
    folder = Path(__file__).parent / "lab" / "reference"
    if not (folder / "samples").is_dir():
        pytest.skip(f"there are no reference arrays in {folder}; `git checkout -- lab/reference` brings them back")
    return folder


@pytest.fixture(scope="session")
def pairs() -> dict[str, tuple[Mesh, Mesh]]:
    """Meshes, each with its companion."""
    from companions import DOMAINS, SPACING
    from pennpde.case.companion import companion_mesh

    return {name: (mesh := make(), companion_mesh(mesh, SPACING)) for name, make in DOMAINS.items()}


@pytest.fixture(scope="session")
def installation() -> Installation:
    """OpenFOAM with the programs that the tests run."""
    from pennlab import running

    try:
        return running.find_installation(OPENFOAM)
    except running.InstallationError as error:
        pytest.skip(f"OpenFOAM is not installed: {error}")


@pytest.fixture(scope="session")
def tutorials(installation: Installation) -> Path:
    """OpenFOAM's tutorials for incompressible flows; Debian has them in a package of their own."""
    folders = (Path("/usr/share/doc/openfoam-examples/examples"), installation.project / "tutorials")
    found = [folder for folder in folders if folder.is_dir()]
    if not found:
        pytest.skip(f"OpenFOAM's tutorials are in none of {', '.join(map(str, folders))}: install openfoam-examples")
    return found[0] / "incompressible"


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all is well: mesh, case file, OpenFOAM case, networks, dataset, experiment. Copy it."""
    from sound_folder import make_sound

    return make_sound(tmp_path_factory.mktemp("sound"))
