"""What a manifest tells about its cases, counted."""

from pennpde.data.storage import Entry, Manifest, summary


def manifest(*facts, failed=None):
    cases = {f"case_{number}": Entry(f"case_{number}.vtkhdf", "", 0, each) for number, each in enumerate(facts)}
    return Manifest("custom", splits={"train": ["case_0"], "test": list(cases)[1:]}, cases=cases, failed=failed or {})


def quarters(*values):
    return dict(zip(("lowest", "a quarter below", "median", "a quarter above", "highest"), values, strict=True))


def test_a_single_number_is_all_of_its_quarters():
    assert summary(manifest({"reynolds": 7.0})) == {"reynolds": quarters(7.0, 7.0, 7.0, 7.0, 7.0)}


def test_numbers_are_told_by_their_quarters_and_words_are_counted():
    found = summary(
        manifest(
            {"reynolds": 10.0, "family": "step", "steady": True, "points": 3},
            {"reynolds": 30.0, "family": "step", "steady": False, "points": 4},
            {"reynolds": 20.0, "family": "bend", "steady": True, "points": 5},
        )
    )
    assert found == {
        "reynolds": quarters(10.0, 15.0, 20.0, 25.0, 30.0),
        "family": {"step": 2, "bend": 1},
        "steady": {"yes": 2, "no": 1},
    }


def test_facts_within_facts_and_lists_are_told_too():
    found = summary(
        manifest({"mesh": {"kind": "quads"}, "times": [1.0, 2.0]}, {"mesh": {"kind": "mixed"}, "times": [4.0]})
    )
    assert found == {
        "mesh.kind": {"quads": 1, "mixed": 1},
        "times": quarters(1.0, 1.5, 2.0, 3.0, 4.0),
    }


def test_only_the_cases_of_a_split_are_told_of():
    assert summary(manifest({"family": "step"}, {"family": "bend"}), "test") == {"family": {"bend": 1}}


def test_words_that_differ_from_case_to_case_are_only_counted():
    found = summary(manifest(*({"name": f"name {number}"} for number in range(40))))
    assert found == {"name": {"different": 40, "of": 40}}
