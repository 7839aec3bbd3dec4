"""What a case cannot hold travels with it, and every prediction names it."""

from dataclasses import replace

import pytest
import torch

from companions import DOMAINS, SPACING
from pennpde.case import Case, Remark
from pennpde.case.companion import companion_mesh, on_companion
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.prediction import predict
from pennpde.trust.expected_error import Expected, ExpectedError
from problems import heated_plate

WARNING, NOTE = Remark("There is wind."), Remark("It is late.", severe=False)


@pytest.fixture(scope="module")
def network():
    return advection_diffusion_network(width=4, iterations=2, hidden=8).eval()


def test_remarks_stay_with_a_case_whatever_becomes_of_it():
    case = heated_plate().remarked(WARNING, NOTE, WARNING)
    assert case.remarks == (WARNING, NOTE)
    assert case.remarked(NOTE) is case
    assert case.to(torch.float32).remarks == case.remarks
    assert case.moved(torch.eye(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)).remarks == case.remarks
    assert replace(case, name="another").remarks == case.remarks


def test_remarks_go_along_to_a_companion():
    mesh = DOMAINS["step"]()
    case = Case(mesh, initial={"T": 0.0}, neumann={"T": 0.0}, remarks=[WARNING])
    assert on_companion(case, companion_mesh(mesh, SPACING)).remarks == (WARNING,)


def test_a_prediction_names_them_and_keeps_its_own_warnings(network):
    plain = predict(network, heated_plate()).certificate
    told = predict(network, heated_plate().remarked(WARNING, NOTE)).certificate
    assert told.warnings == (WARNING.text, *plain.warnings)
    assert told.notes == (*plain.notes, NOTE.text)
    assert f"  warning: {WARNING.text}" in told.lines()
    assert not any(WARNING.text in line or NOTE.text in line for line in told.lines(warnings=False))
    assert told.as_dict()["warnings"][0] == WARNING.text


def test_a_parameter_that_the_equation_does_not_have_is_named(network):
    case = heated_plate()
    case = replace(case, parameters={**case.parameters, "density": torch.tensor(2.0)})
    assert predict(network, case).certificate.warnings[0] == (
        "The parameter density is ignored; those of the network are velocity, diffusivity."
    )


def test_a_case_that_the_network_does_not_know_all_of_is_not_graded_good(network):
    good = Expected({"u": ExpectedError(0.01, 0.03)})
    assert good.grade == "good"
    assert replace(good, missing=(WARNING.text,)).grade == "poor"
    assert predict(network, heated_plate().remarked(WARNING, NOTE)).expected.missing == (WARNING.text,)
