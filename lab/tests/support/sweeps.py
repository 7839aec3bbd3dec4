"""Sweeps over settings of OpenFOAM with errors and times by rule, and networks to compare them with."""

import json
from pathlib import Path
from typing import Any

import torch

from pennlab.datasets.flow import cases as flow
from pennlab.paper.openfoam_sweep import settings, sweep
from pennlab.paper.openfoam_sweep.sweep import TestSet
from pennlab.paper.tradeoff import measure as tradeoff
from pennpde.data import storage

NAMES = ("a_0.50", "b_0.30_0.70", "c_0.80_0.30")
RULES = {
    "tuned-9-0.05": (0.02, 0.5),
    "tuned-15-0.04": (0.005, 1.0),
    "gamg-smooth-22.5-0.01": (0.004, 9.0),
    "gamg-smooth-22.5-0.05": (None, 0.0),
}


def small_case(name: str):
    """A case on a mesh of some 60 points; its truth is a uniform flow."""
    mesh = flow.coarse_mesh(name, cells_per_length=4)
    targets = {"u": torch.ones_like(mesh.points) * 0.5, "p": torch.zeros(mesh.number_of_points, dtype=torch.float64)}
    return flow.flow_case(mesh, name, targets)


def write_dataset(folder: Path, cases=None, **changes) -> Path:
    given = {
        "splits": {"test": list(NAMES)},
        "dataset": "flow",
        "settings": {"solver": {"profile": {"cells": 90, "time_step": 0.005}}},
    }
    storage.write(folder, cases or [small_case(name) for name in NAMES], **(given | changes))
    return folder


class FakeSolver:
    """Errors and times by rule: what `measure` would return, and a list of what was measured."""

    def __init__(self, rule):
        self.rule = rule
        self.heard = []

    def __call__(self, case, setting):
        self.heard.append((case.name, setting.name))
        error, seconds = self.rule(case, setting)
        common = {"machine": {"cpu": "abacus"}, "load": 0.0, "steps": 1}
        if error is None:
            return {"outcome": "diverged", "reason": "icoFoam diverged", "seconds": {"mesh": 0.1}, **common}
        estimate = {"mse": error, "standard_error": 0.0, "count": case.number_of_points}
        times = {"mesh": 0.1, "potential_flow": 0.2, "solve": seconds, "solve_cpu": seconds}
        return {"outcome": "finished", "errors": {"u": estimate, "p": estimate}, "seconds": times, **common}


def swept(test_set, runs, names, rule=lambda case, setting: (0.01, 1.0)):
    return sweep.sweep(test_set, settings.read(names), runs, measure=FakeSolver(rule), solver="abacus 1")


def solved_by_rule(data: Path, runs: Path) -> dict[str, Any]:
    """The record of a sweep whose settings err and take as `RULES` says."""
    return swept(TestSet.read(data), runs, list(RULES), lambda _, setting: RULES[setting.name])


def network_row(errors, seconds, transformed=False, title="Net", model="net"):
    records = [
        {
            "case": case,
            "outcome": "finished",
            "errors": {name: {"mse": error, "standard_error": 0.0, "count": 10} for name in ("u", "p")},
            "seconds": {"solve": seconds, "solve_cpu": seconds, "first_call": seconds},
        }
        for case, error in errors.items()
    ]
    return {
        "model": model,
        "title": title,
        "parameters": 1,
        "transformed": transformed,
        "diverged": [],
        "errors": sweep.summarised_errors([each["errors"] for each in records]),
        "seconds": sweep.over_cases([seconds]),
        "records": records,
    }


def traded(solved, *networks):
    record = {
        "kind": tradeoff.KIND,
        "dataset": {"hash": "0123"},
        "machine": {"cpu": "abacus"},
        "precision": "float32",
        "repeats": 5,
        "cases": solved["cases"],
        "preparation": {name: {"problem": 0.1, "operators": 0.1} for name in solved["cases"]},
        "networks": list(networks),
        "openfoam": solved,
    }
    return json.loads(json.dumps(record))
