"""How wrong a prediction probably is: grades, where the error is, and the file that all of it comes from."""

import json
import math
from dataclasses import replace

import pytest
import torch

from any_time import AnyTime
from calibrated import calibrate, drawn, made_up
from commands import store
from pennpde import checkpoints
from pennpde.case import Remark
from pennpde.checkpoints import EXPECTED_ERROR, CheckpointError
from pennpde.models.designs import coarse_mesh, flow_case
from pennpde.models.inlet import flow_units
from pennpde.penn import STEADY
from pennpde.penn.equation import Clue
from pennpde.prediction import predict
from pennpde.trust import expected_error
from pennpde.trust.calibration import ALONE, BEYOND, COARSER_SOLUTION, fit
from pennpde.trust.evidence import Evidence
from pennpde.trust.expected_error import Expected, ExpectedError, grade_of, judge, uncalibrated, worst


@pytest.fixture(scope="module")
def case():
    return flow_case(coarse_mesh("a_0.37", cells_per_length=5))


def network(folder, level: float | None):
    store(folder)
    if level is not None:
        calibrate(folder, level)
    return checkpoints.load(folder)


@pytest.mark.parametrize(
    ("expected", "bound", "grade"),
    [
        (0.01, 0.03, "good"),
        (0.05, 0.075, "good"),
        (0.05, 0.08, "fair"),
        (0.10, 0.30, "poor"),
        (0.50, 0.90, "poor"),
        (0.51, 0.52, "refused"),
        (math.inf, math.inf, "refused"),
        (math.nan, math.nan, "refused"),
    ],
)
def test_the_bound_decides_what_is_good_and_the_expected_error_what_is_refused(expected, bound, grade):
    assert ExpectedError(expected, bound).grade == grade


@pytest.mark.parametrize(
    ("u", "p", "grade"),
    [
        (0.02, 0.02, "good"),
        (0.02, 0.15, "fair"),
        (0.02, 0.40, "fair"),
        (0.02, 0.90, "poor"),
        (0.40, 0.02, "poor"),
        (0.90, 0.02, "refused"),
    ],
)
def test_the_first_unknown_decides_and_the_others_lower_the_grade(u, p, grade):
    assert grade_of({"u": ExpectedError(u, 1.5 * u), "p": ExpectedError(p, 1.5 * p)}) == grade


def test_an_expected_error_reads_as_a_sentence():
    assert str(ExpectedError(0.0312, 0.0684)) == "3.1 % (90 % of such cases below 6.8 %)"
    assert str(ExpectedError(0.31, 0.68)) == "31 % (90 % of such cases below 68 %)"
    assert str(ExpectedError(0.0031, 0.0068)) == "0.3 % (90 % of such cases below 0.7 %)"
    assert str(ExpectedError(2.18, 15.45)) == "218 % (no useful bound)"
    assert str(ExpectedError(1076.0, 11754.0)) == "more than 1000 % (no useful bound)"


@pytest.mark.parametrize(("level", "grade"), [(0.02, "good"), (0.15, "fair"), (0.4, "poor"), (0.8, "refused")])
def test_a_calibrated_network_grades_its_predictions(case, tmp_path, level, grade):
    outcome = predict(network(tmp_path, level), case, resolution="own")
    assert outcome.expected.grade == grade
    assert outcome.expected.errors["u"].expected == pytest.approx(level, rel=0.1)
    told = [each for each in outcome.certificate.warnings if each.startswith(f"Graded {grade}")]
    assert bool(told) == (grade in ("poor", "refused"))


def test_a_network_without_calibration_says_that_its_error_is_unknown(case, tmp_path):
    outcome = predict(network(tmp_path, None), case)
    assert outcome.expected.grade == "unknown"
    assert "penn calibrate" in outcome.expected.lines()[0]
    assert outcome.expected.as_dict()["errors"] == {}
    assert not any(name.startswith("expected_error") for name in outcome.mesh.fields)


