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
    from pennpde.network import PENN as PENN
    from pennpde.network import SCALAR as SCALAR
    from pennpde.network import STEADY as STEADY
    from pennpde.network import TENSOR as TENSOR
    from pennpde.network import VECTOR as VECTOR
    from pennpde.network import Equation as Equation
    from pennpde.network import Predictor as Predictor
    from pennpde.network.layers import Divergence as Divergence
    from pennpde.network.layers import Gradient as Gradient
    from pennpde.network.layers import Laplacian as Laplacian
    from pennpde.network.layers import dot as dot
    from pennpde.network.solver import BarzilaiBorwein as BarzilaiBorwein
    from pennpde.operators import Operators as Operators
    from pennpde.prediction import predict as predict
    from pennpde.sharing import pack as pack
    from pennpde.training import fit as fit

__version__ = "0.1.0"

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
    "Divergence": "network.layers",
    "Gradient": "network.layers",
    "Laplacian": "network.layers",
    "dot": "network.layers",
    "predict": "prediction",
    "BarzilaiBorwein": "network.solver",
    "PENN": "network",
    "Equation": "network",
    "SCALAR": "network",
    "STEADY": "network",
    "Predictor": "network",
    "TENSOR": "network",
    "VECTOR": "network",
    "fit": "training",
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
