"""OpenFOAM's own plane laminar tutorials: its run against a prediction at the same time, on the same mesh.

    python lab/benchmarks/tutorials.py [--model flow] [--only cavity elbow]

Needs OpenFOAM with its examples (`apt install openfoam openfoam-examples`); takes some minutes of one core. Every case
is meshed, started and run as its Allrun says; penn starts from the same fields at the same time. The comparison is over
the cells: relative L2 difference of U, and of p less its mean.

`planarContraction` and `planarPoiseuille` are made for a viscoelastic fluid (Maxwell), which no network here knows. The
Allrun of the second also runs it with a Newtonian fluid (Stokes), and so does this script with both.

Prints a table, and writes `lab/benchmarks/results/tutorials.json` and the table of `docs/openfoam.md`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pennlab import running
from pennlab.paper.tables import write_within
from pennpde import openfoam
from pennpde.checkpoints import load_pretrained
from pennpde.files import write_json
from pennpde.openfoam.dictionaries import number_of
from pennpde.penn import Predictor
from pennpde.prediction import predict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "openfoam.md"
OUTPUT = Path(__file__).parent / "results" / "tutorials.json"
EXAMPLES = Path("/usr/share/doc/openfoam-examples/examples/incompressible")
_PROGRAMS = ("blockMesh", "icoFoam", "pimpleFoam", "mapFields", "fluentMeshToFoam")


class Cases:
    """Tutorials in a scratch folder; those that start from others find them there."""

    def __init__(self, scratch: Path, installation: running.Installation) -> None:
        self.scratch, self.installation = scratch, installation

    def copied(self, source: str, name: str) -> Path:
        return shutil.copytree(EXAMPLES / source, self.scratch / name)

    def run(self, folder: Path, program: str, *arguments: str) -> None:
        running.run(folder, program, *arguments, installation=self.installation, timeout=1800, largest_courant=1e3)

    def cavity(self) -> Path:
        folder = self.copied("icoFoam/cavity/cavity", "cavity")
        self.run(folder, "blockMesh")
        return folder

    def cavity_fine(self) -> Path:
        folder = self.copied("icoFoam/cavity/cavity", "cavityFine")
        changed(folder / "system" / "blockMeshDict", {"20 20 1": "41 41 1"})
        entries = {"startTime": "0.5", "endTime": "0.7", "deltaT": "0.0025", "writeControl": "runTime"}
        set_entries(folder / "system" / "controlDict", {**entries, "writeInterval": "0.1"})
        self.run(folder, "blockMesh")
        self.mapped("cavity", folder)
        return folder

    def cavity_grade(self) -> Path:
        folder = self.copied("icoFoam/cavity/cavityGrade", "cavityGrade")
        self.run(folder, "blockMesh")
        self.mapped("cavityFine", folder)
        return folder

    def cavity_high_reynolds(self) -> Path:
        """Ten times the Reynolds number, from the end of the first run."""
        folder = self.copied("icoFoam/cavity/cavity", "cavityHighRe")
        set_entries(folder / "system" / "controlDict", {"startTime": "0.5", "endTime": "2.0"})
        set_entries(folder / "constant" / "transportProperties", {"nu": "0.001"})
        self.run(folder, "blockMesh")
        shutil.copytree(self.scratch / "cavity" / "0.5", folder / "0.5")
        return folder

    def cavity_clipped(self) -> Path:
        folder = self.copied("icoFoam/cavity/cavityClipped", "cavityClipped")
        self.run(folder, "blockMesh")
        shutil.copytree(folder / "0", folder / "0.5")
        self.mapped("cavity", folder, consistent=False)
        return folder

    def elbow(self) -> Path:
        folder = self.copied("icoFoam/elbow", "elbow")
        mesh = folder / "elbow.msh"
        if not mesh.is_file():  # Debian packs it
            mesh.write_bytes(gzip.decompress((folder / "elbow.msh.gz").read_bytes()))
        self.run(folder, "fluentMeshToFoam", "elbow.msh")
        return folder

    def contraction(self, newtonian: bool) -> Path:
        name = "planarContraction" + (" Newtonian" if newtonian else "")
        folder = self.copied("pimpleFoam/laminar/planarContraction", name.replace(" ", ""))
        if newtonian:
            # The viscosity that the Maxwell fluid has at rest.
            changed(folder / "constant" / "turbulenceProperties", {"Maxwell;": "Stokes;"})
            set_entries(folder / "constant" / "transportProperties", {"nu": "0.00201"})
            # A scheme that only Newtonian fluids need.
            stress = "div((nuEff*dev2(T(grad(U))))) Gauss linear;"
            path = folder / "system" / "fvSchemes"
            path.write_text(re.sub(r"(divSchemes\s*\{)", rf"\1\n    {stress}", path.read_text()))
        without_functions(folder / "system" / "controlDict")
        self.run(folder, "blockMesh")
        return folder

    def poiseuille(self, model: str) -> Path:
        folder = self.copied("pimpleFoam/laminar/planarPoiseuille", f"planarPoiseuille{model}")
        for name, values in (
            ("system/controlDict", {"END_TIME": "25"}),
            ("constant/turbulenceProperties", {"LAMINAR_MODEL": model}),
        ):
            text = (folder / f"{name}.template").read_text()
            for key, value in values.items():
                text = text.replace(key, value)
            (folder / name).write_text(text)
        without_functions(folder / "system" / "controlDict")
        self.run(folder, "blockMesh")
        return folder

    def mapped(self, source: str, folder: Path, consistent: bool = True) -> None:
        last = openfoam.time_folders(self.scratch / source)[-1].name
        self.run(folder, "mapFields", f"../{source}", "-sourceTime", last, *(["-consistent"] if consistent else []))


def changed(path: Path, replaced: Mapping[str, str]) -> None:
    text = path.read_text()
    for old, new in replaced.items():
        if old not in text:
            raise ValueError(f"{path} has no {old!r}; is this another version of OpenFOAM's tutorials?")
        text = text.replace(old, new)
    path.write_text(text)


def set_entries(path: Path, entries: Mapping[str, str]) -> None:
    text = path.read_text()
    for name, value in entries.items():
        text, number = re.subn(rf"(?m)^({name}\s+)[^;]+;", rf"\g<1>{value};", text)
        if number != 1:
            raise ValueError(f"{path} has the entry {name!r} {number} times.")
    path.write_text(text)


def without_functions(path: Path) -> None:
    """What runs beside the solver: plots, which need files that are not here."""
    path.write_text(re.sub(r"(?s)\nfunctions\s*\{.*?\n\}\n", "\n", path.read_text()))


TUTORIALS: Mapping[str, Callable[[Cases], Path]] = {
    "cavity": Cases.cavity,
    "cavityFine": Cases.cavity_fine,
    "cavityGrade": Cases.cavity_grade,
    "cavityHighRe": Cases.cavity_high_reynolds,
    "cavityClipped": Cases.cavity_clipped,
    "elbow": Cases.elbow,
    "planarContraction": lambda cases: cases.contraction(newtonian=False),
    "planarContraction, Newtonian": lambda cases: cases.contraction(newtonian=True),
    "planarPoiseuille, Maxwell": lambda cases: cases.poiseuille("Maxwell"),
    "planarPoiseuille, Stokes": lambda cases: cases.poiseuille("Stokes"),
}


def compared(folder: Path, cases: Cases, network: Predictor) -> dict[str, Any]:
    """OpenFOAM's run to its end, and the prediction there."""
    control = openfoam.read_dictionary(folder / "system" / "controlDict", folder)
    start, end = openfoam.start_time(folder), number_of(control["endTime"])
    assert end is not None
    result: dict[str, Any] = {"from": start, "to": end}
    begin = time.process_time()
    try:
        case = openfoam.read_problem(folder, network.equation)
        outcome = predict(network, case, times=[end - start] if network.takes_times else None)
        written = openfoam.write_time(
            folder, "99999", outcome.case.mesh, outcome.last, network.equation.foam_fields
        ).rename(folder / "predicted")
    except (ValueError, NotImplementedError, OSError, ArithmeticError) as error:
        written = None
        result["refused"] = str(error).splitlines()[0].replace(str(cases.scratch), "")
    else:
        result |= {
            "points": outcome.case.number_of_points,
            "numbers": outcome.numbers,
            "warnings": list(outcome.certificate.warnings),
        }
    result["seconds"] = time.process_time() - begin
    program = str(control["application"])
    cases.run(folder, program)
    seconds = re.findall(r"ExecutionTime = (\S+) s", (folder / f"log.{program}").read_text())
    result["seconds_openfoam"] = float(seconds[-1])
    mesh = openfoam.PolyMesh.read(folder)
    result["cells"] = mesh.number_of_cells
    if written is None:
        return result
    last = openfoam.time_folders(folder)[-1]
    if abs(float(last.name) - end) > 1e-6 * end:
        raise ValueError(f"The last time of {folder} is {last.name}, not {end:g}.")
    volumes = cell_volumes(mesh)
    speed = np.abs(openfoam.read_field(last / "U").values(mesh.number_of_cells)).max()
    for name in ("U", "p"):
        ours, truth = (openfoam.read_field(each / name).values(mesh.number_of_cells) for each in (written, last))
        if name == "p":
            ours, truth = (each - (each * volumes).sum() / volumes.sum() for each in (ours, truth))
        # Driven by a force, the pressure of a channel is the same everywhere: nothing to compare with.
        if name == "U" or np.ptp(truth) > 1e-6 * speed**2:
            result[f"error_of_{name}"] = relative_error(ours, truth, volumes)
    return result


