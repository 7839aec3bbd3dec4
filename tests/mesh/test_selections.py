"""The language in which users say which points they mean."""

import numpy as np
import pytest

from pennpde.mesh.formulas import parse_selection

POINTS = np.array([[x, y] for x in (0.0, 0.5, 1.0) for y in (-1.0, 0.0, 2.0)])
X, Y = POINTS.T


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 0.5", X < 0.5),
        ("x<=.5", X <= 0.5),
        ("0.5 > x", X < 0.5),
        ("x == 1", X == 1),
        ("x != 1", X != 1),
        ("y >= -1e0", Y >= -1),
        ("0 <= y <= 1", (Y >= 0) & (Y <= 1)),
        ("x == 0 and y > -0.5", (X == 0) & (Y > -0.5)),
        ("x == 0 or x == 1", (X == 0) | (X == 1)),
        ("not x == 0", X != 0),
        ("not not x == 0", X == 0),
        ("x == 0 or x == 1 and y == 2", (X == 0) | ((X == 1) & (Y == 2))),
        ("(x == 0 or x == 1) and y == 2", ((X == 0) | (X == 1)) & (Y == 2)),
        ("not (x == 0 or y == 2)", ~((X == 0) | (Y == 2))),
        ("r <= 1", np.hypot(X, Y) <= 1),
        ("x < y", X < Y),
        ("  x\t==\n0 ", X == 0),
        ("x == +0.5", X == 0.5),
        ("x - 1 < 0", X < 1),
        ("x**2 + y**2 <= 1", np.hypot(X, Y) <= 1),
    ],
)
def test_comparisons_choose_points(text, expected):
    np.testing.assert_array_equal(parse_selection(text)(POINTS), expected)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equality_is_nearness_at_the_scale_of_the_mesh(scale):
    points = scale * np.array([[0.0, 0.0], [0.1 + 0.2, 0.0], [0.3001, 0.0], [1.0, 1.0]])
    chosen = parse_selection(f"x == {0.3 * scale:.17g}")(points)
    assert chosen.tolist() == [False, True, False, False]


def test_z_exists_in_space_alone():
    assert parse_selection("z == 1")(np.eye(3)).tolist() == [False, False, True]
    with pytest.raises(ValueError, match="plane"):
        parse_selection("z == 1")(POINTS)


def test_no_points_are_no_problem():
    assert parse_selection("x == 0")(np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Cannot read the selection ''"),
        ("x", "'x' is no comparison"),
        ("x <", "Cannot read"),
        ("x = 0", "Cannot read"),
        ("x == 0 y == 1", "Cannot read"),
        ("(x == 0", "Cannot read"),
        ("x == 0)", r"'\)' at character 7"),
        ("x == w", "because of 'w'"),
        ("and x == 0", "Cannot read"),
        ("x == t", "because of 't'"),
        ("x == True", "because of 'True'"),
        ("x is 0", "no comparison"),
        ("__import__('os')", "no comparison"),
        ("x.real < 1", "because of 'x.real'"),
        ("x == '0'", "because of"),
        ("x == [0 for x in y]", "because of"),
        ("x == \0", "Cannot read"),
        ("(" * 300 + "x<1" + ")" * 300, "Cannot read"),
        ("not " * 60 + "x<1", "more than 50 levels"),
        ("not " * 2400 + "x<1", "more than 50 levels|Cannot read"),
        ("x<1 or " * 2000 + "x<1", "too many"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(text, words):
    with pytest.raises(ValueError, match=words):
        parse_selection(text)


@pytest.mark.parametrize("text", ["x == 1e999", "x < 9**9**9**9", "sqrt(y) < 1", "x / y > 2"])
def test_numbers_that_are_not_finite_are_not_compared(text):
    with pytest.raises(ValueError, match="not finite"):
        parse_selection(text)(POINTS)


def test_an_error_shows_where():
    with pytest.raises(ValueError, match="at character 8;"):
        parse_selection("x == 0 $")
