"""Settings of OpenFOAM: their names, their groups, and the dictionaries they become."""

import pytest

from pennlab.datasets.flow import cases as flow
from pennlab.paper.openfoam_sweep import settings, sweep
from pennlab.paper.openfoam_sweep.settings import FAMILIES, GROUPS, Planned, Setting, parse
from pennlab.paper.tables import paper_numbers
from pennpde import openfoam

pytestmark = pytest.mark.slow  # with others like it more than some seconds


@pytest.mark.parametrize(
    ("text", "setting", "cases"),
    [
        ("gamg-smooth-22.5-0.050", Setting("gamg-smooth", 22.5, time_step=0.05), None),
        ("tuned-lust-45-0.01@10", Setting("tuned-lust", 45, time_step=0.01), 10),
        ("adaptive-15-co0.9", Setting("adaptive", 15, courant=0.9), None),
    ],
)
def test_a_name_tells_family_resolution_and_cases(text, setting, cases):
    assert parse(text) == Planned(setting, cases)
    assert parse(setting.name).setting == setting


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gamg", "names no setting"),
        ("quick-22.5-0.01", "the families are gamg-smooth"),
        ("tuned-22.5", "names no setting"),
        ("tuned-1..2-0.01", "is not a number"),
        ("tuned-1-0.01", "1 cells per unit length"),
        ("tuned-22.5-0.03", "do not end at t = 4"),
        ("tuned-22.5-0", "time step of 0"),
        ("tuned-22.5-2", "time step of 2"),
        ("tuned-22.5-0.01@0", "at least 1"),
        ("tuned-22.5-co0.9", "take adaptive-22.5-co0.9"),
        ("adaptive-22.5-co99", "Courant number of 99"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_with_what_can(text, words):
    with pytest.raises(ValueError, match=words):
        parse(text)


def test_groups_and_settings_mix_and_the_larger_number_of_cases_holds():
    plan = settings.read(["tuned, gamg-smooth-22.5-0.01@2", "gamg-smooth-22.5-0.01@5,tuned-9-0.05@1"])
    found = {each.setting.name: each.cases for each in plan}
    assert found["gamg-smooth-22.5-0.01"] == 5
    assert found["tuned-9-0.05"] is None
    assert len(plan) == len(GROUPS["tuned"]) + 1
    assert settings.read([]) == settings.read(["default"])


def test_the_paper_s_group_has_every_row_of_its_table():
    found = {sweep.printed_row(each.setting) is not None for each in settings.read(["paper"])}
    printed = [each for each in settings.read(["paper"]) if sweep.printed_row(each.setting)]
    assert found == {True, False}  # 90 cells and 0.001 is the paper's truth; smooth for p at 90 cells was not tried
    assert len(printed) == len(paper_numbers()["openfoam"])


def test_every_default_setting_is_written_as_openfoam_reads_it(tmp_path):
    for each in settings.read(["default", "paper"]):
        folder = tmp_path / each.setting.name
        each.setting.write(folder, flow.duct("b_0.30_0.70"))
        control = openfoam.read_dictionary(folder / "system/controlDict")
        solution = openfoam.read_dictionary(folder / "system/fvSolution")
        family = FAMILIES[each.setting.family]
        assert control["application"] == family.program
        assert float(control["writeInterval"]) == float(control["endTime"]) == flow.END_TIME
        assert ("PIMPLE" in solution) == (folder / "constant/turbulenceProperties").exists()
        assert float(solution["solvers"]["p"]["tolerance"]) == family.pressure["tolerance"]