def test_the_units_of_the_user_do_not_matter(case, tmp_path):
    model = network(tmp_path, 0.02)
    units = flow_units(0.05, 3.0, 7.0)
    in_metres = units.dimensionless(replace(case, targets={}))
    # Dividing by one over the units is multiplying with them.
    back = flow_units(1 / 0.05, 1 / 3.0).dimensionless(replace(case, targets={}))
    first, second, third = (predict(model, each, resolution="own") for each in (case, in_metres, back))
    for other in (second, third):
        assert other.expected.errors["u"].expected == pytest.approx(first.expected.errors["u"].expected, rel=1e-3)
        for name, value in first.evidence[0].numbers.items():
            assert other.evidence[0].numbers[name] == pytest.approx(value, abs=2e-2), name


def test_the_local_error_has_the_mean_square_of_the_expected_one(case, tmp_path):
    outcome = predict(network(tmp_path, 0.02), case, resolution="own")
    volumes = case.mesh.point_volumes
    for name, fields in outcome.fields.items():
        squares = fields.reshape(len(fields), -1).square().sum(dim=1)
        size = float((volumes * squares).sum() / volumes.sum()) ** 0.5
        local = outcome.mesh.fields[f"expected_error_{name}"]
        assert bool((local >= 0).all())
        found = float((volumes * local.square()).sum() / volumes.sum()) ** 0.5
        assert found == pytest.approx(outcome.expected.errors[name].expected * size, rel=1e-3)


def test_of_several_times_the_worst_counts_and_each_is_judged(case):
    model = AnyTime()
    object.__setattr__(model, "checkpoint_calibrations", {"": made_up(0.02)})
    outcome = predict(model, case, times=[0.5, 4.0, STEADY], resolution="own")
    # Only t = 4 is like the calibrated cases: earlier and later are further away.
    early, middle, late = (each.errors["u"].bound for each in outcome.expected_by_time)
    assert middle < early
    assert middle < late
    assert outcome.expected.errors["u"].bound == max(early, middle, late)
    assert outcome.at(1).expected.errors["u"].bound == middle
    assert worst(outcome.expected_by_time).local is outcome.expected_by_time[-1].local


def test_fields_that_are_not_finite_are_refused(case):
    class Broken(AnyTime):
        def solve(self, case, times=None):
            prediction = super().solve(case, times)
            return replace(prediction, fields={name: values * math.nan for name, values in prediction.fields.items()})

    assert predict(Broken(), case, resolution="own").expected.grade == "refused"


