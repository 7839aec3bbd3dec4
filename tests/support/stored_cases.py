"""Cases with every part that a file must keep, and what readers and viewers make of their files."""

import numpy as np
import torch
from torch.testing import assert_close

from meshes import box
from pennpde.case import Case

EXACT = {"rtol": 0, "atol": 0}


def some_case(kind="quad", name="some", times=2, seed=0):
    """A case with every part that a case can have, whose fields are exact in single precision."""
    random = np.random.default_rng(seed)
    mesh = box(kind, jitter=0.2)
    low = mesh.points[:, 0] < 1e-9
    high = mesh.points[:, 0] > 1 - 1e-9
    mesh = mesh.with_patches({"inlet": low.numpy(), "outlet": high.numpy()})
    # A patch whose facets do not follow from its points.
    side = mesh.facets.take(np.flatnonzero(mesh.facet_normals[:, 1].numpy() > 0.5)[:2])
    mesh = mesh.with_patch_facets({"lid": np.split(side.connectivity, side.offsets[1:-1])})
    points, space = mesh.number_of_points, mesh.space

    def field(*axes):
        return torch.from_numpy(random.normal(size=(points, *axes)).astype(np.float32)).double()

    return Case(
        mesh,
        initial={"u": field(space), "p": field()},
        dirichlet={"u": {"inlet": (0.1,) * space}, "p": {"outlet": 0.3}},
        neumann={"u": {"outlet": 0.7}, "p": 0.0},
        slip={"u": ["lid"]},
        parameters={"viscosity": 1e-3, "velocity": (0.1,) * space},
        features={"distance": field(), "metric": field(space, space)},
        targets={"u": field(space, times), "p": field(times), "vorticity": field()},
        name=name,
    )


def assert_same_case(found, expected):
    assert found.name == expected.name
    assert found.sizes == expected.sizes
    for part in ("initial", "parameters", "features", "targets"):
        assert list(getattr(found, part)) == list(getattr(expected, part))
        for name, values in getattr(expected, part).items():
            assert_close(getattr(found, part)[name], values, **EXACT)
    for part, attributes in (
        ("dirichlet", ("mask", "values")),
        ("neumann", ("mask", "normals", "normal_derivative")),
        ("slip", ("mask", "normals")),
    ):
        assert list(getattr(found, part)) == list(getattr(expected, part))
        for name, condition in getattr(expected, part).items():
            for attribute in attributes:
                assert_close(getattr(getattr(found, part)[name], attribute), getattr(condition, attribute), **EXACT)
    assert_same_mesh(found.mesh, expected.mesh)


def assert_same_mesh(found, expected):
    assert_close(found.points, expected.points, **EXACT)
    for name in ("connectivity", "offsets", "cell_types"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    assert (found.polyhedron_faces is None) == (expected.polyhedron_faces is None)
    if expected.polyhedron_faces is not None:
        for name in ("connectivity", "offsets", "cells"):
            assert np.array_equal(getattr(found.polyhedron_faces, name), getattr(expected.polyhedron_faces, name))
    assert list(found.patches) == list(expected.patches)
    for name, patch in expected.patches.items():
        assert np.array_equal(found.patches[name].points, patch.points)
        assert np.array_equal(found.patches[name].facets, patch.facets)


def frames_of(path):
    """What VTK's own reader gives at each time."""
    import pyvista
    from vtkmodules.vtkCommonExecutionModel import vtkStreamingDemandDrivenPipeline
    from vtkmodules.vtkIOHDF import vtkHDFReader

    reader = vtkHDFReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    times = reader.GetOutputInformation(0).Get(vtkStreamingDemandDrivenPipeline.TIME_STEPS()) or [None]
    for time in times:
        if time is None:
            reader.Update()
        else:
            reader.UpdateTimeStep(time)
        yield time, pyvista.wrap(reader.GetOutputDataObject(0)).copy()
