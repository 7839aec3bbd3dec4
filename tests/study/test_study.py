"""Studies from beginning to end: every design is a row, whatever happens to it, and nothing is computed twice."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import kernels_on_cpu
from paths import ROOT
from pennpde.data.workers import Status
from pennpde.flow import scheme
from pennpde.flow.marched_together import Together
from pennpde.flow.scheme import FlowScheme
from pennpde.penn import PENN
from pennpde.study import Study, execution
from pennpde.study.table import ROWS, Row, read_table
from small_studies import QUANTITIES, deadly, slow, small, step, write_problem


@pytest.fixture(scope="module")
def table():
    return small().run()


def numbers(table):
    """All of a table but for what a clock says; in another process the last bits of a sum may differ."""

    def rounded(given):
        return {name: [float(f"{each:.9g}") for each in np.atleast_1d(values)] for name, values in given.items()}

    return [
        (row.design, dict(row.values), row.reason, *map(rounded, (row.quantities, row.errors, row.expected)))
        for row in table.rows
    ]


def test_every_design_is_a_row_with_the_numbers_of_its_own_prediction(table):
    study = small()
    assert [row.design for row in table.rows] == [each.number for each in study.designs]
    for row in table.rows[::3]:
        outcome = study.predict(row.values)
        assert float(outcome.case.parameters["viscosity"]) == row.values["viscosity"]
        for quantity in study.measures:
            assert row.quantities[quantity.name] == pytest.approx(quantity.of(outcome).values, rel=1e-12)
    assert table["flow rate outlet"] == pytest.approx([1.0] * 6, abs=1e-10)


def test_designs_come_in_the_order_of_their_numbers_whatever_the_order_of_the_work():
    swapped = small(vary={"viscosity": "0.01:0.02:3", "ramp": [0.0, 0.4]}).run()
    assert [tuple(row.values.values()) for row in swapped.rows] == [
        (0.01, 0.0), (0.01, 0.4), (0.015, 0.0), (0.015, 0.4), (0.02, 0.0), (0.02, 0.4),
    ]  # fmt: skip


def test_a_design_that_cannot_be_meshed_is_a_row_with_its_reason():
    found = small(vary={"ramp": [0.4, 0.99], "viscosity": [0.01]}).run()
    assert [row.reason for row in found.rows] == ["", "the ramp is too steep"]
    assert found.rows[1].quantities == {}
    assert found["pressure drop inlet outlet"][1] is None


def test_a_march_that_diverges_is_a_row_with_its_reason(monkeypatch):
    """A fluid of negative viscosity speeds up whatever moves; no case has one, so the equations are given it."""
    assembled = FlowScheme._assembled

    def unstable(self, case, splits):
        problem = assembled(self, case, splits)
        sign = -1e4 if case.parameters["viscosity"] < 0.012 else 1.0
        return replace(problem, viscosity=sign * problem.viscosity)

    monkeypatch.setattr(FlowScheme, "_assembled", unstable)
    found = small(vary={"ramp": [0.0], "viscosity": [0.01, 0.02]}).run()
    assert "diverged" in found.rows[0].reason
    assert [bool(row.quantities) for row in found.rows] == [False, True]


def test_a_quantity_that_a_design_lacks_leaves_the_others():
    class Fussy:
        name = "fussy"

        def of(self, outcome):
            raise ValueError(f"not at {outcome.time:g}")

    found = small(quantities=[*small().measures, Fussy()], vary={"ramp": [0.4], "viscosity": [0.01]}).run().rows[0]
    assert set(found.quantities) == set(QUANTITIES)
    assert found.reason == "fussy: not at 1"


def test_the_level_is_one_on_which_quantities_are_accurate_enough_too():
    vary = {"ramp": [0.4], "viscosity": [0.01]}
    (first,) = small(vary=vary, quantities=["force x wall"]).run().rows
    fields = 100 * first.expected["u"]
    force = 100 * first.errors["force x wall"][0] / abs(first.quantities["force x wall"][0])
    assert force > 1.05 * fields  # on `fast`
    between = 0.5 * (force + fields)
    levels = [
        small(vary=vary, level="", accuracy=between, quantities=[name]).run().rows[0].level
        for name in ("flow rate outlet", "force x wall")
    ]
    assert levels[0] == "fast"
    assert levels[1] != "fast"


def test_times_that_vary_share_one_march_and_each_is_a_row(monkeypatch):
    asked = []
    predict = Study.predict
    monkeypatch.setattr(
        Study, "predict", lambda self, values, times=None: asked.append(times) or predict(self, values, times)
    )
    found = small(vary={"time": [0.5, 1.0], "ramp": [0.0], "viscosity": [0.01, 0.02]}, times=None).run()
    assert asked == [[0.5, 1.0], [0.5, 1.0]]
    assert [row.times for row in found.rows] == [(0.5,), (0.5,), (1.0,), (1.0,)]
    alone = small(vary={"ramp": [0.0], "viscosity": [0.02]}, times=1.0).run()
    # Steps of a march end at each of its times, so they are not the same.
    assert found.rows[3].quantities[QUANTITIES[0]] == pytest.approx(alone.rows[0].quantities[QUANTITIES[0]], rel=0.01)


def test_several_times_are_several_columns():
    found = small(vary={"ramp": [0.0], "viscosity": [0.01]}, times=[0.5, 1.0], steady=True).run()
    titles = [f"{QUANTITIES[0]} at {when}" for when in ("0.5", "1", "steady")]
    assert set(titles) < set(found.columns)
    assert [found[title][0] for title in titles] == list(found.rows[0].quantities[QUANTITIES[0]])


def test_a_study_of_a_file_is_the_same_from_a_file_of_designs(tmp_path):
    study = Study.read(write_problem(tmp_path))
    one = study.run()
    lines = [",".join(f"{each!r}" for each in design.values.values()) for design in study.designs]
    (tmp_path / "d.csv").write_text("\n".join(["viscosity,inlet.u", *lines]), encoding="utf-8")
    text = (tmp_path / "study.toml").read_text().partition("[vary]")[0]
    (tmp_path / "listed.toml").write_text(f'design = "d.csv"\n{text}', encoding="utf-8")
    assert numbers(Study.read(tmp_path / "listed.toml").run()) == numbers(one)


# Stopped, and started again


def test_a_study_that_is_complete_is_not_computed_again(tmp_path, table, monkeypatch):
    first = small().run(tmp_path / "s")
    assert numbers(first) == numbers(table)
    monkeypatch.setattr(Study, "predict", lambda *_: pytest.fail("it is computed again"))
    heard = []
    assert small().run(tmp_path / "s", on_progress=heard.append) == first
    assert heard == [Status(6, 6)]


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.83])
def test_a_study_whose_file_ends_anywhere_goes_on_bit_for_bit(tmp_path, table, cut):
    small().run(tmp_path / "s")
    path = tmp_path / "s" / ROWS
    content = path.read_bytes()
    path.write_bytes(content[: int(cut * len(content))])
    assert numbers(small().run(tmp_path / "s")) == numbers(table)
    assert len(path.read_bytes().splitlines()) == 6


@pytest.mark.slow
def test_a_killed_study_goes_on_where_it_was(tmp_path, table):
    program = (
        "from small_studies import slow, small\n"
        f"slow.__name__ = 'step'\nsmall(slow).run({str(tmp_path / 's')!r})"
    )  # fmt: skip
    path = os.pathsep.join([str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen([sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": path})
    rows = tmp_path / "s" / ROWS
    end = time.monotonic() + 120
    while time.monotonic() < end and not (rows.is_file() and rows.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = rows.read_bytes().count(b"\n")
    assert 2 <= before < 6
    assert numbers(small().run(tmp_path / "s")) == numbers(table)
    assert rows.read_bytes().count(b"\n") == 6


def test_another_study_in_the_same_folder_is_refused(tmp_path):
    small(vary={"ramp": [0.0], "viscosity": [0.01]}).run(tmp_path)
    with pytest.raises(ValueError, match=r"state, vary differ"):
        small(vary={"ramp": [0.0], "viscosity": [0.03]}).run(tmp_path)


def test_a_changed_mesh_or_problem_is_another_study(tmp_path):
    path = write_problem(tmp_path)
    Study.read(path).run(tmp_path / "s")
    problem = tmp_path / "step.toml"
    problem.write_text(problem.read_text().replace("wall = 0.0", "wall = [0.1, 0.0]"))
    with pytest.raises(ValueError, match="state differ"):
        Study.read(path).run(tmp_path / "s")


def test_a_full_disk_keeps_the_rows_and_says_what_to_do(tmp_path, table, monkeypatch):
    from pennpde.study import table as tables

    written = []

    class Full:
        def __init__(self, stream: Any):
            self.stream = stream

        def __getattr__(self, name):
            return getattr(self.stream, name)

        def write(self, content):
            if len(written) == 3:
                self.stream.write(content[:20])
                self.stream.flush()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written.append(content)
            return self.stream.write(content)

    journal, full = tables.Journal.__init__, cast(Any, Full)
    monkeypatch.setattr(tables.Journal, "__init__", lambda self, stream, rows: journal(self, full(stream), rows))
    with pytest.raises(OSError, match=r"No space left.*3 designs are kept; make room"):
        small().run(tmp_path / "s")
    monkeypatch.undo()
    assert len(read_table(tmp_path / "s").rows) == 3
    assert numbers(small().run(tmp_path / "s")) == numbers(table)


# Several processes


@pytest.mark.slow
def test_processes_compute_the_same_and_one_that_dies_loses_its_own_design_only(tmp_path, table):
    assert numbers(small().run(tmp_path / "s", workers=2)) == numbers(table)
    found = small(deadly, vary={"ramp": [0.0, 0.4, 0.99], "viscosity": "0.01:0.02:3"}).run(workers=2)
    assert [bool(row.quantities) for row in found.rows] == [True] * 6 + [False] * 3
    assert {row.reason for row in found.rows[6:]} == {"the process that worked on it died, perhaps for lack of memory"}
    assert [row[3] for row in numbers(found)[:6]] == [row[3] for row in numbers(table)]


@pytest.mark.slow
def test_a_dask_cluster_computes_the_same(table):
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        assert numbers(small().run(scheduler=cluster.scheduler_address)) == numbers(table)


@pytest.mark.slow
def test_lost_workers_of_a_cluster_lose_no_design(tmp_path, table):
    """One is killed from outside: its designs are computed by others. One design kills each that tries it."""
    distributed = pytest.importorskip("distributed", reason="needs Dask")
    dask, killed = pytest.importorskip("dask"), []

    def kill_one(status: Status):
        if status.done and not killed:
            nanny = next(iter(cluster.workers.values()))
            killed.append(nanny.pid)
            os.kill(nanny.pid, signal.SIGKILL)

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
    ):
        found = small(slow).run(tmp_path / "s", scheduler=cluster.scheduler_address, on_progress=kill_one)
        assert killed
        assert [row[3] for row in numbers(found)] == [row[3] for row in numbers(table)]
        vary = {"ramp": [0.4, 0.99], "viscosity": [0.01, 0.02]}
        rows = small(deadly, vary=vary).run(tmp_path / "deadly", scheduler=cluster.scheduler_address).rows
    assert [bool(row.quantities) for row in rows] == [True, True, False, False]
    assert {row.reason for row in rows[2:]} == {"the process that worked on it died, perhaps for lack of memory"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="runs the GPU's kernels through a C++ compiler")
def test_designs_side_by_side_have_the_numbers_that_they_have_one_by_one(monkeypatch):
    """Other meshes, Reynolds numbers and speeds, and a shape without a mesh; the kernels run on this processor."""
    vary = {"ramp": [0.0, 0.4, 0.99], "viscosity": [0.02], "inlet.u": [0.5, 1.0]}
    alone = small(vary=vary, times=0.3).run()
    marched = []

    def on_cpu(parts: Any, _: str) -> Together:
        marched.append(len(parts))
        return Together(parts, "cpu", launch=kernels_on_cpu.launch)

    monkeypatch.setattr(scheme, "Together", on_cpu)
    monkeypatch.setattr(execution, "check_device", lambda _: None)
    monkeypatch.setattr(PENN, "_corrected", lambda self, cases, _: corrected(self, cases, "cpu"))
    monkeypatch.setattr(
        kernels_on_cpu, "THREADS", 1
    )  # those of a block meet at barriers, for which a busy machine waits
    together = small(vary=vary, times=0.3).run(device="cuda")
    assert marched == [4]
    assert [row.reason for row in together.rows] == [row.reason for row in alone.rows]
    for name in QUANTITIES:
        for one, other in zip(together[name], alone[name], strict=True):
            assert (one is None) == (other is None)
            # What is left of the momentum equation's residual is another, and the GPU's precision is single.
            assert one is None or one == pytest.approx(other, rel=5e-3)


corrected = PENN._corrected


@pytest.mark.parametrize(
    ("changes", "device", "words"),
    [({"level": "", "accuracy": 2.0}, "cpu", "give a level"), ({}, "gpu", "'gpu' cannot be used on this machine")],
)
def test_a_device_that_cannot_be_used_is_refused_before_any_work(tmp_path, changes, device, words):
    with pytest.raises(ValueError, match=words):
        small(**changes).run(tmp_path / "s", device=device)
    assert not (tmp_path / "s").exists()


# What no design can be computed with


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantities": []}, "measures something"),
        ({"quantities": ["pressure drop inlet nowhere"]}, "nowhere"),
        ({"vary": {"ramp": [0.0], "viscosty": [1.0]}}, "viscosty.*cannot vary"),
        ({"vary": {"viscosity": [0.01]}}, "shape depends on ramp"),
        ({"vary": {"ramp": [0.0], "time": [0.0, 1.0]}, "times": None}, "above zero"),
        ({"vary": {"ramp": [0.0], "time": [1.0]}}, "left out"),
        ({"level": "fast", "accuracy": 2.0}, "not both"),
        ({"level": "quick"}, "no level 'quick'"),
    ],
)
def test_what_is_wrong_with_all_designs_is_said_before_any_work(tmp_path, changes, words):
    with pytest.raises(ValueError, match=words):
        small(**changes).run(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_wrong_key_of_a_study_file_is_refused_with_those_that_exist(tmp_path):
    path = write_problem(tmp_path)
    path.write_text("quantites = []\n" + path.read_text(), encoding="utf-8")
    with pytest.raises(ValueError, match=r"sets quantites; it knows .*quantities"):
        Study.read(path)


def test_kept_fields_are_those_of_the_designs(tmp_path):
    from pennpde.mesh import Mesh

    study = small(vary={"ramp": [0.0], "viscosity": [0.01, 0.02]})
    study.run(tmp_path, keep_fields=".vtu")
    kept = Mesh.read(tmp_path / "fields" / "00002.vtu").fields["p"]
    assert kept.numpy() == pytest.approx(study.predict({"ramp": 0.0, "viscosity": 0.02})["p"], abs=1e-12)


def test_a_row_is_read_as_it_was_written():
    row = Row(
        3,
        {"x": 0.1},
        "why",
        (1.0, float("inf")),
        {"q": (1.5, None)},
        {"q": (None,)},
        {"u": 0.02},
        "good",
        "fast",
        0.5,
        "",
    )
    assert vars(Row.of(row.line)).keys() == vars(row).keys()
    assert Row.of(row.line).times == row.times
    assert Row.of(Row.of(row.line).line).line == row.line


def test_the_case_of_a_design_is_that_of_its_function():
    assert small().case_of({"ramp": 0.4, "viscosity": 0.01}).number_of_points == step(0.4).number_of_points
    assert Path(str(small().definition["input"])).name == "step"
