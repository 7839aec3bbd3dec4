"""Modes that grow under the Laplacians of the flow dataset's meshes: div of grad, evenly damped, as networks take it.

Every eigenvalue of the real Laplacian is negative where some value is prescribed. One of the wrong sign is a mode that
grows in every solve. Writes `lab/benchmarks/results/growing_modes.json`: on how many meshes there is one, and the
fastest.

    python lab/benchmarks/growing_modes.py [--data data/flow] [--also FOLDER]
"""

import argparse
import json
from pathlib import Path

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from pennpde.case import Case
from pennpde.data import storage
from pennpde.files import write_json
from pennpde.operators.damping import roughness

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "lab" / "benchmarks" / "results" / "growing_modes.json"
DAMPING = 0.25


def fastest(matrix: scipy.sparse.csr_matrix) -> float:
    """The largest real part of an eigenvalue, to a percent."""
    try:
        found = scipy.sparse.linalg.eigs(
            matrix, k=2, which="LR", return_eigenvectors=False, tol=1e-2, maxiter=5000, v0=np.ones(matrix.shape[0])
        )
    except scipy.sparse.linalg.ArpackNoConvergence as error:
        # What grows fast is found first; without a single one there is nothing that stands out.
        found = error.eigenvalues if len(error.eigenvalues) else np.zeros(1)
    return float(np.real(found).max())


def laplacians(case: Case, unknown: str) -> dict[str, scipy.sparse.csr_matrix]:
    """The three, between the points whose value is free."""
    operators = case.operators[unknown]
    free = (~case.dirichlet[unknown].mask).numpy()
    plain = operators.composed(0.0).composed_laplacian
    damped = operators.composed(DAMPING).composed_laplacian
    assert plain is not None
    assert damped is not None
    gradient = operators.gradient.to_scipy()
    differences, explained = roughness(gradient, operators.moment_inverse.double().numpy())
    evenly = plain.to_scipy() + DAMPING * (differences - explained @ gradient)
    whole = {"div of grad": plain.to_scipy(), "evenly damped": evenly, "as taken": damped.to_scipy()}
    return {name: scipy.sparse.csr_matrix(matrix)[free][:, free] for name, matrix in whole.items()}


def main() -> None:
    """Look at all meshes and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / "data" / "flow")
    parser.add_argument("--also", type=Path, help="the same flows on other meshes: penn generate flow --varied")
    given = parser.parse_args()
    record = {}
    for label, folder in (("the dataset's meshes", given.data), ("varied meshes", given.also)):
        if folder is None:
            continue
        total = len(storage.read_manifest(folder).cases)
        rates: dict[str, list[float]] = {}
        for number, file in enumerate(storage.read_files(folder), 1):
            for unknown in file.case.initial:
                for kind, matrix in laplacians(file.case, unknown).items():
                    rates.setdefault(f"{unknown}, {kind}", []).append(fastest(matrix))
            print(f"\r{label}: {number} of {total}", end="", flush=True)
        record[label] = {
            kind: {
                "meshes": len(found),
                "with a growing mode": sum(rate > 1e-6 for rate in found),
                "fastest": round(max(found), 3),
            }
            for kind, found in rates.items()
        }
        print()
    write_json(RESULT, record)
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
