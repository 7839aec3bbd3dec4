"""The conditions of one field of an OpenFOAM case, as `Case` takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from pennpde.case import Remark, Table
from pennpde.mesh import Mesh
from pennpde.openfoam.dictionaries import FoamFormatError, NonUniform, Uniform, is_on, number_of, shown
from pennpde.openfoam.fields import CONSTRAINTS, SYMMETRY, entry_of, fields_of, first_field, on_faces
from pennpde.openfoam.poly_mesh import Body, FacePatch, Piece, UnsupportedConditionError

_OUTFLOW = "as an outflow (normal derivative zero), also where the flow comes back in"
_OPENING = "as an opening: fluid that a pressure drives in enters at right angles, else the normal derivative is zero"
_STREAMS = ("freestream", "freestreamVelocity", "freestreamPressure")
_FREE = {
    "inletOutlet": _OUTFLOW,
    "pressureInletOutletVelocity": _OPENING,
    "pressureInletVelocity": _OPENING,
    "advective": "as an outflow (normal derivative zero)",
    "waveTransmissive": "as an outflow (normal derivative zero)",
    "fixedFluxPressure": "as zeroGradient, which it is without body forces",
}
_APPROXIMATED = {
    **_FREE,
    **dict.fromkeys(_STREAMS, "by the direction of the free stream: prescribed where it enters, an outlet elsewhere"),
    "fixedMean": "as a uniform value",
    "movingWallVelocity": "as noSlip, which it is on a mesh at rest",
}
"""Conditions that are read as simpler ones, and how; the user is told."""
RESTING = ("noSlip", "movingWallVelocity")
_ZERO_GRADIENT = ("zeroGradient", *_FREE)
_TOTAL = ("totalPressure", "uniformTotalPressure")
_PRESCRIBED = (
    "fixedValue",
    *RESTING,
    "uniformFixedValue",
    "fixedMean",
    "surfaceNormalFixedValue",
    "flowRateInletVelocity",
    *_STREAMS,
    *_TOTAL,
    "fixedGradient",
    "uniformFixedGradient",
    "mixed",
    "directionMixed",
    "fixedNormalSlip",
)
_KNOWN = (*_PRESCRIBED, *_ZERO_GRADIENT, *SYMMETRY, "cyclic", "empty")
_OF_VECTORS = (*RESTING, "directionMixed", "fixedNormalSlip")
_OVER_TIME = {"uniformFixedValue": "uniformValue", "fixedMean": "meanValue"}
_WITH_CODE = ("codedFixedValue", "codedMixed", "groovyBC", "exprFixedValue", "exprMixed")
_OWN_FIELDS = (*CONSTRAINTS, "wedge", "cyclicAMI", "cyclicACMI", "cyclicSlip", "cyclicPeriodicAMI")
"""Patches of these types have fields of the same type; OpenFOAM's own solvers refuse others."""


@dataclass(frozen=True, eq=False)
class Conditions:
    """Conditions of one unknown by patch, the values over all points of the mesh."""

    dirichlet: dict[str, np.ndarray | Table | Mapping[str, Any]] = field(default_factory=dict)
    neumann: dict[str, np.ndarray | Table] = field(default_factory=dict)
    robin: dict[str, tuple[np.ndarray | Table, ...]] = field(default_factory=dict)
    """a, b and c of a f + b df/dn = c."""
    total_pressure: dict[str, np.ndarray | Table] = field(default_factory=dict)
    slip: list[str] = field(default_factory=list)
    components: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """Projectors and values of vectors of which single components are prescribed."""
    periodic: dict[str, str] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)
    """On conditions that are approximated."""


