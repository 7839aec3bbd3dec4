"""Draw the picture of docs/general_flow.md: flows of the test set, the reference above the prediction.

python docs/general_flow.py
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pennpde as penn
from pennlab.charts import with_palette
from pennlab.datasets.plane_flow import finished, flows
from pennpde.penn.equation import Look
from pennpde.pictures import draw, field_panels

ROOT = Path(__file__).resolve().parent.parent
FLOWS = ("u-bend_3001.a", "moving-tee_3001.a", "y-junction_2000.a")
"""Two of unseen families, one of a trained one."""


def main() -> None:
    model = penn.load_pretrained("flow")
    truths, predictions = [], []
    for name in FLOWS:
        flow = flows.draw_flow(name.rpartition(".")[0], 0)
        file = finished.cases(ROOT / "data" / "plane_flow" / "finished", flow)[name]
        when = file.times[-1]
        outcome = penn.predict(model, replace(file.case, targets={}), times=[when])
        for found, panels, label in (
            (file.case.targets["u"][..., -1], truths, "OpenFOAM"),
            (outcome.fields["u"], predictions, "flow"),
        ):
            look = {"u": Look(f"{flow.family}, Re {flow.reynolds:.0f}, t = {when:g}: {label}")}
            panels.extend(field_panels(file.case.mesh, {"u": found}, look))
    path = ROOT / "docs" / "images" / "general_flow.png"
    draw(path, [truths, predictions])
    path.write_bytes(with_palette(path.read_bytes()))


if __name__ == "__main__":
    main()
