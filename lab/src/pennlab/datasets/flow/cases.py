"""Incompressible flow through ducts: the cases of the paper's third experiment, on coarse plane meshes.

Generation has two stages: `solve` runs OpenFOAM on a fine mesh (about a minute) and writes a run file; `case_from_run`
makes the Case of a coarse mesh from it in a moment.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from pennlab.datasets.flow.ducts import all_names, with_potential_flow
from pennlab.datasets.flow.truth import END_TIME, PROFILES, TIMES, Run, is_complete, read_run, solve
from pennlab.datasets.profile import Profile
from pennpde.case import Case
from pennpde.mesh import Mesh
from pennpde.mesh.cells import HEXAHEDRON, WEDGE, offsets_of
from pennpde.models.designs import (
    CELLS_PER_LENGTH,
    INLET_VELOCITY,
    JITTER,
    Duct,
    case_name,
    coarse_mesh,
    duct,
    flow_case,
    flow_through,
    parse_name,
)

__all__ = [
    "CELLS_PER_LENGTH",
    "END_TIME",
    "JITTER",
    "PROFILES",
    "TIMES",
    "Duct",
    "Profile",
    "Run",
    "all_names",
    "case_from_run",
    "case_name",
    "case_on_mesh",
    "coarse_mesh",
    "duct",
    "extruded",
    "fields_at",
    "flow_case",
    "flow_through",
    "is_complete",
    "parse_name",
    "read_run",
    "solve",
    "splits",
    "splits_off_lattice",
    "with_potential_flow",
]

THICKNESS = 0.05
SPLIT_SIZES = {"a": (7, 2, 2), "b": (93, 14, 14), "c": (103, 9, 9)}
"""Training, validation and test cases of each type, as in the paper: 203, 25 and 25 in all."""


OFF_LATTICE = {
    "a": ((0.25,), (0.75,)),
    "b": ((0.15, 0.95), (0.25, 0.55), (0.55, 0.25), (0.75, 0.85), (0.85, 0.05)),
    "c": ((0.15, 0.95), (0.25, 0.65), (0.45, 0.05), (0.55, 0.75), (0.85, 0.35)),
}
"""Design parameters of a second test set, half-way between those of the lattice. No case is a mirror image of another
one, which eight of the nine test cases of type C are of a training case."""


def splits_off_lattice() -> dict[str, list[str]]:
    """The second test set."""
    return {"test": [case_name(kind, values) for kind, some in OFF_LATTICE.items() for values in some]}


def splits(seed: int = 0) -> dict[str, list[str]]:
    """The 253 cases, split into train, validation and test within each type."""
    random = np.random.default_rng([seed, zlib.crc32(b"splits")])
    dealt: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for kind, sizes in SPLIT_SIZES.items():
        names = [name for name in all_names() if name.startswith(kind)]
        order = [names[place] for place in random.permutation(len(names))]
        for split, size in zip(dealt, sizes, strict=True):
            dealt[split] += sorted(order[:size])
            order = order[size:]
    return dealt


def case_from_run(
    run_file: Path | str,
    seed: int = 0,
    cells_per_length: float = CELLS_PER_LENGTH,
    jitter: float = JITTER,
    frames: bool = False,
    thick: bool = False,
) -> Case:
    """The case of a run file on its coarse mesh, with the truth interpolated linearly to the points.

    Args:
        run_file: written by `solve`.
        seed: of the jitter.
        cells_per_length: of the coarse mesh.
        jitter: as for `coarse_mesh`.
        frames: whether the targets hold all 41 times, u [points, 2, 41] and p [points, 41], instead of only t = 4.
        thick: whether the mesh is to be one cell thick in space, as the released networks want it.
    """
    run = read_run(run_file, frames)
    mesh = coarse_mesh(str(run.facts["name"]), seed, cells_per_length, jitter)
    return case_on_mesh(run, mesh, frames, thick)


def case_on_mesh(run: Run, mesh: Mesh, frames: bool = False, thick: bool = False) -> Case:
    """The case of a run on any plane mesh of its duct with the patches inlet, wall and outlet.

    Args:
        run: from `read_run`.
        mesh: may have any cells; its points lie in the duct.
        frames: whether the targets hold all times of the run, as for `case_from_run`, instead of the last.
        thick: as for `case_from_run`.
    """
    u, p = fields_at(run, mesh.points.numpy())
    u[mesh.patch("inlet").points] = np.array(INLET_VELOCITY)[:, None]
    u[mesh.patch("wall").points] = 0.0
    p[mesh.patch("outlet").points] = 0.0
    if not frames:
        u, p = u[..., -1], p[..., -1]
    name = str(run.facts["name"])
    case = flow_case(mesh, name, {"u": torch.from_numpy(u), "p": torch.from_numpy(p)})
    if not thick:
        return case

    targets = {"u": torch.from_numpy(np.concatenate([u, np.zeros_like(u[:, :1])], axis=1).repeat(2, axis=0))}
    targets["p"] = torch.from_numpy(p.repeat(2, axis=0))
    # The flow at the start is the plane one: cells in space are cut into tetrahedra, which gives another one.
    start = case.initial["u"].repeat_interleave(2, dim=0)
    start = torch.cat([start, torch.zeros_like(start[:, :1])], dim=1)
    made = flow_case(extruded(mesh), name, targets)
    return replace(made, initial={**made.initial, "u": start})


def fields_at(
    run: Run, points: Float[np.ndarray, "points 2"]
) -> tuple[Float[np.ndarray, "points 2 times"], Float[np.ndarray, "points times"]]:
    """Velocity and pressure of a run at points of its domain, at all of its times."""
    matrix = run.mesh.interpolation(points)
    velocity = run.mesh.samples(
        np.moveaxis(run.velocity, 0, 2), {"inlet": np.array(INLET_VELOCITY)[:, None], "wall": 0}
    )
    pressure = run.mesh.samples(np.moveaxis(run.pressure, 0, 1), {"outlet": 0.0})
    u = (matrix @ velocity.reshape(len(velocity), -1)).reshape(len(points), 2, -1)
    return u, matrix @ pressure


def extruded(mesh: Mesh, thickness: float = THICKNESS) -> Mesh:
    """A plane mesh one cell thick, as OpenFOAM has plane cases: its two flat sides are the patch `frontAndBack`.

    From z = 0 upwards; each point is followed by its copy above it. Patches stand upright on those of the plane mesh.
    """
    corners = np.diff(mesh.offsets)
    connectivity, sizes, types, sides = [], [], [], []
    for size, solid in ((3, WEDGE), (4, HEXAHEDRON)):
        below = 2 * mesh.connectivity[mesh.offsets[:-1][corners == size, None] + np.arange(size)]
        connectivity.append(np.concatenate([below, below + 1], axis=1).ravel())
        sizes.append(np.full(len(below), 2 * size))
        types.append(np.full(len(below), solid, dtype=np.uint8))
        sides += [*below, *(below + 1)]
    height = torch.tensor([0.0, thickness], dtype=mesh.points.dtype).repeat(mesh.number_of_points)
    points = torch.cat([mesh.points.detach().repeat_interleave(2, dim=0), height[:, None]], dim=1)
    # The plane mesh was checked and runs counter-clockwise, so what stands on it is sound.
    thick = Mesh(points, np.concatenate(connectivity), offsets_of(np.concatenate(sizes)), np.concatenate(types))
    edges = {name: mesh.facets.take(patch.facets).connectivity.reshape(-1, 2) for name, patch in mesh.patches.items()}
    upright = {
        name: np.concatenate([2 * each, 2 * each[:, ::-1] + 1], axis=1) for name, each in edges.items() if len(each)
    }
    return thick.with_patch_facets({**upright, "frontAndBack": sides})
