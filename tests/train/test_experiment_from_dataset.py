"""What follows from a dataset: network, scales and settings, and weights to begin with."""

import logging
from dataclasses import replace

import pytest
import torch

from pennpde.case.units import Scale, Units
from pennpde.data import storage
from pennpde.penn.predictor import seen_by
from pennpde.train import Start, for_dataset, run
from pennpde.train.experiment import MINUTES
from pennpde.train.steps import errors_of_start, standard_deviations
from problems import heated_plate, plate_in_units
from small_ducts import SPLITS, duct, store_ducts
from trainings import Constant, constant_case


@pytest.fixture(scope="module")
def ducts(tmp_path_factory):
    return store_ducts(tmp_path_factory.mktemp("ducts") / "data", 1e-3, 0.2)


def store_plates(folder, length=1.0, speed=1.0, kelvin=False, end=1.0):
    warm = Units(1.0, 1.0, {"T": Scale(1 / 50, -293 / 50)} if kelvin else {})
    cases = [heated_plate(diffusivity=0.1 * k, cells=(3, 3), targets=True) for k in range(1, 4)]
    cases = [warm.dimensionless(plate_in_units(case, length, speed)) for case in cases]
    times = [0.25 * end, 0.5 * end, 0.75 * end, end]
    storage.write(folder, cases, dataset="advection-diffusion", times=times)
    return folder


def test_flows_at_one_time_are_for_the_papers_network(ducts):
    experiment = for_dataset(ducts)
    assert experiment.network == "ducts"
    assert dict(experiment.arguments) == dict(Start.of("ducts").config.arguments)
    assert experiment.training.minutes == MINUTES
    assert experiment.training.scales is None, "they follow from the training cases"


def test_who_begins_with_random_weights_hears_of_the_general_network(ducts, caplog):
    with caplog.at_level(logging.INFO, "pennpde"):
        for_dataset(ducts, start=Start.of("flow"))
        assert "--from flow" not in caplog.text
        for_dataset(ducts)
        assert "--from flow needs fewer runs" in caplog.text


def test_a_dataset_that_does_not_state_its_content_is_known_by_its_unknowns(tmp_path):
    assert for_dataset(store_ducts(tmp_path / "data", kind="runs")).network == "ducts"


def test_a_given_budget_and_other_settings_are_always_taken(ducts):
    training = for_dataset(ducts, changes={"steps": 7, "learning_rate": 0.5, "seed": 3}).training
    assert (training.steps, training.minutes, training.learning_rate, training.seed) == (7, None, 0.5, 3)


def test_training_from_a_network_is_gentler_and_keeps_its_architecture(ducts):
    fresh, tuned = for_dataset(ducts), for_dataset(ducts, start=Start.of("ducts"))
    assert tuned.training.learning_rate < fresh.training.learning_rate
    assert tuned.arguments == fresh.arguments


def test_targets_at_another_time_are_what_the_network_says_it_predicts(ducts, tmp_path):
    cases = [duct(number) for number in range(3)]
    storage.write(tmp_path / "late", cases, dataset="flow", times=[10.0])
    assert for_dataset(tmp_path / "late").arguments["moment"] == 10.0
    assert for_dataset(tmp_path / "late", start=Start.of("ducts")).build().output_times == (10.0,)
    assert "moment" not in for_dataset(ducts).arguments, "these are at 4 L/U, in SI units"


def test_a_network_of_steady_states_says_so(tmp_path):
    cases = [replace(duct(k), targets={f"steady_{n}": v for n, v in duct(k).targets.items()}) for k in range(3)]
    storage.write(tmp_path / "data", cases, dataset="flow")
    experiment = for_dataset(tmp_path / "data")
    assert experiment.arguments["moment"] == "steady"
    assert experiment.build().output_times == (float("inf"),)


def test_times_that_differ_from_case_to_case_are_told(tmp_path, caplog):
    for number, time in enumerate((3.0, 5.0)):
        case = duct(number)
        if number == 0:
            storage.write(tmp_path / "data", [case], dataset="flow", times=[time])
        else:
            storage.append(tmp_path / "data", [case], times=[time])
    with caplog.at_level(logging.WARNING, logger="pennpde"):
        assert for_dataset(tmp_path / "data").arguments["moment"] == 4.0
    assert "3 to 5 in units of L/U" in caplog.text


