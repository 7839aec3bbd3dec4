"""Runs become a dataset; what is wrong with a run is said in one line, and stops no other."""

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import penn
from finished_runs import SPEED, channel, no_picture, pressure, velocity
from foam_cases import write_dictionary
from pennpde.case.moments import steady_state
from pennpde.data import storage
from pennpde.data.runs import collect as collecting
from pennpde.data.runs.collect import Collection, NothingCollectedError, collect_runs
from pennpde.data.runs.survey import Shares
from pennpde.data.storage import content_of
from pennpde.models.ducts import Flow


def collect(runs: Path, out: Path, **options) -> Collection:
    return collect_runs(sorted(runs.iterdir()), out, **{"workers": 0, **options})


def family(folder: Path, number: int = 3, **options) -> Path:
    """Runs that differ in viscosity, by far more than near twins do."""
    for place in range(number):
        channel(folder / f"run_{place}", **{"viscosity": 0.01 * 1.5**place, **options})
    return folder


@pytest.fixture
def runs(tmp_path) -> Path:
    return family(tmp_path / "runs")


@pytest.fixture
def out(tmp_path) -> Path:
    return tmp_path / "set"


# What is collected


def test_what_a_run_was_computed_with_and_no_network_knows_is_named(runs, out):
    for name in ("run_0", "run_2"):
        write_dictionary(runs / name / "system/fvOptions", {"push": {"type": "meanVelocityForce"}})
    finished = penn("collect", *sorted(runs.iterdir()), "--out", out)
    assert finished.exit_code == 0, finished.output
    words = "no network knows this: system/fvOptions adds push (meanVelocityForce)"
    assert f"warning: 2 runs: {words}" in finished.stderr
    assert finished.stderr.count("fvOptions") == 1
    notes = {
        name: facts.get("notes", [])
        for name, facts in json.loads((out / collecting.JSON_FILE).read_text())["cases"].items()
    }
    assert [name for name, found in notes.items() if any(each.startswith(words) for each in found)] == [
        "run_0",
        "run_2",
    ]
    assert all(len(found) < 2 for found in notes.values())


def test_a_case_has_conditions_parameters_and_targets_of_its_run(runs, out):
    made = collect(runs, out)
    assert made.collected == ("run_0", "run_1", "run_2")
    case = storage.read_file(out, "run_1").case
    assert float(case.parameters["viscosity"]) == pytest.approx(0.015)
    assert float(case.parameters["time"]) == 1.0
    u, held = case.targets["u"], case.dirichlet["u"].mask
    places = case.mesh.points.numpy()
    inside = np.flatnonzero(((places > 0.25) & (places < 0.75)).all(axis=1))  # the walls rest though the field does not
    np.testing.assert_allclose(u[inside], velocity(places[inside]), atol=3e-3)
    np.testing.assert_allclose(case.targets["p"][inside], pressure(places[inside]), atol=3e-2)
    # Prescribed values hold exactly: walls rest, also where they meet the inlet.
    assert torch.equal(u[held], case.dirichlet["u"].values[held])
    inlet = np.setdiff1d(
        case.mesh.patch("left").points, [*case.mesh.patch("top").points, *case.mesh.patch("bottom").points]
    )
    assert (u[inlet] == torch.tensor([SPEED, 0.0])).all()
    assert (case.targets["p"][case.mesh.patch("right").points] == 0).all()
    assert not case.initial["u"][~held].any()  # the run's own start


@pytest.mark.slow
def test_the_dataset_states_what_it_holds(runs, out):
    collect(runs, out)
    manifest = storage.read_manifest(out)
    content = content_of(manifest)
    assert content.network == "flow"
    assert content.unknowns == dict(Flow.unknowns)
    assert (content.targets, content.space) == ("one time", 2)
    assert manifest.settings["splitting"] == {"seed": 0, "validation": 0.1, "test": 0.1}
    assert sorted(name for names in manifest.splits.values() for name in names) == ["run_0", "run_1", "run_2"]


@pytest.mark.slow
def test_several_times_are_moments_from_the_start_on(runs, out):
    collect(runs, out, time="0:1:0.5")
    file = storage.read_file(out, "run_0")
    assert file.moments == (0.5, 1.0)
    assert file.case.targets["u"].shape == (*file.case.mesh.points.shape, 2)
    assert content_of(storage.read_manifest(out)).targets == "several times"
    last = file.at_moment(1)
    assert torch.equal(last.targets["u"], file.case.targets["u"][..., 1])
    assert float(last.parameters["time"]) == 1.0


