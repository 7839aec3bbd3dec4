"""Experiments: rows of TOML files, and the command that trains them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from commands import store
from evaluated_flows import flow_case
from paths import ROOT
from pennlab.paper.tables import paper_numbers
from pennpde import checkpoints, registry
from pennpde import train as experiments
from pennpde.case import Case
from pennpde.cli import application
from pennpde.data import storage
from pennpde.data.vtkhdf import CaseFile
from pennpde.flow import scheme
from pennpde.train import Settings
from pennpde.train.cases import learned
from problems import heated_plate, polynomial
from small_ducts import NAMES, duct, flow_in_units
from trainings import assert_same_bits, weights

FILES = sorted((ROOT / "lab" / "experiments").glob("*.toml"))
ROWS = [(path, row) for path in FILES for row in experiments.read(path)]

FILE = """
[common]
dataset = "advection-diffusion"
network = "advection-diffusion"
arguments = { width = 4, iterations = 2, hidden = 8 }
training = { learning_rate = 1e-2, batch_size = 2, epochs = 4, test_every = 1 }

[rows.penn]
title = "Small"

[rows.long]
arguments = { iterations = 3 }
training = { epochs = 6 }
"""


@pytest.fixture
def toml(tmp_path):
    def write(text=FILE):
        path = tmp_path / "experiment.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def heat(tmp_path_factory) -> Path:
    """A dataset of advection and diffusion on disk, small enough to train on in a second."""
    folder = tmp_path_factory.mktemp("heat")
    cases = [heated_plate(diffusivity=0.1 * k, cells=(4, 4), targets=True) for k in range(1, 8)]
    names = [case.name for case in cases]
    splits = {"train": names[:4], "validation": names[4:5], "test": names[5:]}
    storage.write(folder, cases, splits, "advection-diffusion")
    return folder


def penn(*arguments):
    """The command in this process: starting torch again each time would take most of the time."""
    finished = CliRunner().invoke(application, [str(argument) for argument in arguments])
    assert finished.exception is None or isinstance(finished.exception, SystemExit), finished.exception
    return finished


def test_a_row_is_the_common_part_with_its_own_changes(toml):
    rows = experiments.read(toml())
    assert list(rows) == ["penn", "long"]
    assert rows["penn"].title == "Small"
    assert rows["long"].arguments == {"width": 4, "iterations": 3, "hidden": 8}
    assert rows["long"].training == Settings(learning_rate=1e-2, batch_size=2, epochs=6, test_every=1)
    assert rows["penn"].training.epochs == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILE + "[colours]\n", r"sets colours; it knows common, rows"),
        (FILE.replace("dataset", "datasat"), r"\[common\] sets datasat; it knows arguments, dataset, loss"),
        (FILE.replace("epochs = 6", "epohcs = 6"), r"\[rows\.long\] training sets epohcs; it knows .*epochs"),
        (FILE.replace("learning_rate = 1e-2", "learning_rate = -1"), r"training: learning_rate is -1"),
        (FILE.replace("learning_rate = 1e-2", 'learning_rate = "fast"'), r"training: learning_rate is 'fast'"),
        (
            FILE.replace("[rows.long]", "[rows.long]\nloss = 'absolute'"),
            r"\[rows.long\]: There is no loss 'absolute'; there are 'sq",
        ),
        (FILE.replace("[rows.long]", "[rows.long"), "is no TOML"),
        (FILE.partition("[rows")[0], "has no rows"),
        ("[rows.penn]\nnetwork = 'flow'\n", r"\[rows\.penn\] lacks dataset"),
    ],
)
def test_what_a_file_does_not_know_is_refused_with_what_it_knows(toml, text, words):
    with pytest.raises(ValueError, match=words):
        experiments.read(toml(text))


def test_a_row_that_is_not_there_is_refused_with_those_that_are(toml):
    with pytest.raises(KeyError, match=r"no row 'pen'; it has penn, long"):
        experiments.read_row(toml(), "pen")


# A training step of every row of the baselines is taken in paper/test_baseline_training.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "row"),
    [given for given in ROWS if given[0].stem != "flow_baselines"],
    ids=lambda value: getattr(value, "stem", value),
)
def test_every_row_builds_and_predicts_and_its_loss_has_a_gradient(path, row):
    experiment = experiments.read_row(path, row)
    case: Case = {
        "flow": _small_flow,
        "advection-diffusion": lambda: heated_plate(cells=(4, 4), targets=True),
        "gradient": lambda: polynomial(cells=(3, 3, 3)),
        "plane-flow": lambda: learned(experiment.build(), CaseFile(duct(1), (0.1,)))[0],
    }[experiment.dataset]()
    model = experiment.build()
    fields = model(case)
    loss = sum((fields[name] - target).square().mean() for name, target in case.targets.items())
    assert torch.isfinite(loss)
    loss.backward()
    assert any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())


@pytest.mark.parametrize(("path", "row"), ROWS, ids=lambda value: getattr(value, "stem", value))
def test_every_row_names_numbers_that_the_paper_has(path, row):
    experiment = experiments.read_row(path, row)
    assert experiment.title
    if experiment.paper:
        assert experiment.paper in paper_numbers()[experiment.dataset]
    else:
        assert experiment.note.startswith("Not in the paper")


@pytest.fixture(scope="module")
def plane_flows(tmp_path_factory) -> Path:
    """Five runs of ducts at two moments, in units of their own."""
    folder = tmp_path_factory.mktemp("plane")
    cases = [
        replace(case, targets={name: torch.stack([each, 0.9 * each], dim=-1) for name, each in case.targets.items()})
        for case in (flow_in_units(duct(number, (4, 2)), 0.1, 2.0) for number in range(5))
    ]
    splits = {"train": NAMES[:3], "validation": NAMES[3:5]}
    storage.write(folder, cases, splits, "plane-flow", times=[0.1 * 0.1 / 2.0, 0.3 * 0.1 / 2.0])
    return folder


def _general(changes=None):
    few = {"steps": 5, "test_every": 0.5, "check_every": 3, "judges": 2, "warm_up": 2}
    return experiments.read_row(ROOT / "tests" / "support" / "plane_flow.toml", "flow", few | (changes or {}))


@pytest.mark.slow
def test_the_general_flow_network_is_trained_by_its_row_and_continued_to_the_same_bits(plane_flows, tmp_path):
    whole = experiments.run(_general(), plane_flows, tmp_path / "whole", device="cpu", threads=1)
    assert whole.record["dataset"] | {"hash": ""} == {"kind": "plane-flow", "hash": "", "train": 6, "validation": 4}
    assert whole.record["steps"] == 5
    assert whole.result.best > 0
    ended = []
    while not ended or ended[-1] == "paused":
        parts = experiments.run(
            _general(), plane_flows, tmp_path / "parts", device="cpu", threads=1, resume=True, pause_after=0.0
        )
        ended.append(parts.record["ended"])
    assert len(ended) > 1
    assert_same_bits(weights(parts.result.model), weights(whole.result.model))
    assert parts.result.best == whole.result.best
    untrained = weights(_general().build())
    assert any(not torch.equal(untrained[name], each) for name, each in weights(whole.result.model).items())
    ranges = checkpoints.config_of(checkpoints.load(tmp_path / "whole")).training_range
    assert {"space", "Reynolds number", "inlet angle in degrees", "inlet peak over mean"} <= ranges.keys()
    assert ranges["parameter time"] == pytest.approx([0.1, 0.3], rel=1e-5)
    assert ranges["space"] == [2.0, 2.0]


@pytest.mark.slow
def test_coarse_solutions_are_made_once_however_many_steps_follow(plane_flows, tmp_path, monkeypatch):
    made = []
    begin = scheme.FlowScheme._assembled

    def assembled(network, case, splits):
        made.append((case.name, splits))
        return begin(network, case, splits)

    monkeypatch.setattr(scheme.FlowScheme, "_assembled", assembled)
    numbers = []
    for steps in (2, 8):
        changes = {"judges": None, "steps": steps}
        experiments.run(_general(changes), plane_flows, tmp_path / str(steps), device="cpu", threads=1)
        numbers.append(len(made))
        made.clear()
    assert numbers[0] == numbers[1]


def _small_flow() -> Case:
    case = flow_case("a_0.10")
    distance = torch.minimum(case.mesh.points[:, 1], 1 - case.mesh.points[:, 1])
    return Case(
        case.mesh,
        initial={"u": (1.0, 0.0), "p": 0.0},
        dirichlet=case.dirichlet,
        neumann=case.neumann,
        parameters={"viscosity": 1e-3},
        features={"wall_distance": distance},
        targets=case.targets,
    )


def test_the_flow_network_has_the_size_that_was_promised():
    experiment = experiments.read_row(FILES[1].parent / "flow.toml", "penn")
    assert sum(parameter.numel() for parameter in experiment.build().parameters()) <= 15_000


@pytest.mark.slow
def test_a_run_leaves_a_network_with_its_history(toml, heat, tmp_path):
    row = experiments.read_row(toml(), "penn")
    trained = experiments.run(row, heat, tmp_path / "run", device="cpu", changes={"seed": 2})
    model = checkpoints.load(tmp_path / "run")
    config = checkpoints.config_of(model)
    assert (config.row, config.title, config.seed, config.network) == ("penn", "Small", 2, "advection-diffusion")
    assert config.dataset == {
        "kind": "advection-diffusion",
        "hash": experiments.dataset_hash(heat),
        "train": 4,
        "validation": 1,
    }
    assert config.metrics["validation"] == dict(trained.result.best_errors)
    assert config.training["finished"]
    assert config.scales == dict(trained.result.scales)
    assert config.training_range["parameter diffusivity"] == pytest.approx([0.1, 0.4])
    case = storage.read(heat, "test")[0]
    assert torch.equal(model(case)["T"], trained.result.model(case)["T"])
    record = json.loads((tmp_path / "run" / "training.json").read_text())
    assert (record["kind"], record["steps"], record["ended"]) == ("training", 8, "budget")


@pytest.mark.slow
def test_the_best_network_so_far_is_on_disk_while_training(toml, heat, tmp_path, monkeypatch):
    seen = []
    save = checkpoints.save
    monkeypatch.setattr(checkpoints, "save", lambda *given: seen.append(given[2]) or save(*given))
    experiments.run(experiments.read_row(toml(), "penn"), heat, tmp_path / "run", device="cpu")
    assert [config.training["finished"] for config in seen[-2:]] == [False, True]


def test_two_seeds_start_and_end_apart_and_one_seed_together(toml, heat):
    row = experiments.read_row(toml(), "penn")
    first, again = (torch.cat([p.flatten() for p in row.build().parameters()]) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.slow
def test_a_second_dataset_adds_its_training_cases_and_is_recorded(toml, heat, tmp_path):
    row = experiments.read_row(toml(), "penn")
    more = tmp_path / "more"
    cases = [heated_plate(diffusivity=0.1 * k, cells=(3, 3), targets=True) for k in range(1, 4)]
    storage.write(more, cases, dataset="advection-diffusion")
    trained = experiments.run(row, heat, tmp_path / "run", also=more, device="cpu")
    assert trained.record["dataset"] == {
        "kind": "advection-diffusion",
        "hash": experiments.dataset_hash(heat),
        "also": {"hash": experiments.dataset_hash(more), "train": 3},
        "train": 7,
        "validation": 1,
    }


def test_a_second_dataset_may_hold_neither_test_cases_nor_the_first_once_more(toml, heat, tmp_path):
    row = experiments.read_row(toml(), "penn")
    tested = storage.read(heat, "test")
    storage.write(tmp_path / "leak", tested, dataset="advection-diffusion")
    with pytest.raises(ValueError, match="has 2 cases of the test split"):
        experiments.run(row, heat, tmp_path / "run", also=tmp_path / "leak", device="cpu")
    with pytest.raises(ValueError, match="once more"):
        experiments.run(row, heat, tmp_path / "run", also=heat, device="cpu")


def test_a_dataset_of_another_kind_is_refused(toml, heat, tmp_path):
    row = experiments.read_row(toml(FILE.replace('dataset = "advection-diffusion"', 'dataset = "flow"')), "penn")
    with pytest.raises(ValueError, match=r"trains on a dataset 'flow', but .* is one of 'advection-diffusion'"):
        experiments.run(row, heat, tmp_path / "run")


@pytest.mark.slow
def test_train_evaluate_and_report_work_from_the_shell(toml, heat, tmp_path):
    run = tmp_path / "run"
    command = ("train", toml(), "--row", "penn", "--data", heat, "--out", run, "--device", "cpu")
    paused = penn(*command, "--pause-after", "0", "--json")
    assert paused.exit_code == 0, paused.stderr
    assert json.loads(paused.stdout)["ended"] == "paused"
    again = penn(*command)
    assert again.exit_code == 1
    assert "--resume" in again.stderr
    finished = penn(*command, "--resume")
    assert finished.exit_code == 0, finished.stderr
    assert "The budget is used up: 8 steps" in finished.stdout
    assert "continued at step" in finished.stderr
    assert "validation" in finished.stderr

    record = tmp_path / "record.json"
    for options in ((), ("--transformed", "--precision", "float64")):
        measured = penn("evaluate", run, heat, "--json", *options)
        assert measured.exit_code == 0, measured.stderr
        record.write_text(measured.stdout)
        plain = json.loads(measured.stdout)
        assert plain["cases"] == 2
        assert plain["pooled"]["dirichlet"]["T"]["mse"] == 0.0
        assert plain["transformed"] == bool(options)
    reported = penn("report", record, "--out", tmp_path / "results.md")
    assert reported.exit_code == 0, reported.stderr
    assert "| Small | yes |" in (tmp_path / "results.md").read_text()


@pytest.mark.slow  # paper/test_tables.py draws one such picture in the default run
def test_evaluate_draws_the_best_the_middle_and_the_worst_case(heat, tmp_path):
    network = store(tmp_path / "network", "advection-diffusion")
    finished = penn("evaluate", network, heat, "--pictures", tmp_path / "pictures")
    assert finished.exit_code == 0, finished.stderr
    assert len(list((tmp_path / "pictures").glob("*.png"))) >= 2


def test_every_network_of_the_registry_is_there():
    for name in registry.names():
        assert callable(registry.builder(name))


def test_a_row_with_another_network_does_not_inherit_arguments(tmp_path):
    path = tmp_path / "rows.toml"
    path.write_text(
        '[common]\ndataset = "flow"\nnetwork = "ducts"\narguments = { pressure_iterations = 3 }\n'
        '[rows.ours]\n[rows.theirs]\nnetwork = "released-flow"\narguments = { width = 8 }\n'
    )
    rows = experiments.read(path)
    assert rows["ours"].arguments == {"pressure_iterations": 3}
    assert rows["theirs"].arguments == {"width": 8}


@pytest.mark.parametrize("file", sorted((ROOT / "lab" / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_every_row_of_the_repository_can_be_built(file):
    for experiment in experiments.read(file).values():
        assert sum(parameter.numel() for parameter in experiment.build().parameters()) > 0


def test_all_flow_rows_take_the_same_number_of_steps_or_see_as_many_cases():
    seen = {
        name: row.training.steps * row.training.batch_size
        for name, row in experiments.read(ROOT / "lab" / "experiments" / "flow.toml").items()
        if name != "shipped"
    }
    assert set(seen.values()) == {160_000}


@pytest.mark.slow
def test_weights_of_the_authors_are_evaluated_and_cases_with_relatives_left_out(heat, reference):
    weights = reference / "weights" / "advection_diffusion_penn.npz"
    data = ROOT / "data" / "advection_diffusion_off_lattice"
    finished = penn("evaluate", weights, data, "--limit", 2, "--json")
    record = json.loads(finished.stdout)
    assert record["row"] == "authors"
    assert record["model"] == "advection_diffusion_penn.npz"
    assert record["test_set"] == "parameters off the lattice"
    assert record["pooled"]["domain"]["T"]["mse"] < 1e-2  # these two have the smallest velocity; the start has 0.2
    finished = penn("evaluate", weights, ROOT / "data" / "advection_diffusion", "--unrelated")
    assert finished.exit_code != 0
    assert "leaves no case" in finished.output
