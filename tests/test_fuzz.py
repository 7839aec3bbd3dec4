"""Whatever is in a file: it is read, or refused with an error of ours; nothing else, and in time.

Some examples always; many of them, for some minutes, with `pytest -m deep tests/test_fuzz.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commands import store
from foam_cases import read_flow, write_brick, write_conditions
from pennlab.datasets.packing import write_shard
from pennpde import openfoam
from pennpde.case.problem_files import problem_from, read_problem
from pennpde.checkpoints import CheckpointError, load
from pennpde.data import storage, vtkhdf
from pennpde.data.storage import DatasetError
from pennpde.data.vtkhdf import CaseFileError
from pennpde.mesh.formulas import parse_selection
from pennpde.openfoam import FoamFormatError
from problems import heated_plate, rectangle

pytestmark = pytest.mark.slow  # CI runs them

MESH = rectangle((3, 2))
LONGEST = 20.0
"""Seconds that one example may take on a busy machine; a hang takes longer."""


@contextmanager
def in_time() -> Iterator[None]:
    def late(*_: object) -> None:
        raise TimeoutError(f"no answer within {LONGEST:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def examples(short: int, long: int) -> pytest.MarkDecorator:
    """A few examples always, many behind the mark `deep`."""
    return pytest.mark.parametrize("count", [short, pytest.param(long, marks=pytest.mark.deep)], ids=["short", "long"])


def bounded(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,  # `in_time` keeps the time, whatever else the machine does
        derandomize=count < 1000,  # the short run is the same each day; the long one looks further
        database=None,
        suppress_health_check=list(HealthCheck),
    )


# What is put into files

SELECTION_WORDS = "x y z r w and or not ( ) < <= > >= == != = 0 1 -1 .5 1e-3 1e999 nan # ' é ٣"
PIECES = st.sampled_from([*SELECTION_WORDS.split(), '"', "\n", "\x00"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """A selection that is right, with its meaning."""
    if depth == 0 or draw(st.booleans()):
        axis, sign = draw(st.sampled_from([0, 1])), draw(st.sampled_from(["<", "<=", ">", ">="]))
        number = draw(st.floats(-2, 2).filter(lambda value: abs(value) > 1e-3 or value == 0))
        meaning = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign]
        return f"{'xy'[axis]} {sign} {number!r}", lambda x: meaning(x[:, axis], number)
    kind = draw(st.sampled_from(["not", "and", "or"]))
    first_text, first = draw(expressions(depth - 1))
    if kind == "not":
        return f"not ({first_text})", lambda x: ~first(x)
    second_text, second = draw(expressions(depth - 1))
    join = np.logical_and if kind == "and" else np.logical_or
    return f"({first_text}) {kind} ({second_text})", lambda x: join(first(x), second(x))


NAMES = st.sampled_from(["u", "p", "T", "inlet", "outlet", "side", "wall", "rest", "marker", ""])
NUMBERS = st.one_of(st.integers(), st.integers(-3, 3), st.floats(), st.sampled_from([10**400, -(10**309), True]))
LEAVES = st.one_of(NUMBERS, NAMES, st.text(max_size=8), st.sampled_from(["x == 0", "y < 0.5", "rest", "x = 0"]))
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=3))
PATCHES = st.dictionaries(
    NAMES,
    VALUES
    | st.fixed_dictionaries({"box": st.lists(st.lists(NUMBERS, max_size=3), max_size=3)})
    | st.fixed_dictionaries({"half_space": st.fixed_dictionaries({"point": VALUES, "normal": st.lists(NUMBERS)})})
    | st.fixed_dictionaries({"array": VALUES, "equals": VALUES}),
    max_size=3,
)
PROBLEMS = st.fixed_dictionaries(
    {},
    optional={
        "patches": PATCHES | VALUES,
        "dirichlet": st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=3) | VALUES,
        "neumann": st.dictionaries(NAMES, VALUES, max_size=3) | VALUES,
        "slip": st.dictionaries(NAMES, VALUES, max_size=2) | VALUES,
        "initial": st.dictionaries(NAMES, VALUES, max_size=3) | VALUES,
        "parameters": st.dictionaries(NAMES, VALUES, max_size=3) | VALUES,
        "other": VALUES,
    },
)

TOML = """[patches]
inlet = "x == 0 and not (y > 2)"
out = { box = [[0.9, -1], [1.1, 3]] }
top = { half_space = { point = [0, 1], normal = [0, 1] } }
wall = "rest"
[dirichlet.u]
inlet = [1.0, 0.0]
wall = 0.0
[neumann]
u = 0.0
[initial]
p = 1e-3
[parameters]
viscosity = 0.5
"""

FOAM_SYNTAX = "{ } ( ) [ ] ; a $a ${a} $:a.b #include #calc // /* */ \\ 3 2 99999999999 -1 1e-3 0() nan"
FOAM_KEYWORDS = "uniform nonuniform List<scalar> List<vector> FoamFile format binary ascii internalField type"
FOAM_WORDS = st.sampled_from([*FOAM_SYNTAX.split(), *FOAM_KEYWORDS.split(), '"', " ", "\n", "\xff"])


@st.composite
def edits(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A change that files suffer: another digit, bytes that flip, ends that are lost, parts that come twice."""
    kind = draw(st.sampled_from(["digit", "flip", "cut", "twice", "remove", "insert", "swap"]))
    where, length = draw(st.floats(0, 1)), draw(st.integers(1, 60))
    noise = draw(st.binary(min_size=1, max_size=8))
    words = draw(FOAM_WORDS).encode()

    def change(content: bytes) -> bytes:
        start = int(where * len(content))
        end = min(start + length, len(content))
        if kind == "digit":
            found = re.compile(rb"[0-9]").search(content, start)
            return (
                content if found is None else content[: found.start()] + b"%d" % (length % 10) + content[found.end() :]
            )
        if kind == "flip":
            return content[:start] + noise + content[start + len(noise) :]
        if kind == "cut":
            return content[:start]
        if kind == "twice":
            return content[:end] + content[start:]
        if kind == "remove":
            return content[:start] + content[end:]
        if kind == "insert":
            return content[:start] + words + content[start:]
        return content[start:] + content[:start]

    return change