def test_a_steady_state_is_a_target_of_its_own(runs, out):
    collect(runs, out, time="steady")
    case = storage.read_file(out, "run_0").case
    assert set(case.targets) == {"steady_u", "steady_p"}
    assert "time" not in case.parameters
    facts = storage.read_manifest(out).cases["run_0"].facts
    assert facts["last_change"] > 0.3  # between the times 0.5 and 1 the fields doubled
    assert "is it steady?" in facts["notes"][0]
    assert set(steady_state(case).targets) == {"u", "p"}


@pytest.mark.slow
@pytest.mark.parametrize("layout", [{"binary": True}, {"packed": True}, {"binary": True, "packed": True}])
def test_binary_and_packed_files_are_the_same_run(tmp_path, layout):
    channel(tmp_path / "runs" / "plain")
    channel(tmp_path / "runs" / "other", **layout)
    collect(tmp_path / "runs", tmp_path / "set")
    plain, other = (storage.read_file(tmp_path / "set", name).case for name in ("plain", "other"))
    for name in ("u", "p"):
        torch.testing.assert_close(plain.targets[name], other.targets[name])


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_runs_in_space_are_collected(tmp_path, out):
    family(tmp_path / "runs", 3, shape=(3, 3, 3), plane=False)
    collect(tmp_path / "runs", out)
    assert content_of(storage.read_manifest(out)).space == 3
    case = storage.read(out)[0]
    assert case.targets["u"].shape == (64, 3)
    assert (out / "report.png").stat().st_size > 1000


@pytest.mark.slow
def test_fluxes_of_the_run_and_of_the_dataset_are_reported(runs, out):
    collect(runs, out)
    facts = storage.read_manifest(out).cases["run_0"].facts
    assert facts["flux"]["left"]["run"] == pytest.approx(-SPEED)
    assert facts["flux"]["left"]["stored"] == pytest.approx(-SPEED)
    assert facts["flux"]["right"]["run"] == pytest.approx(0.45)


def test_runs_on_a_coarser_mesh_keep_their_fluxes_within_one_per_cent(tmp_path, out):
    family(tmp_path / "runs", 3, shape=(24, 24, 1))
    collect(tmp_path / "runs", out, spacing="0.08L")
    for case in storage.read(out):
        assert case.number_of_points < 0.5 * 25**2
        flux = storage.read_manifest(out).cases[case.name].facts["flux"]
        for patch in ("left", "right"):
            assert flux[patch]["stored"] == pytest.approx(flux[patch]["run"], rel=0.01)
        assert abs(flux["right"]["sampled"] / flux["right"]["run"] - 1) > 0.01  # it was needed
        inside = np.setdiff1d(np.arange(case.number_of_points), case.mesh.boundary_points)
        away = inside[(case.mesh.distance_to(list(case.mesh.patches))[inside] > 0.1).numpy()]
        places = case.mesh.points.numpy()[away]
        np.testing.assert_allclose(case.targets["u"][away], velocity(places), atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("drawn")
def test_the_report_names_all_runs_and_ranges(runs, out):
    (runs / "notes.txt").write_text("nothing")
    channel(runs / "broken", fields=("U",))
    collect(runs, out)
    record = json.loads((out / "report.json").read_text())
    assert set(record["cases"]) == {"run_0", "run_1", "run_2"}
    assert record["ranges"]["viscosity"] == pytest.approx([0.01, 0.0225])
    assert [Path(path).name for path in record["failed"]] == ["broken"]
    assert [Path(path).name for path in record["skipped"]] == ["notes.txt"]
    text = (out / "report.md").read_text()
    assert "3 runs collected, 1 failed, 1 paths skipped" in text
    assert "no field p" in text
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")


# What is wrong with a run

WRONG = {
    "not finished": (lambda path: channel(path, end=4.0), r"not finished: its last time is 1, but its endTime is 4"),
    "not run": (lambda path: channel(path, times=(), end=1.0), r"not finished: its last time is 0"),
    "nothing written": (lambda path: channel(path, times=(), end=0.0), r"no time after its start at 0"),
    "collated": (lambda path: _collate(channel(path)), r"its results are collated files"),
    "field missing": (lambda path: channel(path, fields=("U",)), r"time 1 has no field p"),
    "other dimension": (lambda path: channel(path, (3, 3, 3), plane=False), r"3 dimensions, the others have 2"),
    "pressure in Pa": (lambda path: channel(path, pressure_units=(1, -1, -2, 0, 0, 0, 0)), r"p is in Pa"),
    "dimensionless": (
        lambda path: channel(path, pressure_units=(0,) * 7),
        r"p has the units none \(dimensionless\), that of the others m\^2 s\^-2",
    ),
    "millimetres": (lambda path: channel(path, scale=1000.0), r"in other units of length"),
    "other patches": (
        lambda path: channel(path, patches={"top": "lid"}),
        r"its patches are bottom, left, lid, right, those of the others are bottom, left, right, top",
    ),
    "no patches": (lambda path: _without_patches(channel(path)), r"no patches"),
    "no mesh": (lambda path: (channel(path) / "constant/polyMesh/points").unlink(), r"polyMesh/points"),
    "truncated field": (lambda path: _truncate(channel(path) / "1" / "U"), r"1/U"),
    "not a number": (lambda path: _spoil(channel(path) / "1" / "p"), r"p at time 1 is not finite at \d+ points"),
    "no viscosity": (lambda path: (channel(path) / "constant/transportProperties").unlink(), r"gives no viscosity nu"),
}
"""By what is wrong with a run, how to make it and what is said about it."""


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-300])


