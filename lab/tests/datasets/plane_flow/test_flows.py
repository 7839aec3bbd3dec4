"""The flows of the dataset: which there are, and that a name always gives the same flow."""

import hashlib
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pennlab.datasets.plane_flow import cases, flows, meshes, truth
from pennlab.datasets.plane_flow.flow import INTERVAL
from pennlab.datasets.plane_flow.foam import Resolution
from pennlab.datasets.plane_flow.recipe import MESHES, PlaneFlowRecipe
from pennlab.datasets.plane_flow.shapes import FAMILIES, TRAINED, UNSEEN
from pennlab.datasets.plane_flow.twins import Signature, distance, nearest_across

pytestmark = pytest.mark.slow  # with others like it more than some seconds

HASHES = json.loads((Path(__file__).parent / "hashes.json").read_text())
"""Of the flows whose truth was computed: the published dataset can be made again only while they stay the same."""


@pytest.fixture(scope="module")
def some_flows():
    return [flows.draw_flow(name) for name in flows.splits()["validation"][::2]]


def test_splits_have_the_sizes_that_the_dataset_promises():
    splits = flows.splits()
    sizes = {split: len(names) for split, names in splits.items()}
    assert sizes == {
        "train": 1020,
        "validation": 102,
        "test": 76,
        "test-unseen-families": 51,  # one of them fails
        "test-unseen-reynolds": 25,
    }
    names = [name for members in splits.values() for name in members]
    assert len(set(names)) == len(names)


def test_families_have_equal_shares_and_unseen_ones_are_only_in_their_test():
    for split, names in flows.splits().items():
        found = Counter(flows.parse_name(name)[0] for name in names)
        assert set(found) == set(UNSEEN if split == "test-unseen-families" else TRAINED)
        assert max(found.values()) - min(found.values()) <= 1


def test_reynolds_numbers_are_log_uniform_and_those_of_their_own_test_lie_outside(some_flows):
    splits = flows.splits()
    low, high = flows.REYNOLDS
    trained = np.array([flow.reynolds for flow in some_flows])
    assert low <= trained.min()
    assert trained.max() <= high
    share = np.sort(np.log(trained / low) / np.log(high / low))
    uniform = (np.arange(len(share)) + 0.5) / len(share)
    assert np.abs(share - uniform).max() < 1.63 / np.sqrt(len(share))  # Kolmogorov, 1 %
    outside = [flows.draw_flow(name).reynolds for name in splits["test-unseen-reynolds"]]
    assert all(3 <= number < 10 or 2000 <= number <= 3000 for number in outside)
    assert min(outside) < 10
    assert max(outside) > 2000


def test_moments_grow_and_are_met_by_the_steps_of_the_solver(some_flows):
    for flow in some_flows:
        moments = flow.moments
        assert 3 <= len(moments) <= 4
        assert list(moments) == sorted(set(moments))
        assert moments[0] > 0
        assert moments[-1] <= flows.LAST_MOMENT
        assert all(moment / INTERVAL == round(moment / INTERVAL) for moment in moments)


@pytest.mark.parametrize("name", ["step_12", "nothing_0001", "step-0001", "../step_0001"])
def test_a_name_that_no_flow_has_is_refused(name):
    with pytest.raises(ValueError, match="names no flow"):
        flows.parse_name(name)


def test_a_case_is_a_flow_and_one_of_its_meshes():
    recipe = PlaneFlowRecipe()
    recipe.check("step_0012.a")
    with pytest.raises(ValueError, match="its mesh"):
        recipe.check("step_0012")
    tasks = recipe.tasks(["step_0001.a", "bend_0001.a", "step_0001.b"])
    assert sorted(tasks) == [("bend_0001.a",), ("step_0001.a", "step_0001.b")]
    assert len(recipe.splits()["train"]) == 1020 * len(MESHES)


def test_any_beginning_of_the_list_is_balanced():
    splits = flows.splits()
    order = flows.in_turn(splits)
    assert sorted(order) == sorted(name for names in splits.values() for name in names)
    first = set(order[: len(order) // 4])
    for names in splits.values():
        assert len(first & set(names)) / len(names) == pytest.approx(0.25, abs=0.04)


def test_a_name_gives_the_same_flow_on_any_machine():
    assert set(HASHES["flows"]) == {flows.flow_name(family, 3) for family in FAMILIES}
    for name, expected in HASHES["flows"].items():
        assert flows.draw_flow(name).fingerprint() == expected["flow"], name


@pytest.mark.parametrize("family", ["cavity", "y-junction", "aerofoil", pytest.param("*", marks=pytest.mark.slow)])
def test_a_name_gives_the_same_meshes_on_any_machine(family):
    for each in FAMILIES if family == "*" else [family]:
        flow = flows.draw_flow(flows.flow_name(each, 3))
        found = [cases.mesh_fingerprint(meshes.network_mesh(flow, plan)) for plan in meshes.mesh_plans(flow)]
        assert found == HASHES["flows"][flow.name]["meshes"]


@pytest.mark.parametrize("name", ["cavity_0003", *(pytest.param(n, marks=pytest.mark.slow) for n in ("step_0003",))])
def test_a_name_gives_the_same_cells_of_the_truth_on_any_machine(name):
    mesh = truth.truth_triangles(flows.draw_flow(name), Resolution())
    digest = hashlib.sha256(mesh.points.tobytes() + mesh.triangles.tobytes()).hexdigest()
    assert digest == HASHES["flows"][name]["truth"]


def test_all_flows_are_those_whose_truth_was_computed():
    text = "".join(flows.draw_flow(name).fingerprint() for names in flows.splits().values() for name in names)
    assert hashlib.sha256(text.encode()).hexdigest() == HASHES["all"]


def test_another_seed_gives_other_flows():
    assert flows.draw_flow("step_0003").fingerprint() != flows.draw_flow("step_0003", seed=1).fingerprint()


# Twins


def test_a_flow_is_the_twin_of_itself_and_of_its_mirror_image():
    flow = flows.draw_flow("tee_0004")
    mine = Signature.of(flow)
    image = replace(
        flow,
        domain=flow.domain.mirrored(),
        conditions={name: flows.upside_down(each) for name, each in flow.conditions.items()},
    )
    assert distance(mine, mine) == 0.0
    assert distance(mine, Signature.of(image)) < 0.5  # samples of the outline lie at other places
    assert distance(mine, Signature.of(replace(flow, reynolds=1.05 * flow.reynolds))) < 1.0


def test_another_reynolds_number_speed_or_shape_is_another_flow():
    flow = flows.draw_flow("tee_0004")
    mine = Signature.of(flow)
    assert distance(mine, Signature.of(replace(flow, reynolds=1.3 * flow.reynolds))) > 1.0
    faster = {**flow.conditions, "inlet": replace(flow.conditions["inlet"], speed=1.5)}
    assert distance(mine, Signature.of(replace(flow, conditions=faster))) > 1.0
    assert distance(mine, Signature.of(flows.draw_flow("tee_0005"))) > 1.0


def test_no_flow_has_a_twin_in_another_split():
    splits = flows.splits()
    signatures = {name: Signature.of(flows.draw_flow(name)) for names in splits.values() for name in names}
    nearest = nearest_across(signatures, splits)
    assert nearest[0][0] > 1.2, f"{nearest[0][1]} is a near twin of {nearest[0][2]}"
