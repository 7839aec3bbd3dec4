"""Calibration: bounds that hold for cases of families that nobody has seen, and that grow far away from all cases."""

import json
from dataclasses import replace

import numpy as np
import pytest

from calibrated import TRUE_SLOPE, WORSE, drawn
from pennpde.trust import expected_error
from pennpde.trust.calibration import ALONE, COARSER_SOLUTION, FROM_TRAINING, KIND, Sample, Scores, cross_validated, fit


@pytest.fixture(scope="module")
def calibration():
    return fit(drawn(50, 8), WORSE)


def test_the_bound_covers_nine_tenths_of_cases_of_new_families(calibration):
    below = [sample.errors["u"] <= calibration.estimate("u", sample.clues)[1] for sample in drawn(200, 5, seed=1)]
    assert 0.87 <= np.mean(below) <= 0.97  # 50 families leave 3 % of chance


def test_families_left_out_one_by_one_are_covered_as_well():
    judged = cross_validated(drawn(12, 10, seed=2), WORSE)
    assert len(judged) == 120
    assert 0.85 <= np.mean([sample.errors["u"] <= estimates["u"][1] for sample, estimates in judged]) <= 1.0


def test_the_expected_error_follows_what_the_error_depends_on(calibration):
    small, large = (calibration.estimate("u", {"residual": each, "kind": 0.0, "idle": 0.0})[0] for each in (-1.0, 1.0))
    assert large / small == pytest.approx(np.exp(2 * TRUE_SLOPE), rel=0.25)


def test_more_of_what_is_worse_never_lowers_the_expected_error(calibration):
    expected, bounds = zip(
        *(calibration.estimate("u", {"residual": each, "kind": 0.0, "idle": 0.0}) for each in np.linspace(-20, 40, 61)),
        strict=True,
    )
    inside = slice(20, None)  # below the calibrated range the distance widens the bound again
    assert np.all(np.diff(expected[inside]) >= -1e-12)
    assert np.all(np.diff(bounds[inside]) >= -1e-12)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_far_away_the_bound_grows_without_the_regression_being_followed(calibration, sign):
    estimates = [
        calibration.estimate("u", {"residual": 0.0, "kind": sign * away, "idle": 0.0}) for away in (2.0, 4.0, 8.0, 16.0)
    ]
    expected, bounds = zip(*estimates, strict=True)
    assert np.all(np.diff(bounds) > 0)
    assert np.all(np.diff(expected) > 0)
    assert bounds[-1] > 10 * calibration.estimate("u", {"residual": 0.0, "kind": 0.0, "idle": 0.0})[1]


def test_a_clue_that_a_case_does_not_have_counts_as_typical(calibration):
    typical = float(calibration.parts["all"].clues.centres[calibration.parts["all"].clues.names.index("idle")])
    known = {"residual": 0.3, "kind": 0.1}
    assert calibration.estimate("u", known) == calibration.estimate("u", known | {"idle": typical})


def test_a_few_diverged_cases_do_not_bend_the_regression():
    samples = drawn(15, 15)
    broken = [
        Sample(each.name, each.family, each.clues, {"u": 1e9}) if number % 40 == 0 else each
        for number, each in enumerate(samples)
    ]
    slopes = [fit(each, WORSE).parts["all"].scores["u"].regression.coefficients[0] for each in (samples, broken)]
    assert slopes[1] == pytest.approx(slopes[0], rel=0.2)


def test_errors_that_are_not_finite_count_as_very_large():
    samples = drawn(6, 10)
    samples[0] = Sample("bad", samples[0].family, samples[0].clues, {"u": float("nan")})
    assert np.isfinite(fit(samples, WORSE).estimate("u", samples[1].clues)).all()


@pytest.mark.parametrize(("number", "cases", "expected"), [(99, 99, 89.0), (9, 9, 8.0), (90, 9, 89.0), (90, 5, 89.0)])
def test_the_quantile_counts_the_next_case_as_one_of_them(number, cases, expected):
    weights = np.full(number, 1.0 / number)
    scores = Scores(None, np.arange(float(number)), weights, 1.0, cases)  # pyright: ignore[reportArgumentType]
    assert scores.quantile(0.9) == expected


def test_too_few_cases_or_families_are_refused():
    with pytest.raises(ValueError, match="19 cases of 1 families"):
        fit(drawn(1, 19), WORSE)
    with pytest.raises(ValueError, match="40 cases of 1 families"):
        fit(drawn(1, 40), WORSE)


