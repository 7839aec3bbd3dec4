"""What browsers may ask for."""

import pytest

from pennpde.viewer.views import Moments, Request


def test_the_same_request_has_the_same_number_whatever_the_order_of_its_values():
    first = Request.of({"source": "template", "name": "a", "values": {"first": 0.3, "speed": 1}})
    second = Request.of({"values": {"speed": 1.0, "first": 0.3}, "name": "a", "source": "template", "roles": None})
    assert first == second
    assert first.number == second.number
    assert Request.of(first.content) == first
    assert first.number != Request.of({**first.content, "name": "b"}).number


def test_times_lie_evenly_up_to_the_last():
    asked = Request.of({"source": "template", "name": "a", "moments": {"duration": 2, "frames": 4}})
    assert asked.moments == Moments(2.0, 4)
    steady = Request.of({"source": "template", "name": "a", "moments": {"duration": 3, "frames": 4, "steady": True}})
    assert steady.moments == Moments(steady=True)  # whatever else is asked for: the same picture
    assert Moments(2.0, 4).times == [0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "an object"),
        ({"source": "template", "name": "a", "command": "rm"}, "no command"),
        ({"source": "file", "name": "a"}, "'file'"),
        ({"source": "template"}, "name"),
        ({"source": "template", "name": "a" * 201}, "200 letters"),
        ({"source": "upload", "name": "../../etc"}, "key of an upload"),
        ({"source": "template", "name": "a", "values": {"speed": "fast"}}, "'fast'; it must be a number"),
        ({"source": "template", "name": "a", "values": {"speed": float("nan")}}, "finite"),
        ({"source": "template", "name": "a", "values": {str(k): k for k in range(21)}}, "20 numbers"),
        ({"source": "upload", "name": "0" * 32, "roles": ["door"]}, "wall, inlet, outlet"),
        ({"source": "upload", "name": "0" * 32, "roles": ["wall"] * 2001}, "wall, inlet, outlet"),
        ({"source": "drawing", "name": "drawing", "polygons": [{"corners": [[0, 0]]}]}, "corners"),
        ({"source": "drawing", "name": "drawing", "polygons": [{"corners": [[0, "x"]], "roles": ["wall"]}]}, "pairs"),
        ({"source": "drawing", "name": "drawing", "polygons": [{"corners": [], "roles": []}] * 21}, "20 polygons"),
        ({"source": "template", "name": "a", "moments": {"duration": 0, "frames": 1}}, "above 0"),
        ({"source": "template", "name": "a", "moments": {"duration": 1e9, "frames": 1}}, "at most 100"),
        ({"source": "template", "name": "a", "moments": {"duration": 1, "frames": 10**6}}, "from 1 to 40"),
        ({"source": "template", "name": "a", "moments": {"duration": 1}}, "duration and a number"),
    ],
)
def test_what_is_no_request_is_refused_with_words(content, words):
    with pytest.raises(ValueError, match=words):
        Request.of(content)