def changed(content: bytes, changes: list[Callable[[bytes], bytes]]) -> bytes:
    for change in changes:
        content = change(content)
    return content


# Selections and case files


@examples(150, 8_000)
def test_a_selection_is_understood_or_refused(count):
    @bounded(count)
    @given(st.lists(PIECES, max_size=14).map(" ".join) | st.text(max_size=30))
    def law(text):
        with in_time(), suppress(ValueError):
            chosen = parse_selection(text)(MESH.points.numpy())
            assert chosen.shape == (MESH.number_of_points,)
            assert chosen.dtype == bool

    law()


@examples(60, 3_000)
def test_a_right_selection_means_what_it_says(count):
    @bounded(count)
    @given(expressions())
    def law(expression):
        text, meaning = expression
        points = MESH.points.numpy()
        np.testing.assert_array_equal(parse_selection(text)(points), meaning(points))

    law()


@examples(80, 5_000)
def test_the_sections_of_a_case_file_give_a_case_or_a_value_error(count):
    @bounded(count)
    @given(PROBLEMS)
    def law(problem):
        with in_time(), suppress(ValueError):
            case = problem_from(problem, MESH)
            assert all(values.isfinite().all() for values in case.initial.values())

    law()


@examples(60, 5_000)
def test_a_damaged_case_file_gives_a_case_or_a_value_error(count, tmp_path):
    path = tmp_path / "case.toml"

    @bounded(count)
    @given(st.lists(edits(), min_size=1, max_size=4))
    def law(changes):
        path.write_bytes(changed(TOML.encode(), changes))
        with in_time(), suppress(ValueError):
            read_problem(path, MESH)

    law()


# OpenFOAM's files


@examples(200, 15_000)
def test_a_dictionary_of_any_words_is_read_or_refused(count):
    @bounded(count)
    @given(st.lists(FOAM_WORDS, max_size=30).map(" ".join) | st.binary(max_size=100))
    def law(content):
        with in_time(), suppress(FoamFormatError):
            assert isinstance(openfoam.parse_dictionary(content), dict)

    law()


@pytest.mark.parametrize("binary", [False, True])
@examples(100, 5_000)
def test_a_damaged_field_is_read_or_refused(count, binary, tmp_path):
    path = tmp_path / "U"
    if binary:
        openfoam.write_field(path, np.ones((5, 3)), openfoam.VELOCITY, {"left": {"type": "noSlip"}})
    else:
        text = "dimensions [0 1 -1 0 0 0 0]; internalField nonuniform List<vector> 2((1 0 0)(0 1 0));"
        path.write_text(f"FoamFile {{ format ascii; }}\n{text}\nboundaryField {{ left {{ type noSlip; }} }}\n")
    sound = path.read_bytes()

    @bounded(count)
    @given(st.lists(edits(), min_size=1, max_size=3))
    def law(changes):
        path.write_bytes(changed(sound, changes))
        with in_time(), suppress(FoamFormatError):
            field = openfoam.read_field(path)
            field.values(5)

    law()


