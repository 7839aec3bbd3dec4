"""Physics-embedded neural networks: equivariant networks on meshes that obey boundary conditions exactly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennpde.case import (
        Across,
        Case,
        Components,
        Condition,
        Dirichlet,
        Neumann,
        Periodic,
        Remark,
        Robin,
        Slip,
        StressFree,
        Table,
        TotalPressure,
        batch,
    )
    from pennpde.checkpoints import Config, load_pretrained, save
    from pennpde.mesh import Mesh, read
    from pennpde.operators import Operators
    from pennpde.penn import PENN, SCALAR, STEADY, TENSOR, VECTOR, Equation, Predictor
    from pennpde.penn.nisogcn import Divergence, Gradient, Laplacian, dot
    from pennpde.penn.solver import BarzilaiBorwein
    from pennpde.prediction import Outcome, predict
    from pennpde.study import Study
    from pennpde.study.optimisation import Optimum, optimise
    from pennpde.train import fit

__version__ = "0.2.0"

__all__ = [
    "PENN",
    "SCALAR",
    "STEADY",
    "TENSOR",
    "VECTOR",
    "Across",
    "BarzilaiBorwein",
    "Case",
    "Components",
    "Condition",
    "Config",
    "Dirichlet",
    "Divergence",
    "Equation",
    "Gradient",
    "Laplacian",
    "Mesh",
    "Neumann",
    "Operators",
    "Optimum",
    "Outcome",
    "Periodic",
    "Predictor",
    "Remark",
    "Robin",
    "Slip",
    "StressFree",
    "Study",
    "Table",
    "TotalPressure",
    "batch",
    "dot",
    "fit",
    "load_pretrained",
    "optimise",
    "predict",
    "read",
    "save",
]

# Names are loaded at first use (PEP 562): `penn --help` and tab completion must not wait for torch.
# A new name goes here, into the imports above, where type checkers and editors find it, and into `__all__`.
_NAMES_OF = {
    "case": "Across Case Components Condition Dirichlet Neumann Periodic Remark Robin Slip StressFree Table "
    "TotalPressure batch",
    "checkpoints": "Config load_pretrained save",
    "mesh": "Mesh read",
    "operators": "Operators",
    "study.optimisation": "Optimum optimise",
    "penn": "PENN SCALAR STEADY TENSOR VECTOR Equation Predictor",
    "penn.nisogcn": "Divergence Gradient Laplacian dot",
    "penn.solver": "BarzilaiBorwein",
    "prediction": "Outcome predict",
    "study": "Study",
    "train": "fit",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pennpde' has no attribute {name!r}; its names are {sorted(_MODULE_OF)}")
    value = getattr(import_module(f"pennpde.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
