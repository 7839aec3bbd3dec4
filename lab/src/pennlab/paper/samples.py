"""The authors' samples, as .npz files: one problem with its mesh, fields, conditions and scaled inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from pennlab.released.layers import Inputs, Prescribed
from pennlab.released.weights import read_arrays
from pennpde.case import Case, Dirichlet
from pennpde.mesh import Mesh
from pennpde.operators import Operators
from pennpde.operators.sparse import SparseMatrix

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


@dataclass(frozen=True, eq=False)
class Sample:
    """One of the authors' samples, as their network had it and as a case of ours."""

    name: str
    problem: Literal["flow", "advection_diffusion"]
    inputs: Inputs
    """Stored operators and scaled fields, for `forward_scaled`: what reproduces the authors' outputs."""
    case: Case
    """The same problem on its mesh, physical values; the network assembles operators for it itself."""


def read_sample(path: str | Path, dtype: torch.dtype = torch.float64) -> Sample:
    """Read a sample: points and cells, conditions, fields, and the authors' scaled inputs.

    The file is an .npz with `points`, `hex` and perhaps `prism`, and under `scaled_*` the inputs of the network.
    """
    path = Path(path)
    arrays = read_arrays(path)
    reader = _SampleReader(path, arrays)
    problem = "flow" if "u" in arrays else "advection_diffusion"
    if problem == "flow":
        inputs, case = reader.flow_inputs(), reader.flow_case()
    else:
        inputs, case = reader.advection_diffusion_inputs(), reader.advection_diffusion_case()
    return Sample(path.stem, problem, inputs.to(dtype), case)


@dataclass(frozen=True, eq=False)
class _SampleReader:
    path: Path
    arrays: Mapping[str, np.ndarray]

    def flow_inputs(self) -> Inputs:
        return Inputs(
            operators=self._operators().composed(),
            smoothing=SparseMatrix.from_scipy(self._matrix("gcn")),
            geometry=self._field("scaled_wall"),
            initial={"u": self._field("scaled_u_initial"), "p": self._field("scaled_p_initial")},
            prescribed={"u": self._prescribed("u"), "p": self._prescribed("p")},
            sizes=(self._number,),
        )

    def advection_diffusion_inputs(self) -> Inputs:
        scalars = [self._field("scaled_diffusion"), self._field("scaled_velocity_norm")]
        return Inputs(
            operators=self._operators(),
            geometry=torch.cat([self._field("scaled_wall"), torch.stack(scalars, dim=1)], dim=1),
            initial={"T": self._field("scaled_T_initial")},
            prescribed={"T": self._prescribed("T")},
            velocity=self._field("scaled_velocity"),
            sizes=(self._number,),
        )

    def flow_case(self) -> Case:
        velocity, pressure = self._dirichlet("u"), self._dirichlet("p")
        moving = (velocity.values != 0).any(dim=1)
        patches = {"inlet": moving, "wall": velocity.mask & ~moving, "outlet": pressure.mask}
        u, p = self._field("u"), self._field("p")
        return Case(
            self._mesh(patches),
            initial={"u": u[0], "p": p[0]},
            dirichlet={"u": velocity, "p": pressure},
            parameters={"viscosity": 1e-3},
            features={"wall_distance": self._distance()},
            targets={"u": u[-1], "p": p[-1]},
            name=self.path.stem,
        )

    def advection_diffusion_case(self) -> Case:
        condition = self._dirichlet("T")
        return Case(
            self._mesh({"inlet": condition.mask}),
            initial={"T": self._field("T_initial")},
            dirichlet={"T": condition},
            parameters={"velocity": self._field("velocity")[0], "diffusivity": self._field("diffusion")[0]},
            features={"inlet_distance": self._distance()},
            targets={"T": self._field("T")[1:].T},
            name=self.path.stem,
        )

    @property
    def _number(self) -> int:
        return len(self._array("points"))

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise ValueError(
                f"{self.path} is not a sample of the authors: it lacks {name!r}. It has {sorted(self.arrays)}."
            )
        return self.arrays[name]

    def _field(self, name: str) -> Tensor:
        return torch.from_numpy(self._array(name).astype(np.float64))

    def _operators(self) -> Operators:
        return Operators.from_matrices([self._matrix(f"scaled_grad_{axis}") for axis in "xyz"])

    def _matrix(self, name: str) -> csr_matrix:
        from scipy.sparse import csr_matrix

        rows, columns, values = (self._array(f"{name}_{part}") for part in ("row", "col", "value"))
        return csr_matrix((values.astype(np.float64), (rows, columns)), shape=(self._number, self._number))

    def _prescribed(self, name: str) -> Prescribed:
        mask = torch.from_numpy(self._array(f"{name}_dirichlet_mask"))
        values = self._field(f"scaled_{name}_dirichlet_value")
        return Prescribed(mask, torch.where(mask, values, torch.zeros_like(values)))

    def _dirichlet(self, name: str) -> Dirichlet:
        mask, values = self._array(f"{name}_dirichlet_mask"), self._field(f"{name}_dirichlet_value")
        whole = torch.from_numpy(mask.reshape(len(mask), -1).all(axis=1))
        if (mask.reshape(len(mask), -1).any(axis=1) != whole.numpy()).any():
            raise ValueError(
                f"{self.path} prescribes single components of {name!r}; a case prescribes points whole. Its scaled "
                "inputs can still be used with forward_scaled."
            )
        mask = whole.reshape(-1, *[1] * (values.ndim - 1))
        return Dirichlet(whole, torch.where(mask, values, torch.zeros_like(values)))

    def _mesh(self, patches: Mapping[str, Tensor]) -> Mesh:
        cells = {ours: self.arrays.get(theirs) for theirs, ours in (("hex", "hexahedron"), ("prism", "wedge"))}
        mesh = Mesh.from_arrays(
            self._array("points"),
            {name: given.astype(np.int64) for name, given in cells.items() if given is not None and len(given)},
        )
        return mesh.with_patches({name: mask for name, mask in patches.items() if bool(mask.any())})

    def _distance(self) -> Tensor:
        # Stored as exp(-2 d), in single precision: of the three levels the one that gives d best.
        return -0.5 * torch.log(self._field("wall_level2"))
