"""What texts mean, and what is said of those that mean nothing."""

import pytest

from pennpde.quantities import KINDS, parse
from steady_flows import duct, square


@pytest.mark.parametrize(
    ("text", "kind", "arguments"),
    [
        ("pressure drop inlet outlet", "pressure drop", ("inlet", "outlet")),
        ("Total pressure drop in out", "total pressure drop", ("in", "out")),
        ("drag cylinder", "drag", ("cylinder",)),
        ("pressure drag 'left side'", "pressure drag", ("left side",)),
        ("flow split a b c d", "flow split", ("a", "b", "c", "d")),
        ("probe u 0.5 -0.25", "probe u", ("0.5", "-0.25")),
        ("residence time", "residence time", ()),
    ],
)
def test_a_text_names_a_kind_and_its_arguments(text, kind, arguments):
    found = parse(text)
    assert (found.kind.name, found.arguments) == (kind, arguments)
    assert parse(found.name).arguments == arguments


def test_options_follow_the_arguments():
    found = parse("drag coefficient body along 0 2 length 0.1 speed 3")
    assert found.options == {"along": (0.0, 2.0), "length": (0.1,), "speed": (3.0,)}
    assert parse("force body density 1.2").unit == "N/m"
    assert parse("pressure drop a b density 1000").unit == "Pa"
    assert parse("pressure drop a b").unit == "m²/s²"


def test_a_patch_may_have_the_name_of_an_option():
    assert parse("drag length length 2").arguments == ("length",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("presure drop a b", "Did you mean 'pressure drop'"),
        ("dragg cylinder", "Did you mean 'drag'"),
        ("", "Known are: pressure drop PATCH PATCH"),
        ("pressure drop inlet", "write 'pressure drop PATCH PATCH'"),
        ("drag a b", "has 2 arguments"),
        ("probe u here there", "needs 2 finite numbers"),
        ("drag a speed -1", "must be positive"),
        ("drag a along 1", "needs 2 finite numbers"),
        ("flow rate a density 2", "does not depend on it"),
        ("drag 'a", "No closing quotation"),
    ],
)
def test_what_means_nothing_is_refused_with_what_would(text, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        parse(text)


def test_a_patch_that_the_mesh_does_not_have_is_named_with_those_it_has():
    case = duct(square("triangle", 3))
    with pytest.raises(ValueError, match=r"'cylinder'.*bottom, left, right, top"):
        parse("drag cylinder").check(case)
    with pytest.raises(ValueError, match="'upper'"):
        parse("drag bottom+upper").check(case)
    parse("drag bottom+top").check(case)


def test_each_kind_is_found_by_its_own_name():
    for kind in KINDS.values():
        words = ["0.5" if each in "XY" else f"p{place}" for place, each in enumerate(kind.arguments)]
        assert parse(" ".join((kind.name, *words))).kind is kind