def test_cases_outside_of_the_training_range_are_calibrated_apart():
    worse = WORSE | {FROM_TRAINING: True}

    def moved(sample: Sample, away: float, factor: float) -> Sample:
        errors = {name: factor * error for name, error in sample.errors.items()}
        return Sample(sample.name, sample.family, {**sample.clues, FROM_TRAINING: away}, errors)

    inside = [moved(each, 0.0, 0.1) for each in drawn(8, 10, seed=3)]
    outside = [moved(each, 3.0, 10.0) for each in drawn(8, 10, seed=4)]
    both = fit(inside + outside, worse)
    clues = {"residual": 0.0, "kind": 0.0, "idle": 0.0}
    near, far = (both.estimate("u", clues | {FROM_TRAINING: away})[0] for away in (0.0, 0.01))
    # However little outside: what is inside says nothing about it.
    assert far > 20 * near
    assert set(fit(inside + outside[:5], worse).parts) == {"all"}


OPINION = COARSER_SOLUTION + "u"


def with_opinions(samples: list[Sample]) -> list[Sample]:
    """The same cases with a second opinion that is off by three times the error, give or take little."""
    random = np.random.default_rng(5)
    return [
        Sample(
            each.name,
            each.family,
            {**each.clues, OPINION: float(np.log10(3 * each.errors["u"]) + 0.02 * random.standard_normal())},
            each.errors,
        )
        for each in samples
    ]


def test_a_second_opinion_narrows_the_bound_and_cases_without_one_keep_theirs():
    worse = WORSE | {OPINION: True}
    samples = drawn(20, 10, seed=6)
    calibration = fit(with_opinions(samples), worse)
    assert set(calibration.parts) == {"all", "all" + ALONE}
    for sample, known in zip(drawn(5, 5, seed=7), with_opinions(drawn(5, 5, seed=7)), strict=True):
        expected, bound = calibration.estimate("u", known.clues)
        assert expected == pytest.approx(sample.errors["u"], rel=0.3)
        alone = calibration.estimate("u", sample.clues)
        assert bound / expected < 0.8 * alone[1] / alone[0]
        assert alone == fit(samples, WORSE).estimate("u", sample.clues)


def test_few_second_opinions_are_not_learned_from():
    samples = drawn(8, 10, seed=8)
    mixed = with_opinions(samples)[:15] + samples[15:]
    assert set(fit(mixed, WORSE | {OPINION: True}).parts) == {"all"}


def of_kinds(samples: list[Sample]) -> list[Sample]:
    """The same cases, every third of a kind whose errors scatter three times as much."""
    random = np.random.default_rng(9)
    found = []
    for number, each in enumerate(samples):
        wild = number % 3 == 0
        errors = {"u": each.errors["u"] * float(np.exp(1.2 * random.standard_normal() * wild))}
        found.append(Sample(each.name, each.family, {**each.clues, KIND + ("wild" if wild else "tame"): 1.0}, errors))
    return found


def test_the_bound_holds_in_each_kind_of_case_and_not_only_on_average():
    judged = cross_validated(of_kinds(drawn(12, 20, seed=10)), WORSE, left_out="cases", scores_without="cases")
    for kind in ("wild", "tame"):
        held = [sample.errors["u"] <= each["u"][1] for sample, each in judged if KIND + kind in sample.clues]
        assert 0.85 <= np.mean(held) <= 0.95
    plain = [replace(each, clues={**each.clues, KIND + "rare": 1.0}) for each in drawn(12, 20, seed=10)]
    without = fit(drawn(12, 20, seed=10), WORSE)
    few = fit(plain[:5] + drawn(12, 20, seed=10)[5:], WORSE)
    # A kind of too few cases has the bound of all.
    assert few.estimate("u", plain[0].clues)[1] == without.estimate("u", plain[0].clues)[1]


def test_kinds_are_kept_on_disk_and_files_of_former_versions_are_read(tmp_path):
    samples = of_kinds(drawn(12, 10, seed=11))
    calibration = fit(samples, WORSE)
    expected_error.write(tmp_path, calibration, {"weights_sha256": "abc"})
    read = expected_error.read(tmp_path, "abc")
    assert read is not None
    for each in samples[:6]:
        np.testing.assert_allclose(read.estimate("u", each.clues), calibration.estimate("u", each.clues), rtol=2e-3)
    path = tmp_path / "expected_error.json"
    content = json.loads(path.read_text())
    for part in content["parts"].values():
        part["cases"] = [row[:3] for row in part["cases"]]
    path.write_text(json.dumps(content | {"format_version": 2}))
    old = expected_error.read(tmp_path, "abc")
    assert old is not None
    plain = {name: value for name, value in samples[1].clues.items() if not name.startswith(KIND)}
    wild, tame = (plain | {KIND + each: 1.0} for each in ("wild", "tame"))
    assert old.estimate("u", wild) == old.estimate("u", tame)
    assert read.estimate("u", wild)[1] > read.estimate("u", tame)[1]