def _collate(run: Path) -> None:
    (run / "processors2").mkdir()
    (run / "1").rename(run / "processors2" / "1")
    (run / "0.5").rename(run / "processors2" / "0.5")


def _spoil(path: Path) -> None:
    text = path.read_text()
    start = text.index("(", text.index("internalField")) + 1
    end = start + len(text[start:]) - len(text[start:].lstrip())
    number = text[end:].split()[0]
    path.write_text(text[:end] + "nan" + text[end + len(number) :])


def _without_patches(run: Path) -> None:
    """All sides in one patch without a name that fields would know: the two of a plane case only."""
    boundary = run / "constant" / "polyMesh" / "boundary"
    lines = boundary.read_text().splitlines()
    rows = [line for line in lines if "type" in line and "startFace" in line]
    count = sum(int(re.search(r"nFaces (\d+)", row)[1]) for row in rows)  # pyright: ignore[reportOptionalSubscript]
    start = re.search(r"startFace (\d+)", rows[0])[1]  # pyright: ignore[reportOptionalSubscript]
    one = f"all {{ type empty; nFaces {count}; startFace {start}; }}"
    boundary.write_text("\n".join([lines[0], "1", "(", one, ")", ""]))


@pytest.fixture(scope="module")
def among_others(tmp_path_factory) -> tuple[Collection, Path]:
    """Four sound runs, and one of everything that is wrong."""
    folder = tmp_path_factory.mktemp("wrong")
    family(folder / "runs", len(WRONG) + 1)
    for what, (make, _) in WRONG.items():
        make(folder / "runs" / what.replace(" ", "_"))
    with pytest.MonkeyPatch.context() as context:
        context.setattr(collecting, "draw_all", no_picture)
        return collect(folder / "runs", folder / "set"), folder / "set"


@pytest.mark.parametrize("what", WRONG)
def test_a_run_that_cannot_be_used_is_named_in_one_line(among_others, what):
    made, out = among_others
    said = made.failed[what.replace(" ", "_")]
    assert re.search(WRONG[what][1], said), said
    assert "\n" not in said
    assert storage.read_manifest(out).failed[what.replace(" ", "_")]["error"] == said


def test_runs_that_cannot_be_used_stop_no_other(among_others):
    made, out = among_others
    assert set(made.failed) == {what.replace(" ", "_") for what in WRONG}
    assert {case.name for case in storage.read(out)} == set(made.collected)
    assert len(made.collected) == len(WRONG) + 1
    assert not {path.name for path in out.iterdir()} & set(made.failed)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["not finished", "field missing", "pressure in Pa"])
def test_where_nothing_can_be_collected_nothing_is_written(tmp_path, out, what):
    make, message = WRONG[what]
    make(tmp_path / "runs" / "wrong")
    with pytest.raises(NothingCollectedError, match=message):
        collect(tmp_path / "runs", out)
    assert not out.exists()


