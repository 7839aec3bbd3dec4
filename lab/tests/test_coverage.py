"""Times whose reference is not mesh-converged are judged, but not learned from, and counted apart."""

import json
from dataclasses import replace

from calibrated import WORSE, drawn
from pennlab import coverage
from pennlab.coverage import DETERMINED, NOT_MEASURED, UNDETERMINED
from pennlab.datasets.plane_flow import sensitivity
from pennpde.train.calibrate import Measured


def measured_of(*arguments, **options) -> list[Measured]:
    return [
        Measured(each.name, each.family, 1.0, each.errors, each.clues, WORSE) for each in drawn(*arguments, **options)
    ]


def test_whether_the_truth_is_determined_is_known_from_the_archives(tmp_path):
    flow = {"times": [1.0, 4.0], "u": [0.01, 0.9], "p": [0.01, 0.9]}
    (tmp_path / sensitivity.FILE).write_text(json.dumps({"flows": {"plate": flow}}))
    rows = [
        Measured(f"{name}.a", name, time, {}, {}, {}) for name, time in (("plate", 1.0), ("plate", 4.0), ("rib", 1.0))
    ]
    assert list(coverage.known_of(tmp_path, rows).values()) == [True, False, None]


def test_moments_whose_truth_is_not_determined_are_counted_apart():
    turns = (True, False, None)
    measured = measured_of(6, 9)
    known = {(each.case, each.time): turns[number % 3] for number, each in enumerate(measured)}
    found = coverage.coverage_by_family(measured, known)
    assert list(found)[-4:] == [DETERMINED, UNDETERMINED, NOT_MEASURED, "all"]
    assert [found[title].cases for title in list(found)[-4:]] == [18, 18, 18, 54]
    # Where nobody has measured it, there is nothing to count apart.
    unknown = coverage.coverage_by_family(measured, {})
    assert list(unknown) == [*sorted({each.family for each in measured}), "all"]


def test_a_truth_that_depends_on_its_mesh_is_judged_but_not_learned_from():
    measured = measured_of(12, 10, seed=1)
    eddies = [replace(each, case=f"{each.case} late", errors={"u": 100 * each.errors["u"]}) for each in measured]
    known = {(each.case, each.time): False for each in eddies}
    alone, both = coverage.fitted(measured, known), coverage.fitted([*measured, *eddies], known)
    assert all(alone.estimate("u", each.clues) == both.estimate("u", each.clues) for each in measured)
    covered = coverage.coverage_by_family([*measured, *eddies], known)
    assert covered[NOT_MEASURED].covered["u"] > 0.8
    assert covered[UNDETERMINED].covered["u"] == 0