class Hesitant(AnyTime):
    """Its second opinion differs in the right half of the domain."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def coarser_solution(self, case, times):
        right = (case.mesh.points[:, 0] > case.mesh.points[:, 0].mean()).double()
        fields = self.solve(case, times).fields
        shape = (-1, *[1] * (fields["u"].ndim - 1))
        return {"u": fields["u"] * (1 + self.by * right.reshape(shape)), "p": fields["p"]}


def evidence_of(model, case, **arguments):
    with uncalibrated(model):
        return predict(model, case, resolution="own", **arguments).evidence


def test_a_second_opinion_is_asked_for_only_where_it_counts(case):
    model = Hesitant(0.1)
    for calibration in (None, made_up(0.02)):
        object.__setattr__(model, "checkpoint_calibrations", {"": calibration} if calibration else {})
        (found,) = predict(model, case, resolution="own").evidence
        assert not any(name.startswith(COARSER_SOLUTION) for name in found.numbers)
    assert len(model.asked) == 2


def test_a_second_opinion_says_how_wrong_and_where(case):
    small, large = (evidence_of(Hesitant(by), case, times=[0.5, 4.0]) for by in (0.01, 0.1))
    for early, late in (small, large):
        # Relative to the field, whatever its size.
        assert early.numbers[COARSER_SOLUTION + "u"] == pytest.approx(late.numbers[COARSER_SOLUTION + "u"])
        assert late.numbers[COARSER_SOLUTION + "p"] == -6.0
        assert late.numbers[COARSER_SOLUTION + "p beyond 2 %"] == pytest.approx(math.log10(0.02))
        apart = late.numbers[COARSER_SOLUTION + "u"]
        assert late.numbers[COARSER_SOLUTION + "u beyond 2 %"] == pytest.approx(max(apart, math.log10(0.02)))
    assert large[0].numbers[COARSER_SOLUTION + "u"] - small[0].numbers[COARSER_SOLUTION + "u"] == pytest.approx(1.0)
    doubt, x = large[1].local["u"], case.mesh.points[:, 0]
    assert float(doubt[x < x.mean()].max()) == 0
    assert float(doubt[x > x.mean()].max()) > 0


def test_a_second_opinion_that_failed_is_the_worst_of_clues_and_draws_no_map(case):
    (found,), (usual,) = evidence_of(Hesitant(math.nan), case), evidence_of(AnyTime(), case)
    assert found.numbers[COARSER_SOLUTION + "u"] == found.numbers[COARSER_SOLUTION + "u beyond 2 %"] == 6.0
    assert not any(name.startswith(COARSER_SOLUTION) for name in usual.numbers)
    assert torch.equal(found.local["u"], usual.local["u"])


def test_where_the_error_is_small_the_training_range_is_a_note(case, tmp_path):
    ranges = {"Reynolds number": (1.0, 2.0)}
    good, poor = (
        predict(network(tmp_path / f"{level}", level), case, ranges, resolution="own") for level in (0.02, 0.4)
    )
    sentence = "Reynolds number is 1000; the network was trained on 1 to 2."
    assert sentence in good.certificate.notes
    assert sentence not in good.certificate.warnings
    assert sentence in poor.certificate.warnings


def test_what_the_network_does_not_know_makes_a_prediction_poor(case, tmp_path):
    told = replace(case, remarks=(Remark("The turbulence model was left out."), Remark("Zipped.", severe=False)))
    outcome = predict(network(tmp_path, 0.02), told, resolution="own")
    assert outcome.expected.errors["u"].grade == "good"
    assert outcome.expected.grade == "poor"
    assert outcome.expected.as_dict()["missing"] == ["The turbulence model was left out."]
    assert any("does not know all that the case says" in each for each in outcome.certificate.warnings)


def test_physics_that_is_left_out_has_no_expected_error(case, tmp_path):
    told = replace(case, remarks=(Remark("The flow is turbulent.", other_physics=True),))
    expected = predict(network(tmp_path, 0.02), told, resolution="own").expected
    assert (expected.errors, expected.local, expected.grade) == ({}, {}, "refused")
    assert expected.as_dict()["ignored"] == ["The flow is turbulent."]
    assert "%" not in "".join(expected.lines()) + expected.in_short
    assert any("terms that were left out" in each for each in expected.warnings)


def test_a_network_that_is_not_calibrated_warns_of_a_steady_state_that_has_not_converged():
    unknown = Expected(unknown_because="the network has not been calibrated", unconverged=True)
    assert unknown.grade == "unknown"
    assert any("has not converged" in each for each in unknown.warnings)


# The file


def test_a_stored_calibration_gives_the_same_estimates(tmp_path):
    store(tmp_path)
    calibrate(tmp_path, 0.1)
    found = expected_error.read(tmp_path, checkpoints.read_config(tmp_path).weights_sha256)
    assert found is not None
    assert found.estimate("u", {"time": 0.83}) == pytest.approx(made_up(0.1).estimate("u", {"time": 0.83}), rel=1e-2)


def test_a_stored_calibration_knows_cases_with_and_without_a_second_opinion(tmp_path):
    store(tmp_path)
    opinion, worse = COARSER_SOLUTION + "u", {"residual": True, "kind": False, "idle": False}
    samples = [
        replace(each, clues={**each.clues, opinion: math.log10(each.errors["u"])}) for each in drawn(8, 10, seed=3)
    ]
    made = fit(samples, worse | {opinion: True})
    weights = checkpoints.read_config(tmp_path).weights_sha256
    expected_error.write(tmp_path, made, {"weights_sha256": weights})
    found = expected_error.read(tmp_path, weights)
    assert found is not None
    assert found.parts.keys() == made.parts.keys() == {"all", "all" + ALONE}
    for clues in ({"residual": 0.2}, {"residual": 0.2, opinion: -1.0}):
        assert found.estimate("u", clues) == pytest.approx(made.estimate("u", clues), rel=1e-2)


def test_a_calibration_belongs_to_the_arguments_of_its_network(tmp_path):
    store(tmp_path)
    config = checkpoints.read_config(tmp_path)
    about = {"weights_sha256": config.weights_sha256, "arguments": dict(config.arguments)}
    expected_error.write(tmp_path, made_up(0.1), about)
    assert expected_error.read(tmp_path, config.weights_sha256, arguments=config.arguments) is not None
    with pytest.raises(CheckpointError, match="belongs to other arguments of the network"):
        expected_error.read(tmp_path, config.weights_sha256, arguments={**config.arguments, "iterations": 3})


def test_a_large_difference_is_one_reason_not_two():
    opinion, large = COARSER_SOLUTION + "u", f"{COARSER_SOLUTION}u{BEYOND}2 %"
    samples = []
    for each in drawn(8, 10, seed=3):
        apart = math.log10(each.errors["u"])
        samples.append(replace(each, clues={**each.clues, opinion: apart, large: max(apart, math.log10(0.02))}))
    worse = {"residual": True, "kind": False, "idle": False, opinion: True, large: True}
    clues = {"residual": 0.0, "kind": 0.0, "idle": 0.0, opinion: 0.5, large: 0.5}
    evidence = Evidence(tuple(Clue(name, value, remedy="a finer mesh") for name, value in clues.items()))
    found = judge(fit(samples, worse), evidence, ["u"])
    assert [each for each in found.reasons if each.startswith(COARSER_SOLUTION)] == [opinion]
    assert "a finer mesh" in found.remedies


@pytest.mark.parametrize(("name", "level"), [("flow", "fast"), ("flow", "standard"), ("flow", "fine"), ("ducts", "")])
def test_shipped_networks_have_a_calibration_of_their_own_weights(name, level):
    folder = checkpoints.folder_of(name)
    found = expected_error.read(folder, checkpoints.read_config(folder).weights_sha256, level)
    assert found is not None
    assert set(found.unknowns) == {"u", "p"}


def test_a_calibration_of_other_weights_is_refused(case, tmp_path):
    store(tmp_path / "one")
    calibrate(tmp_path / "one", 0.1)
    store(tmp_path / "two", width=6)
    (tmp_path / "two" / EXPECTED_ERROR).write_bytes((tmp_path / "one" / EXPECTED_ERROR).read_bytes())
    with pytest.raises(CheckpointError, match=r"belongs to other weights.*penn calibrate again"):
        predict(checkpoints.load(tmp_path / "two"), case)


def test_new_weights_take_an_old_calibration_with_them(tmp_path):
    store(tmp_path)
    calibrate(tmp_path, 0.1)
    store(tmp_path, width=6)
    assert not (tmp_path / EXPECTED_ERROR).exists()


def cut_short(text: str) -> str:
    return text[: len(text) // 2]


def changed(*keys, value):
    def change(text: str) -> str:
        content = json.loads(text)
        inner = content
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return json.dumps(content)

    return change


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_short, "is damaged"),
        (lambda _: "\x00\x01", "is damaged"),
        (lambda _: "[]", "is of another program"),
        (lambda _: "[" * 100_000, "is damaged"),
        (changed("format", value="a diary"), "is of another program"),
        (changed("format_version", value=99), "Install a newer pennpde"),
        (changed("parts", "all", "clues", 0, "scale", value=0.0), "a scale is not positive"),
        (changed("parts", "all", "clues", 0, "centre", value="much"), "is damaged"),
        (changed("parts", "all", "unknowns", "u", "scores", value=[1.0]), "is damaged"),
        (changed("parts", "all", "unknowns", "u", "coefficients", value=[float("nan")]), "is damaged"),
        (changed("parts", "all", "unknowns", value={}), "has no cases, clues or unknowns"),
        (changed("parts", "all", "cases", value=None), "is damaged"),
        (changed("parts", "inside without a second opinion", value={}), "is damaged"),
        (changed("parts", value={}), "is damaged"),
    ],
)
def test_a_damaged_calibration_is_a_clear_error(tmp_path, damage, message):
    store(tmp_path)
    path = calibrate(tmp_path, 0.1)
    path.write_text(damage(path.read_text()))
    with pytest.raises(CheckpointError, match=message) as raised:
        expected_error.read(tmp_path, checkpoints.read_config(tmp_path).weights_sha256)
    assert EXPECTED_ERROR in str(raised.value)


def test_all_numbers_of_the_evidence_are_finite(case, tmp_path):
    outcome = predict(network(tmp_path, None), case, resolution="own")
    assert all(math.isfinite(value) for value in outcome.evidence[0].numbers.values())
    assert torch.isfinite(outcome.evidence[0].local["u"]).all()
