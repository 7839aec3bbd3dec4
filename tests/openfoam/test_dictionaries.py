"""OpenFOAM's dictionaries: what is read, what is refused and where."""

import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pennpde import openfoam
from pennpde.openfoam import Dimensions, FoamFormatError, NonUniform
from pennpde.openfoam.dictionaries import Quoted, format_entry, number_of

# Dictionaries


def test_a_dictionary_is_read_as_nested_python_values():
    entries = openfoam.parse_dictionary(
        """
        FoamFile { version 2.0; format ascii; class dictionary; object any; }
        // a comment with { and "
        nu              nu [0 2 -1 0 0 0 0] 1e-3;   /* another ; one */
        solvers { "(U|k)" { tolerance 1e-06; relTol 0; } p { solver GAMG; } }
        div(phi,U)      Gauss linearUpwind grad(U);
        vertices        ((0 0 0) (1 0 0));
        empty           ;
        sentence        "with a \\" quote";
        on              true;
        symbolic        [m^2 s^-1];
        """
    )
    assert entries["nu"] == ("nu", Dimensions((0, 2, -1, 0, 0, 0, 0)), 1e-3)
    assert number_of(entries["nu"]) == 1e-3
    assert entries["solvers"]["(U|k)"] == {"tolerance": 1e-6, "relTol": 0}
    assert isinstance(next(iter(entries["solvers"])), Quoted)
    assert entries["div(phi,U)"] == ("Gauss", "linearUpwind", "grad(U)")
    assert entries["vertices"] == [[0, 0, 0], [1, 0, 0]]
    assert entries["empty"] == ()
    assert entries["sentence"] == 'with a \\" quote'
    assert entries["symbolic"] == Dimensions((), "m^2 s^-1")


@pytest.mark.parametrize(
    ("symbols", "powers"),
    [
        ("m^2 s^-1", (0, 2, -1, 0, 0, 0, 0)),
        ("m^2/s", (0, 2, -1, 0, 0, 0, 0)),
        ("Pa s", (1, -1, -1, 0, 0, 0, 0)),
        ("kg*m / s^2", (1, 1, -2, 0, 0, 0, 0)),
        ("m^0.5", (0, 0.5, 0, 0, 0, 0, 0)),
        ("mm^2 s^-1", None),  # a millionth of what its number says
        ("m^x", None),
    ],
)
def test_units_in_symbols_have_exponents(symbols, powers):
    assert Dimensions((), symbols).powers == powers


def test_few_exponents_are_filled_up():
    assert Dimensions((0, 2, -1)).powers == (0, 2, -1, 0, 0, 0, 0)


def test_later_entries_win_and_dictionaries_of_one_name_are_merged():
    entries = openfoam.parse_dictionary("a 1; b { x 1; y 1; } a 2; b { y 2; z 3; }")
    assert entries == {"a": 2, "b": {"x": 1, "y": 2, "z": 3}}


def test_macros_stand_for_entries_before_them():
    text = (
        "speed 3; walls { type noSlip; } a { $walls; own $speed; } b { $a; nested { again ${speed}; } } c $:walls.type;"
    )
    entries = openfoam.parse_dictionary(text)
    assert entries["b"] == {"type": "noSlip", "own": 3, "nested": {"again": 3}}
    assert entries["c"] == "noSlip"
    with pytest.raises(FoamFormatError, match="names nothing"):
        openfoam.parse_dictionary("a $later; later 1;")


@pytest.mark.parametrize(
    "text", ['a #calc "1+1";', "#codeStream { code #{ system(0); #}; }", "x #eval{ 1 };", "code #{ 1 #};", "#neon 1;"]
)
def test_what_could_run_code_is_refused(text):
    with pytest.raises(FoamFormatError, match="refused"):
        openfoam.parse_dictionary(text)


def test_files_are_included_inside_the_case_only(tmp_path):
    case = tmp_path / "case"
    (case / "0").mkdir(parents=True)
    (case / "constant").mkdir()
    (tmp_path / "secret").write_text("key 1;")
    (case / "0" / "speed").write_text("speed 2;")
    (case / "constant" / "more").write_text("more 4;")
    main = case / "0" / "U"
    main.write_text('#include "speed"\ntwice $speed;\n#include "<constant>/more"\n#includeIfPresent "absent"\n')
    assert openfoam.read_dictionary(main, case) == {"speed": 2, "twice": 2, "more": 4}
    for text, message in (
        ('#include "../../secret"', "leads out of the case"),
        (f'#include "{tmp_path / "secret"}"', "leads out of the case"),
        ('#include "absent"', "does not exist"),
        ('#include "U"', "deep"),
    ):
        main.write_text(text)
        with pytest.raises(FoamFormatError, match=message):
            openfoam.read_dictionary(main, case)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1", "';'"),
        ("a { b 1;", "'}'"),
        ("a (1 2;", "unexpected|closed"),
        ("a [0 1", "closed"),
        ('a "b;', "never ends"),
        ("/* a", "never ends"),
        ("a uniform (1 b);", "number or a vector"),
        ("a nonuniform List<vector> 2 ((1 2 3));", "6 numbers"),
        ("a nonuniform List<scalar> 2 (1 b);", "not a number"),
        ("a nonuniform List<scalar> 99999999999 (1);", "99999999999"),
        ("a nonuniform List<scalar> 99999999999 {1};", "memory"),
        ("a nonuniform List<horse> 2 (1 2);", "horse"),
        ("a nonuniform 3 (1 2 3);", "type|List"),
        ("a div(phi;", "parenthesis"),
        ("}", "keyword"),
        ("a " + "(" * 100, "deep"),
        ("{" * 100, "keyword"),
        ("a " + "{ a " * 100, "deep"),
    ],
)
def test_malformed_text_is_an_error_that_names_file_and_line(text, message):
    with pytest.raises(FoamFormatError, match=message) as caught:
        openfoam.parse_dictionary(text, "0/U")
    assert "0/U, line 1" in str(caught.value)


