"""Prediction from Python: names, paths and plain numbers go in, objects that show themselves come out."""

from typing import Any

import numpy as np
import pytest
import pyvista

import pennpde as penn
from any_time import AnyTime
from calibrated import made_up
from flow_problems import flow, square
from foam_cases import write_plane_channel

STEADY = penn.STEADY


class Known(AnyTime):
    """With errors of 2 %."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "checkpoint_calibrations", {"every level": made_up(0.02)})


@pytest.fixture(scope="module")
def outcome():
    return penn.predict(Known(), flow(square("quad", 6)), times=[1.0, 2.0], resolution="own")


@pytest.mark.parametrize(
    ("asked", "times"),
    [
        ({"times": 1.0}, (1.0,)),
        ({"times": np.array([1, 2])}, (1.0, 2.0)),
        ({"times": STEADY}, (STEADY,)),
        ({"steady": True}, (STEADY,)),
        ({"times": 2, "steady": True}, (2.0, STEADY)),
    ],
)
def test_times_are_a_number_or_several_and_the_steady_state(asked, times):
    assert penn.predict(AnyTime(), flow(square("quad", 4)), resolution="own", **asked).times == times


def test_fields_are_arrays_by_name(outcome):
    np.testing.assert_array_equal(outcome["p"], outcome.fields["p"].numpy())
    with pytest.raises(KeyError, match="no field 'w'; predicted are u, p"):
        outcome["w"]


def test_what_is_printed_fits_into_one_line(outcome):
    case = outcome.case
    for each in (outcome, case, case.mesh, case.operators["u"], case.dirichlet["u"], case.neumann["p"], outcome.plot()):
        assert len(repr(each)) < 160, repr(each)[:200]
        assert "\n" not in repr(each)
    assert "2 times, t = 1 to t = 2" in repr(outcome)


def test_a_prediction_becomes_a_grid_of_pyvista(outcome):
    grid = outcome.to_pyvista()
    assert isinstance(grid, pyvista.UnstructuredGrid)
    np.testing.assert_allclose(grid.point_data["p"], outcome["p"][:, -1], rtol=1e-6)


def test_a_prediction_plots_plays_and_shows_itself(outcome, tmp_path):
    picture = outcome.plot("p", path=tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes()[1:4] == b"PNG"
    assert picture._repr_png_()[1:4] == b"PNG"
    assert len(outcome.plot().figure.axes) == 2 * len(picture.figure.axes), "all fields without names"
    outcome.animate(tmp_path / "flow.gif")
    assert (tmp_path / "flow.gif").read_bytes()[:3] == b"GIF"
    shown = outcome._repr_html_()
    assert "iframe" in shown
    assert "&quot;times&quot;: [1.0, 2.0]" in shown, "all times play in the page"
    with pytest.raises(KeyError, match="no field 'w'"):
        outcome.plot("w")
    with pytest.raises(ValueError, match="takes several times"):
        outcome.at(0).animate(tmp_path / "one.gif")


def test_a_mesh_plots_its_patches(outcome, tmp_path):
    picture = outcome.case.mesh.plot(tmp_path / "mesh.pdf")
    labels = [text.get_text() for text in picture.figure.axes[0].get_legend().get_texts()]
    assert labels == list(outcome.case.mesh.patches)
    assert (tmp_path / "mesh.pdf").read_bytes()[:4] == b"%PDF"
    with pytest.raises(ValueError, match=r"cannot be written as \.jpg; its name ends in \.png, \.pdf, \.svg"):
        outcome.case.mesh.plot(tmp_path / "mesh.jpg")


def test_meshes_are_read_from_paths_and_from_pyvista(outcome, tmp_path):
    outcome.case.mesh.save(tmp_path / "mesh.vtu")
    for source in (tmp_path / "mesh.vtu", str(tmp_path / "mesh.vtu"), pyvista.read(tmp_path / "mesh.vtu")):
        mesh = penn.read(source)
        np.testing.assert_allclose(mesh.points.numpy(), outcome.case.mesh.points.numpy())
        assert mesh.patches.keys() == outcome.case.mesh.patches.keys()
    with pytest.raises(TypeError, match="A list is not a mesh; give a path or a PyVista dataset"):
        penn.read([1, 2])  # pyright: ignore[reportArgumentType]


def test_patches_are_chosen_as_in_problem_files():
    mesh = square("quad", 4)
    bare = penn.Mesh.from_arrays(mesh.points, mesh.connectivity.reshape(-1, 4))
    named = bare.with_patches(
        {"wall": "rest", "left": "x == 0", "corner": {"box": [[0.9, 0.9], [1.1, 1.1]]}, "low": "y == 0 and x > 0"}
    )
    assert {name: len(patch.points) for name, patch in named.patches.items() if name != "wall"} == {
        "left": 5,
        "corner": 1,
        "low": 4,
    }
    taken = sum(len(patch.facets) for patch in named.patches.values())
    assert taken == len(named.facets), "every facet has one patch"


def test_an_openfoam_case_is_read_by_its_folder(tmp_path):
    folder = write_plane_channel(tmp_path / "channel")
    case = penn.Case.from_openfoam(folder)
    assert case.initial.keys() == {"u", "p"}
    assert float(case.parameters["viscosity"]) > 0
    by_path = penn.predict(AnyTime(), folder, times=1.0, resolution="own")
    np.testing.assert_array_equal(by_path.case.mesh.points.numpy(), case.mesh.points.numpy())


CHANNEL: Any = square("quad", 4)
LOOSE: Any = penn
"""What no type checker would let pass."""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: LOOSE.predict(flow(CHANNEL), "flow"), "network is given as a Case; give its name first"),
        (lambda: LOOSE.predict(AnyTime(), flow(CHANNEL), times="soon"), "times are 'soon'; give a number"),
        (lambda: LOOSE.predict(AnyTime(), flow(CHANNEL), length="wide"), "reference length is 'wide'; give a number"),
        (lambda: LOOSE.predict(AnyTime(), flow(CHANNEL), accuracy="fast"), "accuracy is 'fast'; it is in per cent"),
        (lambda: CHANNEL.with_patches(["inlet"]), r"patches are \['inlet'\]; give them by name"),
        (lambda: LOOSE.Case("duct.vtu", {"T": 0.0}), r"given as 'duct\.vtu'; read it first"),
        (lambda: LOOSE.Case(CHANNEL, 3), "initial is 3; it is given by name"),
        (lambda: LOOSE.Case(CHANNEL, {"u": (1.0, 0.0)}, slip={"u": 3}), "slip.* is 3; give the name of a patch"),
        (lambda: LOOSE.Operators.on(flow(CHANNEL)), r"made on a mesh, as of penn\.read"),
        (lambda: LOOSE.load_pretrained(3), "network is 3; give its name"),
    ],
)
def test_wrong_arguments_are_told_in_sentences(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        given()


def test_what_is_no_case_is_refused_in_words():
    with pytest.raises(TypeError, match="takes a Case or the folder of an OpenFOAM case, not an int"):
        penn.predict(AnyTime(), 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileNotFoundError, match="no network 'folw'"):
        penn.predict("folw", flow(square("quad", 4)))
