"""Physics-embedded neural networks: equivariant networks on meshes that obey boundary conditions exactly."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennpde.case import Across as Across
    from pennpde.case import Case as Case
    from pennpde.case import Condition as Condition
    from pennpde.case import Dirichlet as Dirichlet
    from pennpde.case import Neumann as Neumann
    from pennpde.case import Periodic as Periodic
    from pennpde.case import Remark as Remark
    from pennpde.case import Robin as Robin
    from pennpde.case import Slip as Slip
    from pennpde.case import Table as Table
    from pennpde.case import batch as batch
    from pennpde.checkpoints import Config as Config
    from pennpde.checkpoints import load_pretrained as load_pretrained
    from pennpde.checkpoints import save as save
    from pennpde.mesh import Mesh as Mesh
    from pennpde.operators import Operators as Operators
    from pennpde.penn import PENN as PENN
    from pennpde.penn import SCALAR as SCALAR
    from pennpde.penn import STEADY as STEADY
    from pennpde.penn import TENSOR as TENSOR
    from pennpde.penn import VECTOR as VECTOR
    from pennpde.penn import Equation as Equation
    from pennpde.penn import Predictor as Predictor
    from pennpde.penn.nisogcn import Divergence as Divergence
    from pennpde.penn.nisogcn import Gradient as Gradient
    from pennpde.penn.nisogcn import Laplacian as Laplacian
    from pennpde.penn.nisogcn import dot as dot
    from pennpde.penn.solver import BarzilaiBorwein as BarzilaiBorwein
    from pennpde.prediction import predict as predict
    from pennpde.sharing import pack as pack
    from pennpde.train import fit as fit

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
    "Periodic",
    "Predictor",
    "Remark",
    "Robin",
    "Slip",
    "Table",
    "batch",
    "dot",
    "fit",
    "load_pretrained",
    "pack",
    "predict",
    "save",
]

# Names are loaded at first use (PEP 562): `penn --help` and tab completion must not wait for torch.
# A new name goes here, into the imports above, where type checkers and editors find it, and into `__all__`.
_MODULE_OF = {
    "Mesh": "mesh",
    "Operators": "operators",
    "Case": "case",
    "Dirichlet": "case",
    "Neumann": "case",
    "Across": "case",
    "Condition": "case",
    "Periodic": "case",
    "Remark": "case",
    "Robin": "case",
    "Slip": "case",
    "Table": "case",
    "batch": "case",
    "Divergence": "penn.nisogcn",
    "Gradient": "penn.nisogcn",
    "Laplacian": "penn.nisogcn",
    "dot": "penn.nisogcn",
    "predict": "prediction",
    "BarzilaiBorwein": "penn.solver",
    "PENN": "penn",
    "Equation": "penn",
    "SCALAR": "penn",
    "STEADY": "penn",
    "Predictor": "penn",
    "TENSOR": "penn",
    "VECTOR": "penn",
    "fit": "train",
    "load_pretrained": "checkpoints",
    "save": "checkpoints",
    "pack": "sharing",
    "Config": "checkpoints",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pennpde' has no attribute {name!r}; its names are {sorted(_MODULE_OF)}")
    value = getattr(import_module(f"pennpde.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