@pytest.mark.parametrize("binary", [False, True])
@given(values=arrays(float, st.sampled_from([(0,), (1,), (7,), (1, 3), (5, 3)]), elements=st.floats(-1e300, 1e300)))
@settings(max_examples=30, deadline=None)
def test_lists_of_numbers_come_back_bit_by_bit(binary, values):
    header = {"format": "binary" if binary else "ascii", "arch": '"LSB;label=32;scalar=64"'}
    written = format_entry("FoamFile", header) + format_entry("value", NonUniform(values), binary=binary)
    read = openfoam.parse_dictionary(written)["value"]
    assert isinstance(read, NonUniform)
    np.testing.assert_array_equal(read.values, values.reshape(read.values.shape))


def test_short_forms_of_lists_are_read():
    entries = openfoam.parse_dictionary(
        "a nonuniform 0(); b nonuniform List<vector> 3{(1 2 3)}; c nonuniform List<scalar> 0(); d List<word> 2(x y);"
    )
    assert entries["a"].values.size == 0
    np.testing.assert_array_equal(entries["b"].values, [[1, 2, 3]] * 3)
    assert entries["c"].values.shape == (0,)
    assert entries["d"] == ["x", "y"]


@pytest.mark.slow
@given(content=st.one_of(st.binary(max_size=200), st.text('(){}[];"#$/* \n01a.-List<vector>uniform', max_size=80)))
@settings(max_examples=300, deadline=None)
def test_garbage_is_read_or_refused_but_nothing_else(content):
    with contextlib.suppress(FoamFormatError):
        assert isinstance(openfoam.parse_dictionary(content), dict)


# With OpenFOAM itself


@pytest.mark.openfoam
def test_the_dictionaries_that_come_with_openfoam_can_be_read(tutorials):
    files = (tutorials / "icoFoam").rglob("*")
    found = [path for path in files if path.is_file() and path.parent.name in ("0", "constant")]
    assert found
    for path in found:
        if path.suffix != ".gz":
            openfoam.read_dictionary(path, path.parents[1])


# Limits


def test_a_macro_finds_the_entry_of_a_regular_expression_as_openfoam_does():
    entries = openfoam.parse_dictionary('s { "(U|k)" { tolerance 1; } "(U|k)Final" { $U; relTol 0; } }')
    assert entries["s"]["(U|k)Final"] == {"tolerance": 1, "relTol": 0}


def test_files_that_include_many_others_come_to_an_end_at_once(tmp_path):
    for depth in range(7):
        (tmp_path / f"level{depth}").write_text(f'#include "level{depth + 1}"\n' * 12)
    (tmp_path / "level7").write_text("a 1;")
    with pytest.raises(FoamFormatError, match="includes more than 200 others"):
        openfoam.read_dictionary(tmp_path / "level0", tmp_path)
    (tmp_path / "few").write_text('#include "level6"\n#include "level7"\n')
    assert openfoam.read_dictionary(tmp_path / "few", tmp_path) == {"a": 1}


@pytest.mark.parametrize("form", ["a{0} ($a{1} $a{1});", "a{0} {{ x {{ $a{1}; }} y {{ $a{1}; }} }}"])
def test_macros_that_double_come_to_an_end_at_once(form):
    first = "a0 (1 1);" if "(" in form else "a0 { z 1; }"
    lines = [first, *(form.format(place, place - 1) for place in range(1, 60))]
    with pytest.raises(FoamFormatError, match="macros stand for more than"):
        openfoam.parse_dictionary("\n".join(lines))
    assert openfoam.parse_dictionary("\n".join(lines[:8]))["a7"]


def test_a_packed_field_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch):
    from pennpde.openfoam import dictionaries

    monkeypatch.setattr(dictionaries, "_SMALL", 10_000)
    (tmp_path / "U.gz").write_bytes(gzip.compress(b" " * 3_000_000 + b"a 1;"))
    with pytest.raises(FoamFormatError, match=r"U.gz unpacks to more than .*gunzip if it is meant"):
        openfoam.read_dictionary(tmp_path / "U")
    (tmp_path / "U.gz").write_bytes(gzip.compress(b" " * 9_000 + b"a 1;"))
    assert openfoam.read_dictionary(tmp_path / "U") == {"a": 1}
