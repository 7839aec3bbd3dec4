"""How good the truth of the advection-diffusion set is: against the authors' samples, and against the exact solution.

Prints tables and writes `lab/benchmarks/results/advection_diffusion_truth.json`. The authors' samples are in
`lab/reference`; the runs are those of `data/advection_diffusion/runs`, or made again with
OpenFOAM where another profile is asked for.
"""

import tempfile
from pathlib import Path

import numpy as np

from pennlab.datasets import advection_diffusion as ad
from pennpde.files import write_json

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "data" / "advection_diffusion" / "runs"
REFERENCE = ROOT / "lab" / "reference"
RESULTS = Path(__file__).parent / "results" / "advection_diffusion_truth.json"
SAMPLES = [(0.5, 0.5, 0.5), (0.5, 0.6, 0.6), (0.6, 0.5, 0.6), (0.6, 0.6, 0.5)]


def run_of(velocity: float, diffusivity: float, profile: str) -> ad.Run:
    """A run that is there, or a new one."""
    kept = RUNS / f"{ad.run_name(velocity, diffusivity)}.h5"
    if profile == "standard" and ad.has_run(kept):
        return ad.read_run(kept)
    with tempfile.TemporaryDirectory() as folder:
        ad.solve(velocity, diffusivity, ad.PROFILES[profile], Path(folder) / "run.h5")
        return ad.read_run(Path(folder) / "run.h5")


def against_authors() -> list[dict]:
    """Mean squared differences at the authors' points and times."""
    rows = []
    for profile in ("small", "standard"):
        for velocity, diffusivity, hot in SAMPLES:
            path = REFERENCE / "samples" / f"advection_diffusion_u{velocity}_d{diffusivity}_t{hot}.npz"
            if not path.exists():
                continue
            sample = np.load(path)
            x, theirs = sample["points"][:, 0], sample["T"][1:].T
            ours = hot * run_of(velocity, diffusivity, profile).at(x)
            exact = hot * ad.exact_temperature(x, ad.TIMES, velocity, diffusivity)
            row = {
                "case": ad.case_name(velocity, diffusivity, hot),
                "profile": profile,
                "ours_to_authors": float(np.mean((ours - theirs) ** 2)),
                "ours_to_exact": float(np.mean((ours - exact) ** 2)),
                "authors_to_exact": float(np.mean((theirs - exact) ** 2)),
            }
            rows.append(row)
            print(
                f"{row['case']}  {profile:9} ours to authors {row['ours_to_authors']:.1e}, "
                f"ours to exact {row['ours_to_exact']:.1e}, authors to exact {row['authors_to_exact']:.1e}"
            )
    return rows


def against_exact() -> list[dict]:
    """Mean squared differences to the exact solution on the coarse mesh, over all runs of the set with T̂ = 1."""
    coarse = np.linspace(0.0, 1.0, ad.POINTS)
    errors: dict[float, list[float]] = {}
    for velocity in ad.COEFFICIENTS:
        for diffusivity in ad.COEFFICIENTS:
            if velocity or diffusivity:
                run = run_of(velocity, diffusivity, "standard")
                exact = ad.exact_temperature(coarse, ad.TIMES, velocity, diffusivity)
                # Where the moving step just passes a point, its value there is no question of accuracy.
                smooth = ~np.isclose(coarse[:, None], velocity * np.asarray(ad.TIMES)) | (diffusivity > 0)
                errors.setdefault(diffusivity, []).append(float(np.mean((run.at(coarse) - exact)[smooth] ** 2)))
    rows = []
    for diffusivity, found in sorted(errors.items()):
        row = {"diffusivity": diffusivity, "runs": len(found), "mean": float(np.mean(found)), "largest": max(found)}
        rows.append(row)
        print(f"D = {diffusivity:.1f}: {row['runs']} runs, mean {row['mean']:.1e}, largest {row['largest']:.1e}")
    return rows


def main() -> None:
    """Compare and write the record."""
    record = {
        "profiles": {name: vars(profile) for name, profile in ad.PROFILES.items()},
        "mean_squared_differences_to_the_authors": against_authors(),
        "mean_squared_errors_of_all_runs": against_exact(),
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    write_json(RESULTS, record)


if __name__ == "__main__":
    main()