def test_a_temperature_takes_length_speed_and_range_of_the_data_for_one(tmp_path):
    plain = for_dataset(store_plates(tmp_path / "plain")).arguments
    assert "reference_length" not in plain, "the unit square is one already"
    scaled = for_dataset(store_plates(tmp_path / "si", 0.02, 0.5, kelvin=True, end=0.04)).arguments
    assert scaled["reference_length"] == pytest.approx(0.02)
    assert scaled["reference_speed"] == pytest.approx(0.5)
    assert scaled["reference_temperature"] == pytest.approx(
        0.7 * 50, rel=1e-6
    )  # targets are stored in single precision


def test_a_dataset_without_training_cases_or_of_an_unknown_kind_is_refused_in_words(tmp_path):
    empty = store_ducts(tmp_path / "empty", test=["duct_0", "duct_1"])
    with pytest.raises(ValueError, match=r"no training cases: .* Its splits are test \(2 cases\)"):
        for_dataset(empty)
    storage.write(tmp_path / "odd", [replace(duct(0), parameters={})], dataset="weather")
    with pytest.raises(ValueError, match=r"of the kind 'weather', for which no network is known.*flow.*--from"):
        for_dataset(tmp_path / "odd")


def test_weights_are_taken_over_and_frozen_ones_stay(ducts):
    from pennpde.train.experiment import freeze

    start = Start.of("ducts")
    model = for_dataset(ducts, start=start).build()
    start.fill(model)
    assert all(
        torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), start.model.parameters(), strict=True)
    )
    frozen = freeze(model, ["encoders", "equation.geometry.*"])
    assert all(name.startswith(("encoders.", "equation.geometry.")) for name in frozen)
    assert [n for n, p in model.named_parameters() if not p.requires_grad] == sorted(
        frozen, key=list(dict(model.named_parameters())).index
    )
    with pytest.raises(ValueError, match=r"--freeze decoder matches no parameter; the network has .*encoders"):
        freeze(model, ["decoder"])
    with pytest.raises(ValueError, match="leaves nothing to train"):
        freeze(model, ["*"])


def test_the_layers_that_the_help_freezes_are_there():
    import shlex

    from pennpde.cli.train import EXAMPLES
    from pennpde.train.experiment import freeze

    examples = [words for each in EXAMPLES if "--freeze" in (words := shlex.split(each))]
    assert examples
    for words in examples:
        given = [words[place + 1] for place, word in enumerate(words) if word == "--freeze"]
        assert freeze(Start.of(words[words.index("--from") + 1]).model, given)


def test_a_dataset_of_another_equation_is_refused(ducts, tmp_path):
    start = Start.of("advection-diffusion")
    with pytest.raises(ValueError, match="solves for T, but the unknowns of the case are p, u"):
        run(for_dataset(ducts, start=start), ducts, tmp_path / "out", start=start, device="cpu")


def test_splits_of_the_small_dataset_do_not_overlap():
    assert len({name for names in SPLITS.values() for name in names}) == 6


def test_in_fine_tuning_each_unknown_counts_by_its_own_error_at_the_start():
    torch.manual_seed(0)
    model = Start.of("ducts").model
    cases = [seen_by(model, duct(number)).case for number in range(3)]
    scales = errors_of_start(model, cases)
    with torch.no_grad():
        fields = [model(case) for case in cases]
    for name in ("u", "p"):
        squares = [
            (f[name] - case.targets[name]).double().square().mean() for f, case in zip(fields, cases, strict=True)
        ]
        of_start = float(torch.stack(squares).mean()) ** 0.5
        assert scales[name] == pytest.approx(min(of_start, standard_deviations(cases)[name]))


def test_a_start_of_no_use_does_not_blow_the_scales_up():
    flat = constant_case(1.0)
    number = flat.targets["T"].numel()
    case = replace(flat, targets={"T": torch.linspace(0.0, 1.0, number).reshape(flat.targets["T"].shape)})
    useless, perfect = Constant(100.0), Constant(0.5)
    assert errors_of_start(useless, [case]) == standard_deviations([case])
    assert errors_of_start(perfect, [case])["T"] <= standard_deviations([case])["T"]


def test_a_resumed_fine_tuning_keeps_its_scales(ducts, tmp_path):
    start = Start.of("ducts")
    short = for_dataset(ducts, start=start, changes={"steps": 1})
    first = run(short, ducts, tmp_path / "out", start=start, device="cpu")
    longer = for_dataset(ducts, start=start, changes={"steps": 2})
    second = run(longer, ducts, tmp_path / "out", start=start, resume=True, device="cpu")
    assert second.result.scales == first.result.scales != standard_deviations(storage.read(ducts, "train"))