def cell_volumes(mesh: openfoam.PolyMesh) -> np.ndarray:
    parts = (mesh.face_vectors * mesh.face_centres).sum(axis=1) / 3
    whole = np.bincount(mesh.owner, parts, mesh.number_of_cells)
    return whole - np.bincount(mesh.neighbour, parts[: len(mesh.neighbour)], mesh.number_of_cells)


def relative_error(ours: np.ndarray, truth: np.ndarray, volumes: np.ndarray) -> float:
    off, whole = (((each.reshape(len(each), -1) ** 2).sum(axis=1) * volumes).sum() for each in (ours - truth, truth))
    return float(np.sqrt(off / max(whole, 1e-300)))


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| tutorial | cells | Re | times | error of U | error of p | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        reynolds = result.get("numbers", {}).get("Reynolds number")
        errors = [result.get(f"error_of_{field}") for field in ("U", "p")]
        cells = [
            name,
            f"{result['cells']:,}",
            "–" if reynolds is None else f"{reynolds:.3g}",
            f"{result['from']:g} to {result['to']:g}",
            *("–" if error is None else f"{100 * error:.1f} %" for error in errors),
            f"refused: {result['refused']}" if "refused" in result else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="flow")
    parser.add_argument(
        "--only", nargs="*", help="names of tutorials; the cavities start from each other, so all of them are run"
    )
    parser.add_argument("--out", type=Path, default=OUTPUT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    network = load_pretrained(options.model)
    assert isinstance(network, Predictor)
    results: dict[str, Any] = {}
    if options.only and options.out.is_file():
        results = json.loads(options.out.read_text()).get("tutorials", {})
    with tempfile.TemporaryDirectory(prefix="penn-tutorials-") as scratch:
        cases = Cases(Path(scratch), running.find_installation(_PROGRAMS))
        for name, prepare in TUTORIALS.items():
            chained = name.startswith("cavity") and any(each.startswith("cavity") for each in options.only or [])
            if options.only and name not in options.only and not chained:
                continue
            results[name] = compared(prepare(cases), cases, network)
            print(table({name: results[name]}).splitlines()[-1], flush=True)
            write_json(options.out, {"model": options.model, "tutorials": results})
    print(table(results))
    if options.out == OUTPUT:
        write_within(PAGE, table(results), "tutorials")


if __name__ == "__main__":
    main()