@pytest.mark.parametrize("binary", [False, True])
@examples(40, 2_000)
def test_a_damaged_case_is_read_or_refused(count, binary, tmp_path):
    sound = write_brick(tmp_path / "sound", (2, 2, 1), binary=binary, types={"front": "empty", "back": "empty"})
    inlet, outlet = {"left": "type fixedValue; value uniform (1 0 0);"}, {"right": "type fixedValue; value uniform 0;"}
    write_conditions(sound, "U", "uniform (0 0 0)", {'".*"': "type noSlip;"} | inlet)
    write_conditions(sound, "p", "uniform 0", {'".*"': "type zeroGradient;"} | outlet)
    read_flow(sound)
    files = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file())
    contents = {name: (sound / name).read_bytes() for name in files}
    folder = shutil.copytree(sound, tmp_path / "damaged")

    @bounded(count)
    @given(st.sampled_from(files), st.lists(edits(), min_size=1, max_size=2))
    def law(name, changes):
        (folder / name).write_bytes(changed(contents[name], changes))
        try:
            # Errors of the format, of the mesh, of files that are not there.
            with in_time(), suppress(ValueError, FileNotFoundError):
                read_flow(folder)
        finally:
            (folder / name).write_bytes(contents[name])

    law()


# Datasets and networks


@pytest.fixture
def dataset(tmp_path) -> Path:
    plate = replace(heated_plate(cells=(2, 2), targets=True), name="plate")
    storage.write(tmp_path / "data", [plate])
    return tmp_path / "data"


@examples(80, 3_000)
def test_a_damaged_manifest_is_read_or_refused(count, dataset):
    path = dataset / storage.MANIFEST
    sound = path.read_bytes()

    @bounded(count)
    @given(st.lists(edits(), min_size=1, max_size=3))
    def law(changes):
        path.write_bytes(changed(sound, changes))
        with in_time(), suppress(DatasetError):
            storage.read(dataset)

    law()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@examples(80, 3_000)
def test_a_manifest_with_any_values_is_read_or_refused(count, dataset):
    path = dataset / storage.MANIFEST
    sound = json.loads(path.read_text())

    @bounded(count)
    @given(st.dictionaries(st.sampled_from([*sound]), JSON, min_size=1, max_size=2))
    def law(values):
        path.write_text(json.dumps(sound | values))
        with in_time(), suppress(DatasetError):
            storage.read(dataset)
            with suppress(KeyError):  # no such split
                storage.read(dataset, "train")

    law()


@examples(60, 3_000)
def test_a_damaged_shard_is_read_or_refused(count, tmp_path):
    plates = [replace(heated_plate(cells=cells, targets=True), name=f"plate_{cells[1]}") for cells in ((2, 2), (2, 3))]
    sound, _ = write_shard((plate.name, vtkhdf.pack(plate)) for plate in plates)
    path = tmp_path / "shard.vtkhdf"

    @bounded(count)
    @given(st.lists(edits(), min_size=1, max_size=3))
    def law(changes):
        path.write_bytes(changed(sound, changes))
        with in_time(), suppress(CaseFileError), vtkhdf.Shard(path) as shard:
            for plate in plates:
                shard.read(plate.name)

    law()


@examples(100, 5_000)
def test_a_damaged_file_of_a_case_is_read_or_refused(count):
    sound = vtkhdf.pack(replace(heated_plate(cells=(2, 2), targets=True), name="plate"))

    @bounded(count)
    @given(st.lists(edits(), min_size=1, max_size=3))
    def law(changes):
        with in_time(), suppress(CaseFileError):
            vtkhdf.unpack(changed(sound, changes), "plate", {})

    law()


@examples(60, 2_000)
def test_a_damaged_network_is_loaded_or_refused(count, tmp_path):
    folder = store(tmp_path / "network")
    files = [folder / "config.json", folder / "model.safetensors"]
    contents = {path: path.read_bytes() for path in files}

    @bounded(count)
    @given(st.sampled_from(files), st.lists(edits(), min_size=1, max_size=2))
    def law(path, changes):
        path.write_bytes(changed(contents[path], changes))
        try:
            with in_time(), suppress(CheckpointError):
                load(folder)
        finally:
            path.write_bytes(contents[path])

    law()


@examples(60, 2_000)
def test_a_configuration_with_any_values_is_loaded_or_refused(count, tmp_path):
    folder = store(tmp_path / "network")
    path = folder / "config.json"
    sound = json.loads(path.read_text())

    @bounded(count)
    @given(st.dictionaries(st.sampled_from([*sound]), JSON, min_size=1, max_size=2))
    def law(values):
        path.write_text(json.dumps(sound | values))
        with in_time(), suppress(CheckpointError):
            load(folder)

    law()
