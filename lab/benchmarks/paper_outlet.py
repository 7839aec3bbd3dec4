"""What the paper's outlet changes: trained networks with outlets free of stress in place of zero normal derivative.

    python lab/benchmarks/paper_outlet.py

Weights of PENN n = 16, r = 8 (three seeds), trained with the outlet of the data, evaluated on the 25 test cases with
either outlet, not trained anew; and by how much the two fields differ. Writes
`lab/benchmarks/results/paper_outlet.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import pennlab.plugin  # noqa: F401  (its networks are registered)
from pennlab.paper.paper_outlet import flow_with_the_papers_outlet
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.data import storage
from pennpde.files import write_json
from pennpde.penn.predictor import seen_by

ROOT = Path(__file__).resolve().parents[2]
RESULT = Path(__file__).parent / "results" / "paper_outlet.json"


def main() -> None:
    torch.set_num_threads(1)
    cases, result = storage.read(ROOT / "data" / "flow", "test"), {}
    for seed in range(3):
        trained = load_pretrained(str(ROOT / "lab" / "records" / "flow" / "penn" / str(seed)))
        config = config_of(trained)
        assert config is not None
        other = flow_with_the_papers_outlet(**config.arguments)
        other.load_state_dict(trained.state_dict())
        squares: dict[str, Any] = {}
        points = 0
        for case in cases:
            with torch.no_grad():
                found = {
                    "zero derivative": trained(seen_by(trained, case).case),
                    "free of stress": other(seen_by(other, case).case),
                }
            points += case.number_of_points
            fields = {
                **found,
                "difference": {k: found["free of stress"][k] - found["zero derivative"][k] for k in "up"},
            }
            for outlet, values in fields.items():
                for name, components in (("u", 3), ("p", 1)):
                    error = values[name] if outlet == "difference" else values[name] - case.targets[name]
                    key = f"{outlet}, {name}"
                    squares[key] = squares.get(key, 0.0) + float(error.double().square().sum()) / components
        result[str(seed)] = {key: value / points for key, value in squares.items()}
        write_json(RESULT, result)
        print(seed, result[str(seed)], flush=True)


if __name__ == "__main__":
    main()
