"""The general flow network compared with what others published: cavity, backward-facing step, cylinder, COMSOL's step.

The flows are those of `plane_flow_references.py`, which compares the truth of the dataset in the same way. The network
predicts the steady state on triangles, as a user would make them: of one size, and half as large at walls. A flow that
is in the results is not predicted again; delete the file to start over.

    python lab/benchmarks/general_flow_references.py [cavity-100 step-400 ...]

Prints and writes `lab/benchmarks/results/general_flow_references.json` and the table of `docs/general_flow_results.md`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from plane_flow_references import PAGE, TASKS, _rounded, page_table

import pennpde
from pennlab.datasets.plane_flow.cases import case_on_mesh
from pennlab.datasets.plane_flow.flow import Flow
from pennlab.datasets.plane_flow.meshes import MeshPlan, network_mesh
from pennlab.datasets.plane_flow.triangles import Triangles
from pennlab.datasets.plane_flow.truth import Truth
from pennlab.paper.tables import within
from pennpde.mesh import Mesh

OUTPUT = PAGE.parent.parent / "benchmarks" / "results" / "general_flow_references.json"
DOCUMENT = PAGE.parent / "general_flow_results.md"
PLANS = {
    "cavity-100": MeshPlan("graded", 40.0, 0.5, 0),
    "cavity-1000": MeshPlan("graded", 48.0, 0.5, 0),
    "step-100": MeshPlan("graded", 20.0, 0.5, 0),
    "step-400": MeshPlan("graded", 20.0, 0.5, 0),
    "comsol-step": MeshPlan("graded", 24.0, 0.5, 0),
    "cylinder": MeshPlan("graded", 24.0, 0.5, 0),
}
"""Points per reference length: the side of the cavity, the width of the inlet, the height of the channel."""


def predicted(flow: Flow, mesh: Mesh) -> tuple[Truth, dict[str, Any]]:
    """What the network predicts, as if it were the truth."""
    began = time.process_time()
    model = pennpde.load_pretrained("flow")
    outcome = pennpde.predict(model, case_on_mesh(flow, mesh), times=[pennpde.STEADY])
    fields = {name: values.double().numpy() for name, values in outcome.fields.items()}
    edges = mesh.facets.connectivity.reshape(-1, 2)
    patches = {name: np.isin(np.arange(len(edges)), patch.facets) for name, patch in mesh.patches.items()}
    triangles = mesh.connectivity.reshape(-1, 3)
    facts = {
        "points": mesh.number_of_points,
        "steady": outcome.certificate.converged,
        "processor_seconds": round(time.process_time() - began, 1),
    }
    shown = Triangles(mesh.points.numpy(), triangles, edges, patches)
    truth = Truth(shown, fields["u"][..., None], fields["p"][..., None], fields["u"], fields["p"], facts)
    return truth, facts


def main() -> None:
    torch.set_num_threads(1)
    results = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    for name in sys.argv[1:] or list(PLANS):
        if name not in PLANS:
            raise SystemExit(f"There is no comparison {name!r}; there are {', '.join(PLANS)}.")
        if name not in results:
            draw, judge = TASKS[name]
            flow = draw()
            truth, facts = predicted(flow, network_mesh(flow, PLANS[name]))
            results[name] = _rounded({**judge(flow, truth), "reynolds": flow.reynolds, "network": facts})
            OUTPUT.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name]), flush=True)
    if DOCUMENT.exists():
        page = DOCUMENT.read_text(encoding="utf-8")
        DOCUMENT.write_text(within(page, page_table(results) + "\n", "references", required=True), encoding="utf-8")


if __name__ == "__main__":
    main()