class FieldReader:
    """One field of a case, over all pieces.

    Args:
        body: of the case.
        name: in OpenFOAM.
        time: of whose folder; the earliest that has the field where left out.
        mesh: on whose points values are given: that of the body, or the plane mesh under it.
    """

    def __init__(self, body: Body, name: str, time: float | None, mesh: Mesh | None = None) -> None:
        self.body, self.name, self.mesh = body, name, mesh or body.mesh
        self.fields = fields_of(body, name, time)
        self.axes = self.fields[0].axes
        self.path = first_field(body.pieces[0].folder, name, time)
        self.start = float(self.path.parent.name)

    def initial(self) -> Float[np.ndarray, "points *axes"]:
        """Point values: of each point the mean of its cells."""
        mesh = self.body.mesh
        pieces = zip(self.fields, self.body.pieces, strict=True)
        values = np.concatenate([field.values(piece.mesh.number_of_cells) for field, piece in pieces])
        cell = np.repeat(np.arange(mesh.number_of_cells), np.diff(mesh.offsets))
        means = _means(mesh.connectivity, values[cell], np.ones(len(cell)), mesh.number_of_points)
        return self._taken(means)

    def _taken(self, values: Float[np.ndarray, "all ..."]) -> Float[np.ndarray, "points ..."]:
        """From the mesh in space, those of the points and components that the mesh has."""
        values = values[:, : self.mesh.space] if values.ndim == 2 else values
        return values if self.mesh.layer is None else values[self.mesh.layer]

    def _placed(self, patch: FacePatch, given: Float[np.ndarray, "all ..."]) -> Float[np.ndarray, "points ..."]:
        """The same of values on a patch, which must lie in the plane of a plane case."""
        across = given[:, 2] if self.mesh.space == 2 and given.ndim == 2 else np.zeros(1)
        if np.abs(across).max() > 1e-12 * max(1.0, np.abs(given).max()):
            raise UnsupportedConditionError(
                f"{self._what(patch, 'the value')} has a component across the plane of the case."
            )
        return self._taken(given)

    def conditions(self) -> Conditions:
        found = Conditions()
        for patch in self.body.patches.values():
            kind = self._type(patch)
            if kind in _APPROXIMATED:
                found.remarks.append(Remark(f"{self._what(patch, kind)} is taken {_APPROXIMATED[kind]}.", False))
            if kind != patch.type and (kind in ("empty", "cyclic") or patch.type in _OWN_FIELDS):
                raise self._unsupported(patch, kind, f"on a patch of type {patch.type!r} ")
            if kind in _OF_VECTORS and not self.axes:
                raise self._unsupported(patch, kind, "of a scalar ")
            if kind in _TOTAL and self.axes:
                raise self._unsupported(patch, kind, "of a vector ")
            if kind == "empty":
                continue
            if kind == "cyclic":
                found.periodic.update(self._pair(patch, found.periodic))
            elif kind == "fixedValue":
                found.dirichlet[patch.name] = self._values(patch, "value")
            elif kind in RESTING:
                found.dirichlet[patch.name] = self._zero()
            elif kind in _OVER_TIME:
                found.dirichlet[patch.name] = self._over_time(patch, _OVER_TIME[kind])
            elif kind == "flowRateInletVelocity":
                found.dirichlet[patch.name] = self._flow_rate(patch)
            elif kind == "surfaceNormalFixedValue":
                speeds = self._on_faces(patch, "refValue", ())
                found.dirichlet[patch.name] = self._to_points(patch, speeds[:, None] * self._normals(patch))
            elif kind in _STREAMS:
                self._stream(patch, kind, found)
            elif kind == "fixedGradient":
                found.neumann[patch.name] = self._values(patch, "gradient")
            elif kind == "uniformFixedGradient":
                found.neumann[patch.name] = self._over_time(patch, "uniformGradient")
            elif kind == "mixed":
                self._mixed(patch, found)
            elif kind == "directionMixed":
                found.components[patch.name] = self._directions(patch)
            elif kind == "fixedNormalSlip":
                found.components[patch.name] = self._normal_component(patch)
            elif kind in _TOTAL:
                p0 = self._values(patch, "p0") if kind == "totalPressure" else self._over_time(patch, "p0")
                found.total_pressure[patch.name] = p0
            elif kind in SYMMETRY and self.axes:
                found.slip.append(patch.name)
            else:
                found.neumann[patch.name] = self._zero()
        # Later patches win where they meet, so that a corner of an inlet rests as the wall does.
        order = sorted(found.dirichlet, key=lambda name: self._rests(name, found.dirichlet[name]))
        return replace(found, dirichlet={name: found.dirichlet[name] for name in order})

    def face_lists(self) -> Iterator[tuple[Float[np.ndarray, "faces 3"], Float[np.ndarray, "faces *axes"]]]:
        """Centres and values of the faces on which a list prescribes the field: points cannot hold a step in it."""
        for patch in self.body.patches.values():
            listed = any(isinstance(entry.get("value"), NonUniform) for entry in self._entries(patch))
            if listed and self._type(patch) == "fixedValue":
                centres = self._joined(patch, lambda piece, own: piece.mesh.face_centres[own.faces])
                yield centres, self._on_faces(patch, "value", self.axes)

    def streams(self) -> dict[str, np.ndarray]:
        """By patch, the direction of the free stream that this field prescribes there."""
        found = {}
        for patch in self.body.patches.values():
            entry = next(self._entries(patch), {})
            if self.axes and entry.get("type") in _STREAMS:
                found[patch.name] = self._on_faces(patch, "freestreamValue", self.axes).mean(axis=0)
        return found

    def _stream(self, patch: FacePatch, kind: str, found: Conditions) -> None:
        """A velocity where the stream enters, a pressure elsewhere: on the parts that `Mesh.with_streams` has made."""
        prescribed, free = (f"{patch.name} {part}" for part in ("inflow", "outflow"))
        if prescribed not in self.mesh.patches:
            raise UnsupportedConditionError(
                f"{self._what(patch, kind)} needs a velocity that is a freestream or freestreamVelocity on this patch."
            )
        if not self.axes:
            prescribed, free = free, prescribed
        if len(self.mesh.patch(prescribed).facets):
            found.dirichlet[prescribed] = self._values(patch, "freestreamValue")
        if len(self.mesh.patch(free).facets):
            found.neumann[free] = self._zero()

    def _what(self, patch: FacePatch, key: str) -> str:
        return f"Patch {patch.name!r}, field {self.name!r}: {key}"

    def _flow_rate(self, patch: FacePatch) -> Table | Mapping[str, Any]:
        """The same speed along the inward normal everywhere, by the flux through the patch, or by the mean speed."""
        entry = next(self._entries(patch))
        key = next((each for each in ("volumetricFlowRate", "massFlowRate", "meanVelocity") if each in entry), None)
        density = number_of(entry.get("rhoInlet", entry.get("rho", 1.0))) if key == "massFlowRate" else 1.0
        if key is None or not density or not self.axes or is_on(entry.get("extrapolateProfile", "no")):
            raise UnsupportedConditionError(
                f"{self._what(patch, 'flowRateInletVelocity')} needs a volumetricFlowRate, or a massFlowRate with a "
                "number as rhoInlet, without extrapolateProfile."
            )
        # A plane case is as thick as it is; ours is so per unit of depth.
        depth = float(np.ptp(self.body.mesh.points.numpy()[:, 2])) if self.mesh.space == 2 else 1.0
        ours, unit = ("inward", 1.0) if key == "meanVelocity" else ("flow_rate", density * depth)
        given = self._over_time(patch, key, ())
        if isinstance(given, Table):
            return replace(given, rows=[(time, {ours: float(rate[0]) / unit}) for time, rate in given.rows])
        return {ours: float(given[0]) / unit}

    def _normals(self, patch: FacePatch) -> Float[np.ndarray, "faces 3"]:
        """Outward."""
        return self._joined(patch, lambda piece, own: piece.mesh.face_normals[own.faces])

    def _rests(self, patch: str, given: np.ndarray | Table | Mapping[str, Any]) -> bool:
        values = [each for _, each in given.rows] if isinstance(given, Table) else [given]
        points = self.mesh.patch(patch).points
        return not any(isinstance(each, Mapping) or np.asarray(each)[points].any() for each in values)

    def _pair(self, patch: FacePatch, known: Mapping[str, str]) -> dict[str, str]:
        """The pair that a cyclic patch is the first of; nothing where its partner was."""
        partner = patch.neighbour
        if partner is None or partner not in self.body.patches:
            raise FoamFormatError(
                f"Patch {patch.name!r} is cyclic; its neighbourPatch is {partner!r}, which does not exist."
            )
        if patch.transform == "rotational":
            raise UnsupportedConditionError(
                f"Patch {patch.name!r} is cyclic with a rotational transform; only translational pairs are supported."
            )
        return {} if known.get(partner) == patch.name else {patch.name: partner}

    def _mixed(self, patch: FacePatch, found: Conditions) -> None:
        """OpenFOAM's mixed: f = w refValue + (1 - w) (f_cell + d refGradient), d from the cell's centre to the face.

        With the normal derivative (f - f_cell) / d this is w f + (1 - w) d df/dn = w refValue + (1 - w) d refGradient.
        """
        share = self._on_faces(patch, "valueFraction", ())
        value, gradient = (self._on_faces(patch, key, self.axes) for key in ("refValue", "refGradient"))
        what = self._what(patch, "valueFraction")
        if ((share < 0) | (share > 1)).any():
            raise FoamFormatError(f"{what} must lie between 0 and 1, found {share.min():g} to {share.max():g}.")
        if (share == 1).all():
            found.dirichlet[patch.name] = self._to_points(patch, value)
        elif (share == 0).all():
            found.neumann[patch.name] = self._to_points(patch, gradient)
        elif (share == 1).any():
            raise UnsupportedConditionError(
                f"{what} is 1 on some faces and less on others; split the patch, so that values are prescribed on all "
                "of one part and none of the other."
            )
        else:
            b = (1 - share) * self._joined(patch, lambda piece, own: piece.mesh.distances_to_cells(own))
            c = _beside(share, value) * value + _beside(b, gradient) * gradient
            found.robin[patch.name] = tuple(self._to_points(patch, each) for each in (share, b, c))

    def _directions(self, patch: FacePatch) -> tuple[np.ndarray, np.ndarray]:
        """directionMixed: valueFraction is the projector on the directions in which refValue is prescribed."""
        entry = next(self._entries(patch), {})
        if "refGradient" in entry and self._on_faces(patch, "refGradient", self.axes).any():
            raise UnsupportedConditionError(
                f"{self._what(patch, 'refGradient')} is not zero: where single components are prescribed, "
                "the others have the normal derivative zero."
            )
        # Symmetric tensors are xx xy xz yy yz zz.
        fractions = self._on_faces(patch, "valueFraction", (6,))[:, [0, 1, 2, 1, 3, 4, 2, 4, 5]].reshape(-1, 3, 3)
        return self._projected(patch, fractions, self._on_faces(patch, "refValue", self.axes))

    def _normal_component(self, patch: FacePatch) -> tuple[np.ndarray, np.ndarray]:
        """fixedNormalSlip: of fixedValue the component along the normal is prescribed."""
        normals = self._normals(patch)
        fractions = normals[:, :, None] * normals[:, None, :]
        return self._projected(patch, fractions, self._on_faces(patch, "fixedValue", self.axes))

    def _projected(
        self, patch: FacePatch, fractions: Float[np.ndarray, "faces 3 3"], values: Float[np.ndarray, "faces 3"]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Projectors and values at the points of a patch, from those of its faces, which are alike."""
        space, matrix = self.mesh.space, fractions[0]
        if np.abs(fractions - matrix).max() > 1e-9 or np.abs(matrix @ matrix - matrix).max() > 1e-9:
            raise UnsupportedConditionError(
                f"{self._what(patch, 'valueFraction')} must be one projector for the whole patch, such as "
                "(1 0 0 0 0 0): blends of value and gradient, and patches that bend, cannot be prescribed so."
            )
        projectors = np.zeros((self.mesh.number_of_points, space, space))
        projectors[self.mesh.patch(patch.name).points] = matrix[:space, :space]
        return projectors, self._to_points(patch, values @ matrix.T)

    def _over_time(self, patch: FacePatch, key: str, axes: tuple[int, ...] | None = None) -> np.ndarray | Table:
        """OpenFOAM's Function1 of time: a constant or a table; of the field, or of other axes."""
        axes = self.axes if axes is None else axes
        entry = next(self._entries(patch))
        given = entry.get(key)
        what = self._what(patch, key)
        settings: Mapping[str, Any] = entry.get(f"{key}Coeffs", {})
        if isinstance(given, Mapping):
            settings, given = given, given.get("type")
        kind, rows = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if kind == "constant":
            return self._uniform(patch, key, settings.get("value") if rows is None else rows, axes)
        if kind == "table":
            return self._table(patch, key, settings.get("values") if rows is None else rows, settings, axes)
        if isinstance(kind, str):
            raise UnsupportedConditionError(f"{what} is given as {kind!r}; known are a value, constant and table.")
        return self._uniform(patch, key, given, axes)

    def _table(
        self, patch: FacePatch, key: str, rows: Any, settings: Mapping[str, Any], axes: tuple[int, ...]
    ) -> Table:
        what = self._what(patch, key)
        outside = str(settings.get("outOfBounds", "clamp"))
        if outside not in ("clamp", "error", "warn"):
            raise UnsupportedConditionError(f"{what} has outOfBounds {outside!r}; known are clamp, error and warn.")
        between = str(settings.get("interpolationScheme", "linear"))
        if between != "linear":
            raise UnsupportedConditionError(
                f"{what} has interpolationScheme {between!r}; known is linear: give more rows."
            )
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise FoamFormatError(f"{what} must be a table of (time value) rows, found {shown(rows)}.")
        table = []
        for time, value in rows:
            moment = number_of(time)
            if moment is None:
                raise FoamFormatError(f"{what} has the time {shown(time)} in its table.")
            # Tables are in OpenFOAM's time; a case of ours starts at zero.
            table.append((moment - self.start, self._uniform(patch, key, value, axes)))
        try:
            return Table(table, "error" if outside == "error" else "clamp")
        except ValueError as error:
            raise FoamFormatError(f"{what}: {error}") from None

    def _uniform(self, patch: FacePatch, key: str, given: Any, axes: tuple[int, ...]) -> np.ndarray:
        given = given.value if isinstance(given, Uniform) else given
        items = given if isinstance(given, list) else [given]
        numbers = [number_of(item) for item in items]
        shape = (len(items),) if isinstance(given, list) else ()
        if shape != axes or any(number is None for number in numbers):
            raise FoamFormatError(
                f"{self._what(patch, key)} has the value {shown(given)}, but the field has shape {axes}."
            )
        value = np.array(numbers, float).reshape(axes)
        return self._placed(patch, np.full((self.body.mesh.number_of_points, *axes), value))

    def _type(self, patch: FacePatch) -> str:
        kinds = {str(entry.get("type")) for entry in self._entries(patch)}
        if len(kinds) != 1:
            raise FoamFormatError(f"{self._what(patch, 'processors disagree')}, {sorted(kinds)}.")
        kind = kinds.pop()
        if kind not in _KNOWN:
            raise self._unsupported(patch, kind, "")
        return kind

    def _unsupported(self, patch: FacePatch, kind: str, where: str) -> UnsupportedConditionError:
        if kind in _WITH_CODE:
            return UnsupportedConditionError(
                f"{self._what(patch, kind)} contains code, which is never run. Give a table (uniformFixedValue), or a "
                "mesh and a problem file with a formula."
            )
        if kind == "wedge":
            return UnsupportedConditionError(
                f"Patch {patch.name!r} is a wedge: the flow is axisymmetric, and only plane flow is predicted, between "
                "two patches of type 'empty'."
            )
        what = self._what(patch, f"the condition {kind!r}")
        return UnsupportedConditionError(f"{what} {where}is not supported. Known are {', '.join(_KNOWN)}.")

    def _entries(self, patch: FacePatch) -> Iterator[Mapping[str, Any]]:
        for each, piece in zip(self.fields, self.body.pieces, strict=True):
            if piece.part_of(patch) is not None:
                yield entry_of(each, patch, self.name)

    def _zero(self) -> np.ndarray:
        return np.zeros((self.mesh.number_of_points, *[self.mesh.space] * len(self.axes)))

    def _pieces(self, patch: FacePatch) -> Iterator[tuple[Piece, FacePatch]]:
        """The pieces that have faces of a patch, and the part of it that they have."""
        for piece in self.body.pieces:
            if (own := piece.part_of(patch)) is not None:
                yield piece, own

    def _values(self, patch: FacePatch, key: str) -> Float[np.ndarray, "points *axes"]:
        return self._to_points(patch, self._on_faces(patch, key, self.axes))

    def _joined(self, patch: FacePatch, of_piece: Callable[[Piece, FacePatch], np.ndarray]) -> np.ndarray:
        """What the pieces have on the faces of a patch, one after the other."""
        return np.concatenate([of_piece(piece, own) for piece, own in self._pieces(patch)])

    def _on_faces(self, patch: FacePatch, key: str, axes: tuple[int, ...]) -> Float[np.ndarray, "faces *axes"]:
        entries = self._entries(patch)
        return self._joined(patch, lambda _, own: self._face_values(own, key, next(entries).get(key), axes))

    def _to_points(self, patch: FacePatch, on_faces: Float[np.ndarray, "faces ..."]) -> Float[np.ndarray, "points ..."]:
        """Point values on a patch: of each point the mean of its faces, weighted by area; zero elsewhere."""
        sizes = self._joined(patch, lambda piece, own: np.diff(piece.mesh.face_offsets)[own.faces])
        areas = self._joined(patch, lambda piece, own: np.linalg.norm(piece.mesh.face_vectors[own.faces], axis=1))
        points, weights = self._joined(patch, Piece.points_of), np.repeat(areas, sizes)
        values = np.repeat(on_faces, sizes, axis=0)
        return self._placed(patch, _means(points, values, weights, self.body.mesh.number_of_points))

    def _face_values(
        self, patch: FacePatch, key: str, given: Any, axes: tuple[int, ...]
    ) -> Float[np.ndarray, "faces *axes"]:
        if (values := on_faces(given, patch.count, axes)) is not None:
            return values
        what = self._what(patch, key)
        if isinstance(given, Uniform):
            raise FoamFormatError(f"{what} is {shown(given.value)}, but must have shape {axes}.")
        if isinstance(given, NonUniform):
            raise FoamFormatError(f"{what} has shape {given.values.shape}, but the patch has {patch.count} faces.")
        raise FoamFormatError(f"{what} must be 'uniform ...' or 'nonuniform List<...>', found {shown(given)}.")


def _beside(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    return numbers.reshape(-1, *[1] * (values.ndim - 1))


def _means(index: np.ndarray, values: np.ndarray, weights: np.ndarray, number: int) -> np.ndarray:
    total = np.bincount(index, weights, number)[:, None]
    flat = values.reshape(len(values), -1)
    # Deviations from one of the values: where all are the same, so is their mean, to the last bit.
    # Values that are not finite are found by whoever gets them, and named there.
    origin = flat[:1]
    with np.errstate(invalid="ignore"):
        flat = flat - origin
    sums = np.stack([np.bincount(index, weights * column, number) for column in flat.T], axis=1)
    means = np.where(total > 0, origin + sums / np.where(total > 0, total, 1.0), 0.0)
    return means.reshape(number, *values.shape[1:])