@pytest.mark.slow
def test_what_fails_only_when_it_is_read_leaves_no_dataset_either(tmp_path, out):
    channel(tmp_path / "runs" / "wrong")
    _truncate(tmp_path / "runs" / "wrong" / "1" / "U")
    with pytest.raises(NothingCollectedError, match="wrong"):
        collect(tmp_path / "runs", out)
    assert not out.exists()


@pytest.mark.slow
def test_a_run_that_is_not_finished_can_be_taken_as_it_is(tmp_path, out):
    family(tmp_path / "runs", 3, end=4.0)
    assert len(collect(tmp_path / "runs", out, unfinished=True).collected) == 3
    assert len(collect(tmp_path / "runs", tmp_path / "other", time="1").collected) == 3


@pytest.mark.slow
def test_a_steady_solver_that_converged_before_its_end_is_finished(tmp_path, out):
    run = channel(tmp_path / "runs" / "run", end=2000.0)
    with pytest.raises(NothingCollectedError, match="not finished"):
        collect(tmp_path / "runs", out, time="steady")
    (run / "log.simpleFoam").write_text("SIMPLE solution converged in 113 iterations\n\nEnd\n")
    assert collect(tmp_path / "runs", out, time="steady").collected == ("run",)


def test_a_run_of_a_steady_solver_is_no_moment(tmp_path, out):
    run = channel(tmp_path / "runs" / "run")
    control = run / "system" / "controlDict"
    control.write_text(control.read_text().replace("icoFoam", "simpleFoam"))
    with pytest.raises(NothingCollectedError, match="whose times are iterations; collect it with --time steady"):
        collect(tmp_path / "runs", out)


@pytest.mark.slow
def test_what_the_equation_does_not_know_is_noted(runs, out):
    write_dictionary(runs / "run_0" / "constant" / "turbulenceProperties", {"simulationType": "RAS"})
    made = collect(runs, out)
    assert "RAS" in made.report["cases"]["run_0"]["notes"][0]
    assert "notes" not in made.report["cases"]["run_1"]


@pytest.mark.slow
def test_several_processes_collect_the_same(runs, out, tmp_path):
    collect(runs, out)
    assert len(collect(runs, tmp_path / "other", workers=2).collected) == 3
    one, other = (storage.read_manifest(folder) for folder in (out, tmp_path / "other"))
    assert {name: entry.sha256 for name, entry in one.cases.items()} == {
        name: entry.sha256 for name, entry in other.cases.items()
    }
    assert one.splits == other.splits


def test_a_time_that_a_run_does_not_have_is_named(runs, out):
    with pytest.raises(NothingCollectedError, match=r"no time 0\.75; its times are 0, 0\.5, 1"):
        collect(runs, out, time="0.75")


@pytest.mark.slow
def test_different_patches_and_sizes_are_allowed_when_asked_for(runs, out):
    channel(runs / "lid", patches={"top": "lid"}, viscosity=0.2)
    channel(runs / "large", scale=1000.0, viscosity=30.0)
    assert not collect(runs, out, mixed=True).failed
    assert storage.read_manifest(out).settings["patches"] is None


@pytest.mark.slow
def test_fields_of_other_names_are_read_as_told(tmp_path, out):
    for run in family(tmp_path / "runs", 3).iterdir():
        for time in ("0", "0.5", "1"):
            path = run / time / "p"
            path.write_text(path.read_text().replace("object p", "object p_rgh"))
            path.rename(run / time / "p_rgh")
    with pytest.raises(NothingCollectedError, match=r"neither U and p nor T, but U, p_rgh"):
        collect(tmp_path / "runs", out)
    collect(tmp_path / "runs", out, fields=["u=U", "p=p_rgh"])
    assert content_of(storage.read_manifest(out)).network == "flow"


def test_a_path_that_is_no_run_alone_says_why(tmp_path, out):
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingCollectedError, match=r"no OpenFOAM case \(no system/controlDict\)"):
        collect_runs([tmp_path / "empty"], out)
    with pytest.raises(NothingCollectedError, match="no such file"):
        collect_runs([tmp_path / "nowhere"], out)
    assert not out.exists()


# Again, later, elsewhere


