"""Records of the 22 networks that the paper's authors released, on our test cases.

    python lab/benchmarks/released_networks.py                       # what is here, what lacks a record
    python lab/benchmarks/released_networks.py --evaluate            # makes the records of the weights that are here
    git clone https://github.com/yellowshippo/penn-neurips2022 runs/released
    python lab/benchmarks/released_networks.py --clone runs/released --evaluate    # of all that can be read

Seven sets of weights come with the laboratory (`lab/reference/weights`); the others are in the authors' repository,
whose files are read without running their code. Their eight MP-PDE models are not read: the network that we compare
with mends two mistakes of theirs (`pennlab.paper.baselines.mp_pde`), so that their weights mean nothing in it, and
there are no outputs of their code to compare with.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pennlab.released import weights

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "lab" / "reference" / "weights"
RECORDS = ROOT / "lab" / "records"
PRETRAINED = Path("tests") / "data" / "pretrained"
ABLATIONS = (
    "wo_encoded_boundary",
    "wo_boundary_condition_in_nns",
    "wo_neural_nonlinear_solver",
    "wo_boundary_condition_input",
    "wo_dirichlet_layer",
    "wo_pseudoinverse_decoder",
    "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding",
)
FLOW = ("penn_n16_rep4", "penn_n8_rep8", "penn_n8_rep4", "penn_n4_rep8", "penn_n4_rep4", "wo_boundary_condition_in_nns")
MP_PDE = tuple(f"mp-pde_tw{window}_n{width}" for window in (20, 10, 4, 2) for width in (64, 32))
SETS = {
    "flow": {
        "0": ("data/flow",),
        "0.unrelated": ("data/flow", "--unrelated"),
        "0.moved": ("data/flow", "--transformed"),
    },
    "advection_diffusion": {
        "0": ("data/advection_diffusion",),
        "0.off_lattice": ("data/advection_diffusion_off_lattice",),
    },
}


@dataclass(frozen=True)
class Released:
    """One of the 22."""

    problem: str
    name: str

    @property
    def is_read(self) -> bool:
        return self.name not in MP_PDE

    def weights(self, clone: Path | None) -> Path | None:
        """Where its weights are; None where they are not."""
        theirs = "fluid" if self.problem == "flow" else self.problem
        places = [HERE / f"{self.problem}_{self.name}.npz"]
        places += [clone / PRETRAINED / theirs / self.name / "model"] if clone else []
        return next((place for place in places if place.is_file()), None)


def released() -> list[Released]:
    transport = [Released("advection_diffusion", name) for name in ("penn", *ABLATIONS)]
    return [*(Released("flow", name) for name in (*FLOW, *MP_PDE)), *transport]


def row_of(place: Path) -> str:
    """The folder of its records, as `penn evaluate` calls its row."""
    config = getattr(weights.load(place), "checkpoint_config", None)
    assert config is not None, f"{place} is a network of the gradient experiment"
    return config.row


def lacking(each: Released, place: Path) -> Iterator[tuple[Path, Sequence[str]]]:
    """The records that are not there, and what `penn evaluate` is given for them."""
    for name, given in SETS[each.problem].items():
        path = RECORDS / each.problem / row_of(place) / f"{name}.json"
        if not path.is_file():
            yield path, given


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--clone", type=Path, help="of the authors' repository")
    parser.add_argument("--evaluate", action="store_true", help="make the records that lack")
    given = parser.parse_args()
    for each in released():
        place = each.weights(given.clone)
        if not each.is_read:
            told = "not read: our MP-PDE is another network"
        elif place is None:
            told = "its weights are not here: give --clone"
        else:
            missing = list(lacking(each, place))
            told = f"{len(missing)} records lack" if missing else "has its records"
            for path, data in missing if given.evaluate else ():
                path.parent.mkdir(parents=True, exist_ok=True)
                made = subprocess.run(
                    ["penn", "evaluate", str(place), *data, "--json"], cwd=ROOT, check=True, capture_output=True
                )
                path.write_bytes(made.stdout)
                told = f"written: {path.relative_to(ROOT)}"
        print(f"{each.problem:20} {each.name:60} {told}", flush=True)


if __name__ == "__main__":
    main()
