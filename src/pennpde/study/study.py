"""`Study`: one flow in many variants, a row of numbers for each."""

from __future__ import annotations

import hashlib
import json
import tomllib
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pennpde.case import Case
from pennpde.checkpoints import config_of, load_pretrained
from pennpde.files import read_regular
from pennpde.mesh import Mesh
from pennpde.penn import STEADY, Predictor
from pennpde.penn.predictor import attempted
from pennpde.prediction import Outcome, Resolution, predict, predict_together
from pennpde.quantities import Quantity, parse
from pennpde.study.changes import changed, check_names
from pennpde.study.designs import Design, designs_of, read_designs
from pennpde.study.morphing import Handle
from pennpde.study.sources import FoamFolder, Meshed, Source, gmsh_constants, gmsh_mesh, read_mesh
from pennpde.study.variables import Variable

if TYPE_CHECKING:
    from pennpde.study.table import Table

TIME = "time"
"""The variable of the time at which fields hold."""
_POINTS_OF_A_THREAD = 10_000
_MOST_BYTES = 10_000_000


@dataclass(frozen=True, eq=False)
class Study:
    """One problem in many variants: `penn.Study("case", {"viscosity": "1e-3:1e-2:log:20"}, ["drag cylinder"]).run()`.

    Args:
        source: The folder of an OpenFOAM case or template, a mesh or its file, a .geo file of Gmsh, a case, or a
            function that returns a case or a mesh, whose arguments are numbers that vary.
        vary: By name, numbers or a range such as "0.5,1,2", "0.1:0.3:5", "1e-3:1e-2:log:20". A name is a parameter
            ("viscosity"), a value on a patch ("inlet.u", the largest speed there; "inlet.u.y"), "time", or a number of
            the shape: an argument of the function, a placeholder, a constant of Gmsh, control points of `morph`.
        quantities: What is measured on each, such as "pressure drop inlet outlet", or objects with `name` and `of`.
        problem: Conditions on the mesh, as a problem file has them, or that file.
        design: "grid" (all combinations), "latin-hypercube", "sobol", or a CSV file with a line for each design.
        number: Of designs, where they are samples.
        seed: Of the samples.
        times: When, in the units of the case; None: the network's own time.
        steady: Whether the steady state is predicted (after the times, if any).
        model: The network, or its name.
        level: Of accuracy, the same for all designs, so that they can be compared; empty: the network's own.
        accuracy: Instead of a level the largest expected error in per cent, of fields and quantities, for which each
            design takes its own level.
        morph: By variable, control points that it moves, see `Handle`.
        mesher: What makes the mesh of an OpenFOAM template: "blockMesh" or a script in it.
        resolution: As for `predict`.
        length: Likewise.
        speed: Likewise.
        force: Whether numbers are kept where the expected error is above 50 % or physics of a case are left out.
    """

    source: str | Path | Mesh | Case | Callable[..., Mesh | Case]
    vary: Mapping[str, Any] = field(default_factory=dict)
    quantities: Sequence[Any] = ()
    problem: Mapping[str, Any] | str | Path | None = None
    design: str = "grid"
    number: int | None = None
    seed: int = 0
    times: float | Sequence[float] | None = None
    steady: bool = False
    model: str | Predictor = "flow"
    level: str = ""
    accuracy: float | None = None
    morph: Mapping[str, Any] = field(default_factory=dict)
    mesher: str | None = None
    resolution: Resolution = "auto"
    length: float | None = None
    speed: float | None = None
    force: bool = False
    token: str = field(default_factory=lambda: uuid.uuid4().hex, repr=False)
    """The same for copies in other processes, which read the case once."""

    @staticmethod
    def read(path: Path | str) -> Study:
        """The study of a TOML file; paths in it are relative to it."""
        path = Path(path)
        try:
            given = tomllib.loads(read_regular(path, _MOST_BYTES).decode("utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a TOML file: {error}.") from None
        return Study.of(given, path.parent, str(path))

    @staticmethod
    def of(given: Mapping[str, Any], folder: Path, where: str) -> Study:
        """From the entries of such a file."""
        known = {each.name for each in fields(Study)} - {"token", "source"} | {"input"}
        given = {name: value for name, value in given.items() if name != "state"}
        if unknown := sorted(given.keys() - known):
            raise ValueError(f"{where} sets {', '.join(unknown)}; it knows {', '.join(sorted(known))}.")
        if not isinstance(given.get("input"), str):
            raise ValueError(f'{where} needs input = "FOLDER", a mesh file or a .geo file; paths are relative to it.')
        entries = {name: value for name, value in given.items() if name != "input"}
        wrong = [name for name in ("vary", "morph") if not isinstance(given.get(name, {}), Mapping)]
        if wrong or not isinstance(given.get("quantities", []), list):
            raise ValueError(f"{where}: vary and morph are tables, quantities is a list of texts.")
        for name in ("problem", "design"):
            if isinstance(entries.get(name), str) and Path(entries[name]).suffix in (".toml", ".csv"):
                entries[name] = str(folder / entries[name])
        return Study(folder / given["input"], **entries)

    @cached_property
    def definition(self) -> dict[str, Any]:
        """All that decides its rows, as JSON has it; what is no text or number by its name only."""
        entries = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "token"}
        path = self.source if isinstance(self.source, str | Path) else None
        entries["input"] = str(Path(path).resolve()) if path else getattr(self.source, "__name__", repr(self.source))
        del entries["source"]
        entries["vary"] = {name: Variable.of(name, given).text for name, given in self.vary.items()}
        entries["quantities"] = [each if isinstance(each, str) else each.name for each in self.quantities]
        entries["morph"] = {name: vars(each) for name, each in self.handles.items()}
        for name in ("problem", "design"):
            if isinstance(entries[name], str | Path) and Path(entries[name]).suffix in (".toml", ".csv"):
                entries[name] = str(Path(entries[name]).resolve())
        if not isinstance(self.model, str):
            entries["model"] = type(self.model).__name__
        times = self.asked_times
        entries |= {"times": None if times is None else [each for each in times if each != STEADY] or None}
        entries["state"] = self._state()
        return json.loads(json.dumps(entries, default=str))

    def _state(self) -> str:
        """A hash of all files that decide the rows, and of the designs."""
        digest = hashlib.sha256(json.dumps([each.values for each in self.designs]).encode())
        config = config_of(self.network)
        digest.update(str(config and config.weights_sha256).encode())
        paths = [Path(each) for each in (self.source, self.problem) if isinstance(each, str | Path)]
        for path in [*paths, *self.origin.files()]:
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    # What is asked

    @cached_property
    def variables(self) -> tuple[Variable, ...]:
        """Those of `vary`, or the columns of the CSV file."""
        if not self.design.endswith(".csv"):
            return tuple(Variable.of(name, given) for name, given in self.vary.items())
        if self.vary:
            raise ValueError(f"{self.design} has the designs; leave out what varies besides.")
        names = self.designs[0].values
        return tuple(Variable.of(name, [each.values[name] for each in self.designs]) for name in names)

    @cached_property
    def designs(self) -> list[Design]:
        """All variants, in order."""
        if self.design.endswith(".csv"):
            return read_designs(Path(self.design))
        return designs_of(self.variables, self.design, self.number, self.seed)

    @cached_property
    def handles(self) -> dict[str, Handle]:
        return {name: Handle.of(name, given) for name, given in self.morph.items()}

    @cached_property
    def measures(self) -> list[Any]:
        """The quantities, parsed."""
        if not self.quantities:
            raise ValueError('A study measures something: --quantity "pressure drop inlet outlet".')
        if all(not isinstance(each, str) for each in self.quantities):
            return list(self.quantities)
        return [parse(each) if isinstance(each, str) else each for each in self.quantities]

    @property
    def asked_times(self) -> tuple[float, ...] | None:
        """When, the same for all designs; None: the network's own time, or that of each design."""
        given = (
            () if self.times is None else (self.times,) if isinstance(self.times, int | float) else tuple(self.times)
        )
        return (*map(float, given), *([STEADY] if self.steady and STEADY not in given else [])) or None

    # How it is computed

    @cached_property
    def network(self) -> Predictor:
        found = load_pretrained(self.model) if isinstance(self.model, str) else self.model
        if not isinstance(found, Predictor):
            raise ValueError(f"{self.model} is a {type(found).__name__}, which is no Predictor; a study needs one.")
        if self.level:
            found.set_level(self.level)
        return found

    @cached_property
    def origin(self) -> Source:
        """Where the cases come from."""
        given, problem = self.source, self.problem
        problem = Path(problem) if isinstance(problem, str) else problem
        if isinstance(given, Case | Mesh):
            return Meshed(lambda: given, frozenset(), problem, self.handles)
        if callable(given):
            return Meshed.by(given, problem, self.handles)
        path = Path(given)
        if path.is_dir():
            return FoamFolder(path, self.network.equation, self.mesher, self.handles)
        if not path.is_file():
            raise FileNotFoundError(f"there is no {path}; give a case folder, a mesh file, a .geo file or a study.toml")
        if problem is None:
            raise ValueError(f"{path} is a mesh; give its conditions with --case FILE.toml (in a study file: problem).")
        if path.suffix == ".geo":
            return Meshed(partial(gmsh_mesh, path), gmsh_constants(path), problem, self.handles)
        return Meshed(cache(lambda: read_mesh(path)), frozenset(), problem, self.handles)

    @cached_property
    def _last(self) -> dict[tuple[tuple[str, float], ...], Case]:
        """The case of the last shape: designs of one mesh come one after the other."""
        return {}

    def case_of(self, values: Mapping[str, float]) -> Case:
        """The case of one design."""
        names = self.origin.names
        key = tuple(sorted((name, value) for name, value in values.items() if name in names))
        if key not in self._last:
            self._last.clear()
            self._last[key] = self.origin.case(dict(key))
        others = {name: value for name, value in values.items() if name not in names and name != TIME}
        case = self._last[key]
        return changed(case, others) if others else case

    def check(self) -> None:
        """Refuse what no design could be computed with, before any work: wrong names, quantities, physics, designs."""
        self.measures  # noqa: B018
        values = self.designs[0].values
        if TIME in values and (self.asked_times is not None or min(each.values[TIME] for each in self.designs) <= 0):
            raise ValueError("Times that vary are above zero, and --times and --steady are then left out.")
        if self.level and self.accuracy is not None:
            raise ValueError("Give a level of accuracy for all designs, or an accuracy for each; not both.")
        if (TIME in values or self.asked_times is not None) and not self.network.takes_times:
            raise ValueError(f"{self.model} predicts only its own times; leave the times out, or take another network.")
        if unused := sorted(self.origin.names - values.keys()):
            raise ValueError(f"The shape depends on {', '.join(unused)}, which does not vary; give it one value.")
        others = {name: each for name, each in values.items() if name not in self.origin.names and name != TIME}
        try:
            base = self.origin.case({name: values[name] for name in self.origin.names})
        except (ValueError, ArithmeticError) as error:
            if self.origin.names:
                return  # only this shape may be broken: it becomes a row
            raise error
        check_names(base, others)
        for each in self.measures:
            if hasattr(each, "check"):
                each.check(base)
        found = [each.text for each in base.remarks if each.other_physics]
        if found and not self.force:
            raise ValueError(
                f"refused, nothing was computed: the case has physics that the network does not know. {' '.join(found)}"
                " --force studies the flow without it all the same; how wrong its numbers are is then not known."
            )

    def predict(self, values: Mapping[str, float], times: Sequence[float] | None = None) -> Outcome:
        """The prediction of one design."""
        case = self.case_of(values)
        torch.set_num_threads(max(1, min(torch.get_num_threads(), case.number_of_points // _POINTS_OF_A_THREAD)))
        return predict(
            self.network,
            case,
            times=self.asked_times if times is None else times,
            accuracy=self.accuracy,
            quantities=() if self.accuracy is None else [each for each in self.measures if isinstance(each, Quantity)],
            length=self.length,
            speed=self.speed,
            resolution=self.resolution,
        )

    def predict_together(
        self, designs: Sequence[tuple[Mapping[str, float], Sequence[float] | None]], device: str
    ) -> list[Outcome | Exception]:
        """The predictions of several designs, each with its times, side by side on a device."""
        cases = [attempted(self.case_of, values) for values, _ in designs]
        sound = [place for place, each in enumerate(cases) if isinstance(each, Case)]
        made = predict_together(
            self.network,
            [case for case in cases if isinstance(case, Case)],
            times=[self.asked_times if designs[place][1] is None else designs[place][1] for place in sound],
            device=device,
            length=self.length,
            speed=self.speed,
            resolution=self.resolution,
        )
        found: list[Any] = list(cases)
        for place, each in zip(sound, made, strict=True):
            found[place] = each
        return found

    def run(
        self,
        folder: Path | str | None = None,
        *,
        workers: int | None = 0,
        scheduler: str | None = None,
        keep_fields: str = "",
        device: str = "",
        on_progress: Callable[..., None] | None = None,
    ) -> Table:
        """Compute all designs; with a folder go on where it was stopped, and write its table and report there.

        Args:
            folder: Of the rows, the table and the report; None: nothing is written.
            workers: Number of processes on this machine; 0: this one; None: one for each processor.
            scheduler: Address of a running Dask scheduler instead.
            keep_fields: The suffix of files with the fields of each design, such as ".vtu"; empty: none.
            device: Such as "cuda", on which designs are marched side by side; empty: one by one on the CPU.
            on_progress: Is called after each design with `pennpde.data.workers.Status`.
        """
        from pennpde.study.execution import run

        where = None if folder is None else Path(folder)
        return run(self, where, workers, scheduler, keep_fields, device, on_progress)

    def __getstate__(self) -> dict[str, Any]:
        kept = {each.name for each in fields(self)}
        return {name: value for name, value in self.__dict__.items() if name in kept}