@pytest.mark.slow
def test_the_same_command_again_reads_nothing_and_changes_nothing(runs, out, monkeypatch):
    collect(runs, out)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in (".lock",)}
    monkeypatch.setattr(collecting, "_collected", lambda *_, **__: pytest.fail("nothing is left to do"))
    again = collect(runs, out)
    assert (again.collected, len(again.kept)) == ((), 3)
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.name not in (".lock",)}
    assert {name for name in after if after[name] != before.get(name)} <= {"report.png"}


@pytest.mark.slow
def test_runs_are_added_and_the_others_stay_in_their_splits(runs, out):
    collect(runs, out)
    before = storage.read_manifest(out)
    channel(runs / "run_9", viscosity=0.5)
    made = collect(runs, out)
    assert made.collected == ("run_9",)
    after = storage.read_manifest(out)
    assert all(set(before.splits[split]) <= set(after.splits[split]) for split in before.splits)
    assert after.cases["run_0"].sha256 == before.cases["run_0"].sha256
    assert len(storage.read(out)) == 4


@pytest.mark.slow
def test_a_run_that_has_changed_is_read_again(runs, out):
    collect(runs, out)
    path = runs / "run_2" / "1" / "p"
    path.write_text(path.read_text() + "\n// changed\n")
    os.utime(path, ns=(1, 1))
    made = collect(runs, out)
    assert made.collected == ("run_2",)
    assert len(storage.read(out)) == 3


@pytest.mark.slow
def test_a_run_of_the_same_name_from_elsewhere_gets_a_name_of_its_own(runs, out, tmp_path):
    collect(runs, out)
    channel(tmp_path / "more" / "run_0", viscosity=0.3)
    assert collect(tmp_path / "more", out).collected == ("run_0_2",)


@pytest.mark.slow
def test_runs_of_the_same_name_in_one_command_are_told_apart_by_their_folders(tmp_path, out):
    paths = [channel(tmp_path / "a" / "run"), channel(tmp_path / "b" / "run", viscosity=0.1)]
    assert sorted(collect_runs(paths, out, workers=0).collected) == ["a_run", "b_run"]


class Killed(BaseException):
    """What nobody catches."""


@pytest.mark.parametrize("after", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_what_was_complete_when_the_process_was_killed_is_not_lost(runs, out, monkeypatch, after):
    stored, kept = [], storage.store

    def store(folder, name, content, facts):
        if len(stored) == after:
            raise Killed
        stored.append(name)
        return kept(folder, name, content, facts)

    with monkeypatch.context() as context:
        context.setattr(storage, "store", store)
        with pytest.raises(Killed):
            collect(runs, out)
    made = collect(runs, out)
    assert set(made.collected) | set(made.kept) == {"run_0", "run_1", "run_2"}
    assert len(made.kept) == after
    assert len(storage.read(out)) == 3


def test_a_full_disk_is_said_and_leaves_whole_cases_only(runs, out, monkeypatch):
    collect_runs([runs / "run_0", runs / "run_1"], out, workers=0)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            collect(runs, out)
    assert {case.name for case in storage.read(out)} == {"run_0", "run_1"}
    assert not list(out.glob(".*part*"))
    assert len(collect(runs, out).kept) == 2


@pytest.mark.slow
def test_a_dataset_collected_otherwise_is_not_added_to(runs, out):
    collect(runs, out)
    with pytest.raises(storage.DatasetError, match="was collected with --time latest"):
        collect(runs, out, time="steady")
    with pytest.raises(ValueError, match="is one of the runs"):
        collect(runs, runs / "run_0")
    manifest = storage.read_manifest(out)
    storage.write_manifest(out, replace(manifest, dataset="flow"))
    with pytest.raises(storage.DatasetError, match="holds the dataset 'flow'"):
        collect(runs, out)


@pytest.mark.slow
def test_near_twins_share_a_split(tmp_path, out):
    family(tmp_path / "runs", 8)
    for place in range(4):
        channel(tmp_path / "runs" / f"twin_{place}", viscosity=0.01 * 1.5**place * 1.02)
    made = collect(tmp_path / "runs", out, shares=Shares(0.2, 0.2))
    of_run = {name: split for split, names in made.report["splits"].items() for name in names}
    assert all(of_run[f"twin_{place}"] == of_run[f"run_{place}"] for place in range(4))
    assert made.report["splitting"]["nearest"] > 1
