"""What can be had without any network: the start of a case, or training cases looked up and carried over.

A family of shapes with one or two parameters on a lattice can be interpolated. A network that is worth its training
does better than that, or does what a look-up cannot: another shape, another mesh. These are the floors of the tables.

start       the fields at the start, taken as the prediction
nearest     the training case with the nearest parameters
quadratic   a quadratic polynomial in the parameters, fitted at every point to the nearest training cases
scaled      advection-diffusion: a training case with the same velocity and diffusivity, times the ratio of temperatures
zero        gradient: zero
fitted      gradient: the least-squares fit with the Neumann condition, of which nothing is learned

Each is a function from a case to fields, which `evaluation.evaluate` measures like a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pennlab.paper import plane_flow_floors
from pennpde.case import Case
from pennpde.train.report import start

Identity = Callable[[Case], tuple[str, tuple[float, ...]]]
"""What a case is known by: its family, and its parameters, which compare within a family."""

Places = Callable[[Case, Case], np.ndarray]
"""places(wanted, known): where the points of a case lie in another case of its family."""


@dataclass(frozen=True, eq=False)
class LookUp:
    """A weighted sum of training cases, each carried over to the points of the case that is wanted.

    Attributes:
        train: the cases to look among.
        identity: family and parameters of a case.
        neighbours: how many of the nearest training cases take part; 1: only the nearest, unchanged. With more a
            quadratic polynomial is fitted, or a linear one where there are too few for that.
        places: where points of one case lie in another.
    """

    train: Sequence[Case]
    identity: Identity
    neighbours: int
    places: Places

    def __call__(self, case: Case) -> dict[str, Tensor]:
        family, wanted = self.identity(case)
        known = [(each, parameters) for each in self.train for f, parameters in [self.identity(each)] if f == family]
        if not known:
            families = sorted({self.identity(each)[0] for each in self.train})
            raise ValueError(f"{case.name!r} is of the family {family!r}; the training cases are of {families}.")
        offsets = np.array([parameters for _, parameters in known], float) - np.array(wanted, float)
        chosen = np.argsort((offsets**2).sum(axis=1), kind="stable")[: self.neighbours]
        shares = _shares(offsets[chosen])
        total: dict[str, Tensor] = {}
        for place, share in zip(chosen, shares, strict=True):
            for name, values in self._carried(case, known[place][0]).items():
                total[name] = total.get(name, 0) + float(share) * values
        return {name: case.dirichlet[name].apply(values) for name, values in total.items()}

    def _carried(self, case: Case, known: Case) -> dict[str, Tensor]:
        from pennpde.mesh.interpolation import interpolation

        matrix = interpolation(known.mesh, self.places(case, known))
        found = {}
        for name, target in known.targets.items():
            flat = target.double().numpy().reshape(known.number_of_points, -1)
            values = np.asarray(matrix @ flat).reshape(-1, *target.shape[1:])
            found[name] = torch.from_numpy(values).to(case.initial[name])
        return found


def _shares(offsets: np.ndarray) -> np.ndarray:
    """How much each neighbour contributes to the value at offset zero of the fitted polynomial."""
    number, parameters = offsets.shape
    if number == 1 or not parameters:
        return np.eye(number)[0]
    for degree in (2, 1, 0):
        terms = [t for power in range(degree + 1) for t in combinations_with_replacement(range(parameters), power)]
        if len(terms) <= number:
            basis = np.stack([np.prod(offsets[:, list(term)], axis=1) for term in terms], axis=1)
            # The polynomial's value at zero is its constant term.
            return np.linalg.pinv(basis)[0]
    raise AssertionError("a constant fits any number of neighbours")


@dataclass(frozen=True, eq=False)
class Scaled:
    """Advection-diffusion: the training case with the same velocity and diffusivity, times the ratio of temperatures.

    The equation is linear, so this is exact where there is such a case; where there is none, the nearest is taken.
    """

    train: Sequence[Case]

    def __call__(self, case: Case) -> dict[str, Tensor]:
        wanted = np.array(_coefficients(case))
        distances = [float(((np.array(_coefficients(each)) - wanted) ** 2).sum()) for each in self.train]
        nearest = self.train[int(np.argmin(distances))]
        ratio = _inlet_temperature(case) / _inlet_temperature(nearest)
        return {"T": case.dirichlet["T"].apply(ratio * nearest.targets["T"].to(case.initial["T"]))}


def _coefficients(case: Case) -> tuple[float, float]:
    return float(case.parameters["velocity"].norm()), float(case.parameters["diffusivity"])


def _inlet_temperature(case: Case) -> float:
    condition = case.dirichlet["T"]
    return float(condition.values[condition.mask].max())


def same_places(wanted: Case, known: Case) -> np.ndarray:  # noqa: ARG001
    """Points lie where they lie: for families on one domain."""
    return wanted.mesh.points.double().numpy()


def in_the_template(wanted: Case, known: Case) -> np.ndarray:
    """Points of a duct in another duct of its template."""
    from pennlab.datasets.flow.ducts import carried
    from pennpde.models.designs import duct

    return carried(wanted.mesh.points.double().numpy(), duct(wanted.name), duct(known.name))


def by_name(case: Case) -> tuple[str, tuple[float, ...]]:
    """Template and design parameters of a duct."""
    from pennpde.models.designs import parse_name

    return parse_name(case.name)


def by_parameters(case: Case) -> tuple[str, tuple[float, ...]]:
    """All parameters of the equation, and what is prescribed at most."""
    values = [float(number) for name in sorted(case.parameters) for number in case.parameters[name].reshape(-1)]
    values += [float(case.dirichlet[name].values.abs().max()) for name in sorted(case.dirichlet)]
    return "all", tuple(values)


def floors(dataset: str, train: Sequence[Case]) -> dict[str, Callable[[Case], Mapping[str, Tensor]]]:
    """By name, the look-ups that a kind of dataset has."""
    if dataset == "flow":
        return {
            "start": start,
            "nearest": LookUp(train, by_name, 1, in_the_template),
            "quadratic": LookUp(train, by_name, 14, in_the_template),
        }
    if dataset == "advection-diffusion":
        return {
            "start": start,
            "nearest": LookUp(train, by_parameters, 1, same_places),
            "quadratic": LookUp(train, by_parameters, 20, same_places),
            "scaled": Scaled(train),
        }
    if dataset == "gradient":
        return {"zero": zero_gradient, "fitted": fitted_gradient}
    return {"start": start, "nearest": LookUp(train, by_parameters, 1, same_places)}


def zero_gradient(case: Case) -> dict[str, Tensor]:
    """As if the scalar were constant."""
    return {"grad": torch.zeros_like(case.targets["grad"])}


def fitted_gradient(case: Case) -> dict[str, Tensor]:
    """What NIsoGCN starts from: the operator itself, with the prescribed normal derivative."""
    return {"grad": case.operators["phi"].grad(case.initial["phi"], case.neumann["phi"].normal_derivative)}


TITLES = {
    "start": "Start field",
    "nearest": "Nearest training case",
    "quadratic": "Quadratic fit to training cases",
    "scaled": "Scaled training case",
    "zero": "Zero",
    "fitted": "Least-squares gradient, nothing learned",
}


def measure(
    train_data: Path | str, data: Path | str | None = None, split: str = "test", *, unrelated: bool = False
) -> list[dict[str, Any]]:
    """Evaluation records of all look-ups, as `penn evaluate` writes them for networks.

    Plane flows are measured at all of their moments and in their steady states, those that are not determined apart;
    see `plane_flow_floors`.

    Args:
        train_data: folder of the dataset whose training cases are looked up.
        data: folder of the dataset whose cases are wanted; the same by default.
        split: of these.
        unrelated: leave out cases that are a mirror image or a multiple of a training case.
    """
    from pennlab.datasets.plane_flow.sensitivity import determined
    from pennlab.evaluation import evaluate
    from pennlab.relatives import second_test_set, unrelated_names
    from pennlab.targets import read_at_end
    from pennpde.data import storage

    data = train_data if data is None else data
    manifest = storage.read_manifest(data)
    plane = manifest.dataset == "plane-flow"
    if plane:
        found = plane_flow_floors.floors(train_data)
    else:
        found = floors(manifest.dataset, read_at_end(train_data, "train"))
    cases = [] if plane else read_at_end(data, split)
    if unrelated:
        names = set(unrelated_names(manifest, split))
        cases = [case for case in cases if case.name in names]
    records = []
    for name, look_up in found.items():
        about = {
            "model": f"look-up: {name}",
            "row": f"floor_{name}",
            "title": TITLES[name],
            "paper": "",
            "seed": None,
            "dataset": {"kind": manifest.dataset, "hash": storage.dataset_hash(data), "folder": str(data)},
            "split": split,
            "test_set": second_test_set(manifest, unrelated=unrelated),
            "training": {},
        }
        if plane:
            files = storage.read_files(data, split)
            records.append(plane_flow_floors.measure(look_up, files, about, partial(determined, data)))
        else:
            records.append(evaluate(look_up, cases, about=about).to_plain())
    return records
