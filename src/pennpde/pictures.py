"""Pictures of fields on meshes, drawn with Matplotlib: no display, no OpenGL, no system library."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.files import write_atomically
from pennpde.mesh import Mesh
from pennpde.metrics import rank_of
from pennpde.penn.physics import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.tri import Triangulation

SEQUENTIAL, DIVERGING, ERROR = "viridis", "RdBu_r", "magma"
_DESCRIPTION = {".png": "Description", ".pdf": "Subject", ".svg": "Description"}
"""What formats call a description of the picture."""
_LINE, _LETTER = 0.2, 0.07
"""Inches that small print takes."""
_MOST_NOTES = 4
_DOTS_PER_INCH = 200
_MILLISECONDS = 250
"""For which a frame is shown, the last one four times as long."""
_BULK = (2.0, 98.0)
"""Percentiles between which values are never a peak."""
_FAR = 0.5
"""How far beyond them the extremes may lie, in shares of the range between them, before they count as peaks."""
_BOTH_SIGNS = 0.02
"""Share of the largest value from which on negative ones count."""


@dataclass(frozen=True, eq=False)
class Panel:
    """One field on one mesh, or the mesh itself.

    Attributes:
        title: Above the panel.
        values: A scalar a point. None: the cells are drawn, and each patch of the boundary in its own colour.
        colours: Matplotlib's name of a colour map.
        limits: Of the colours; by default the field's own, symmetric for the diverging map.
        outline: Whether the edges of the cells are drawn.
        border: Whether the boundary is drawn, where a colour of the field may be that of the paper.
        streamlines: A velocity whose streamlines are drawn over the field.
        scale: What the colours stand for, with its unit, next to the colour bar.
    """

    title: str
    mesh: Mesh
    values: Tensor | None
    colours: str = SEQUENTIAL
    limits: tuple[float, float] | None = None
    outline: bool = False
    streamlines: Tensor | None = None
    scale: str = ""
    border: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure of Matplotlib that shows itself in a notebook.

    Attributes:
        figure: Matplotlib's.
        description: Of what it shows, kept in the metadata of its file.
    """

    figure: Figure
    description: str = ""

    def __repr__(self) -> str:
        width, height = self.figure.get_size_inches()
        return f"Picture({width:.1f} x {height:.1f} inches; picture.save(path) writes it)"

    def save(self, path: Path | str) -> None:
        """Write it as .png, .pdf or .svg; its file is whole or not there."""
        save_figure(self.figure, path, dots_per_inch=_DOTS_PER_INCH, description=self.description)

    def _repr_png_(self) -> bytes:
        return _content(self.figure, ".png", _DOTS_PER_INCH / 2, "").getvalue()


def picture(
    rows: Sequence[Sequence[Panel]],
    *,
    title: str = "",
    corner: str = "",
    notes: Sequence[str] = (),
    panel_width: float = 4.6,
    bars: Literal["panels", "rows"] = "panels",
) -> Picture:
    """Panels in rows and columns.

    Args:
        rows: The panels.
        title: Above all.
        corner: In small print at the lower right, such as how far the fields can be trusted; also kept in the file as
            its description.
        notes: Below it, such as warnings: a line each, cut where it is longer than the picture is wide. The
            description has all of them, in full.
        panel_width: In inches.
        bars: Whether each panel has its colour bar, or each row one, where colours mean the same along it.
    """
    figure = _figure(rows, title, corner, notes, panel_width, bars)
    return Picture(figure, "\n".join([corner, *notes] if corner else notes))


def draw(path: Path | str, rows: Sequence[Sequence[Panel]], **how: Any) -> None:
    """Write a picture of panels to a PNG, PDF or SVG file; for the other arguments see `picture`."""
    picture(rows, **how).save(path)


def picture_of_mesh(mesh: Mesh, path: Path | str | None = None) -> Picture:
    """The cells of a plane mesh, and each of its patches in its own colour."""
    triangles(mesh)  # refuses a mesh in space, and says what draws it
    made = picture([[Panel("", mesh, None)]])
    if path is not None:
        made.save(path)
    return made


def animate(
    path: Path | str,
    frames: Sequence[Sequence[Panel]],
    titles: Sequence[str],
    *,
    corner: str = "",
    notes: Sequence[str] = (),
) -> None:
    """Draw rows of panels one after the other as an animated GIF file, which starts again at its end.

    Args:
        path: Of the file.
        frames: Each a row of panels. Their limits should be given: otherwise the colours change their meaning.
        titles: Above each frame, such as its time.
        corner: As for `draw`.
        notes: As for `draw`.
    """
    from PIL import Image

    images = []
    for panels, title in zip(frames, titles, strict=True):
        picture = io.BytesIO()
        _figure([panels], title, corner, notes).savefig(picture, format="png", dpi=100)
        images.append(Image.open(picture).convert("RGB").quantize(colors=255, method=Image.Quantize.FASTOCTREE))
    durations = [_MILLISECONDS] * (len(images) - 1) + [4 * _MILLISECONDS]
    content = io.BytesIO()
    images[0].save(
        content, format="GIF", save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def _figure(
    rows: Sequence[Sequence[Panel]],
    title: str,
    corner: str,
    notes: Sequence[str],
    panel_width: float = 4.6,
    bars: Literal["panels", "rows"] = "panels",
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(len(row) for row in rows)
    # Height over width of the tallest panel of each row.
    shapes = [max(span[1] / span[0] for span in map(_span, row)) for row in rows]
    heights = [panel_width * min(max(shape, 0.25), 1.2) + 0.5 for shape in shapes]
    width = panel_width * columns + 0.6
    cut = [shorten(note, int(width / _LETTER), placeholder=" …") for note in notes[:_MOST_NOTES]]
    more = [f"and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)
    small_print = [corner] * bool(corner) + cut + more
    figure = Figure(
        figsize=(width, sum(heights) + (0.4 if title else 0) + _LINE * len(small_print)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for row, axes_row in zip(rows, grid, strict=True):
        for axes in axes_row[len(row) :]:
            axes.set_axis_off()
        for panel, axes in zip(row, axes_row, strict=False):
            if panel.values is None:
                _draw_mesh(axes, panel.mesh)
            else:
                drawn = _draw_field(axes, panel, panel.values.detach().cpu().numpy())
                if bars == "panels" or panel is row[-1]:
                    where = axes if bars == "panels" else list(axes_row)
                    figure.colorbar(drawn, ax=where, shrink=0.85, pad=0.02, label=panel.scale)
            axes.set_title(panel.title, fontsize=10)
            axes.set_aspect("equal")
            axes.set_axis_off()
            # Else a panel with streamlines is larger than its neighbours: Matplotlib leaves no margin around them.
            positions = panel.mesh.points.numpy()
            low, high = positions.min(axis=0), positions.max(axis=0)
            margin = 0.01 * float((high - low).max())
            axes.set(xlim=(low[0] - margin, high[0] + margin), ylim=(low[1] - margin, high[1] + margin))
    if title:
        figure.suptitle(title)
    if small_print:
        # A label rather than a text: the layout leaves room for it.
        figure.supxlabel("\n".join(small_print), x=0.995, ha="right", fontsize=8, color="0.3")
    return figure


def _span(panel: Panel) -> np.ndarray:
    return np.ptp(panel.mesh.points.numpy()[:, :2], axis=0)


def draw_solids(path: Path | str, rows: Sequence[Sequence[tuple[str, Mesh, Tensor]]]) -> None:
    """Draw fields on the surfaces of meshes in space, each facet in the mean colour of its points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    columns = max(len(row) for row in rows)
    figure = Figure(figsize=(5.2 * columns, 4.6 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    for line, row in enumerate(rows):
        for column, (title, mesh, values) in enumerate(row):
            axes: Any = figure.add_subplot(len(rows), columns, line * columns + column + 1, projection="3d")
            facets, positions = mesh.facets, mesh.points.numpy()
            means = np.add.reduceat(values.numpy()[facets.connectivity], facets.offsets[:-1]) / facets.sizes
            colours = ScalarMappable(Normalize(float(means.min()), float(means.max())), "viridis")
            polygons = [positions[facet] for facet in np.split(facets.connectivity, facets.offsets[1:-1])]
            axes.add_collection3d(
                Poly3DCollection(polygons, facecolors=colours.to_rgba(means), edgecolors=(0, 0, 0, 0.2), linewidths=0.2)
            )
            low, high = positions.min(axis=0), positions.max(axis=0)
            axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]), title=title)
            axes.set_box_aspect(high - low)
            figure.colorbar(colours, ax=axes, shrink=0.7)
    save_figure(figure, path, dots_per_inch=110)


def save_figure(figure: Figure, path: Path | str, dots_per_inch: int, *, description: str = "") -> None:
    """Write a figure, with a description in its metadata; its file is whole or not there."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _content(figure, Path(path).suffix or ".png", dots_per_inch, description).getvalue())


def _content(figure: Figure, suffix: str, dots_per_inch: float, description: str) -> io.BytesIO:
    # In memory: on a full disk some of Matplotlib's formats fail with an error that says something else.
    content = io.BytesIO()
    if suffix not in _DESCRIPTION:
        raise ValueError(f"A picture cannot be written as {suffix}; its name ends in {', '.join(_DESCRIPTION)}.")
    metadata = {_DESCRIPTION[suffix]: description} if description else None
    figure.savefig(content, dpi=dots_per_inch, format=suffix.removeprefix("."), metadata=metadata)
    return content


def field_panels(
    mesh: Mesh,
    fields: Mapping[str, Tensor],
    looks: Mapping[str, Look] | None = None,
    label: str = "",
    *,
    streamlines: bool = True,
) -> list[Panel]:
    """One panel per field: a scalar as it is, a vector by its length, with streamlines.

    Args:
        mesh: Plane.
        fields: Over the points.
        looks: How fields are titled and coloured, as `Equation.looks` has it.
        label: Before each title.
        streamlines: Whether those of vectors are drawn.
    """
    panels = []
    for name, values in fields.items():
        is_vector = values.ndim > 1
        look = (looks or {}).get(name, Look(f"|{name}|" if is_vector else name))
        panels.append(
            Panel(
                f"{label}: {look.title}" if label else look.title,
                mesh,
                values.reshape(len(values), -1).norm(dim=1) if is_vector else values,
                DIVERGING if look.signed else SEQUENTIAL,
                streamlines=values if values.ndim == 2 and streamlines else None,
            )
        )
    return panels


def error_panels(mesh: Mesh, errors: Mapping[str, Tensor], looks: Mapping[str, Look] | None = None) -> list[Panel]:
    """One panel per unknown with the error that is expected at each point."""
    titles = {name: (looks or {}).get(name, Look(name)).title for name in errors}
    return [Panel(f"expected error of {titles[name]}", mesh, values, ERROR) for name, values in errors.items()]


def series_panels(
    mesh: Mesh, fields_at_times: Sequence[Mapping[str, Tensor]], looks: Mapping[str, Look] | None = None
) -> list[list[Panel]]:
    """Panels of fields at several times, a row for each time; a colour means the same value at all times."""
    rows = [field_panels(mesh, fields, looks, streamlines=False) for fields in fields_at_times]
    shared = []
    for panels in zip(*rows, strict=True):
        values = np.concatenate([panel.values.detach().cpu().numpy() for panel in panels if panel.values is not None])
        shared.append(limits_of(values, panels[0].colours))
    return [[replace(panel, limits=each) for panel, each in zip(row, shared, strict=True)] for row in rows]


def triangles(mesh: Mesh) -> Int64[np.ndarray, "triangles 3"]:
    """The cells of a plane mesh as triangles, each polygon a fan around its first corner."""
    if mesh.space != 2:
        raise ValueError(
            f"Only a plane mesh can be drawn flat; this one has {mesh.space} dimensions. Draw a slice, or open the "
            "file in ParaView."
        )
    sizes = np.diff(mesh.offsets)
    fans = []
    for size in np.unique(sizes):
        corners = mesh.connectivity[mesh.offsets[np.flatnonzero(sizes == size), None] + np.arange(size)]
        fans += [corners[:, [0, second, second + 1]] for second in range(1, size - 1)]
    return np.concatenate(fans)


def _draw_field(axes: Axes, panel: Panel, values: Float[np.ndarray, " points"]):
    low, high = panel.limits or limits_of(values, panel.colours)
    drawn = axes.tripcolor(_surface(panel.mesh), values, shading="gouraud", cmap=panel.colours, vmin=low, vmax=high)
    if panel.outline:
        _draw_cells(axes, panel.mesh, (0, 0, 0, 0.25), 0.25)
    if panel.border:
        _draw_edges(axes, panel.mesh, slice(None), colors="0.35", linewidths=0.6)
    if panel.streamlines is not None:
        _draw_streamlines(axes, panel.mesh, panel.streamlines.detach().cpu().numpy())
    return drawn


def _draw_mesh(axes: Axes, mesh: Mesh) -> None:
    _draw_cells(axes, mesh, (0.35, 0.35, 0.35, 1.0), 0.4)
    for number, (name, patch) in enumerate(mesh.patches.items()):
        _draw_edges(axes, mesh, patch.facets, colors=f"C{number}", linewidths=2.0, label=name)
    if mesh.patches:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(mesh.patches), frameon=False, fontsize=9)


def _draw_edges(axes: Axes, mesh: Mesh, facets: np.ndarray | slice, **how: Any) -> None:
    """Draw facets of the boundary."""
    from matplotlib.collections import LineCollection

    edges = mesh.points.numpy()[mesh.facets.connectivity.reshape(-1, 2)[facets]]
    axes.add_collection(LineCollection(list(edges), **how))


def _surface(mesh: Mesh) -> Triangulation:
    from matplotlib.tri import Triangulation

    positions = mesh.points.numpy()
    return Triangulation(positions[:, 0], positions[:, 1], triangles(mesh))


def limits_of(values: np.ndarray, colours: str) -> tuple[float, float]:
    """The range of the colours: almost all of the field; for the diverging map around zero, where it has one.

    All values, unless a few lie far beyond the others: pressure and speed peak at re-entrant corners, and a prediction
    can have a spike, which would bleach the rest. Values that are not finite have no say.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0, 1.0
    if colours == DIVERGING:
        # A pressure of 1e5 everywhere and a little more here and there is shown around its own middle.
        middle = 0.0 if finite.min() <= 0 <= finite.max() else float(np.median(finite))
        largest = _without_peaks(np.abs(finite - middle), low=0.0)[1] or 1.0
        return middle - largest, middle + largest
    low, high = _without_peaks(finite)
    return low, high if high > low else low + 1.0


def _without_peaks(values: np.ndarray, low: float | None = None) -> tuple[float, float]:
    smallest, largest = float(values.min()), float(values.max())
    least, most = (float(limit) for limit in np.percentile(values, _BULK))
    least = least if low is None else low
    span = most - least
    if not span > 0:
        return smallest, largest  # almost everything is the same: what differs is what there is to see
    margin = 0.02 * span
    return (
        smallest if smallest >= least - _FAR * span else least - margin,
        largest if largest <= most + _FAR * span else most + margin,
    )


def _draw_cells(axes: Axes, mesh: Mesh, colour: tuple[float, float, float, float], width: float) -> None:
    from matplotlib.collections import PolyCollection

    positions = mesh.points.numpy()
    corners = [positions[cell] for cell in np.split(mesh.connectivity, mesh.offsets[1:-1])]
    axes.add_collection(PolyCollection(corners, facecolors="none", edgecolors=colour, linewidths=width, snap=False))


def _draw_streamlines(axes: Axes, mesh: Mesh, velocity: Float[np.ndarray, "points 2"]) -> None:
    from matplotlib.tri import LinearTriInterpolator

    positions = mesh.points.numpy()
    low, high = positions.min(axis=0), positions.max(axis=0)
    count = np.maximum((160 * (high - low) / (high - low).max()).astype(int), 20)
    x, y = (np.linspace(low[k], high[k], count[k]) for k in (0, 1))
    try:
        gridded = [LinearTriInterpolator(_surface(mesh), velocity[:, k])(*np.meshgrid(x, y)) for k in (0, 1)]
    except RuntimeError:
        return  # the triangles of a polygon that is not convex overlap, and Matplotlib cannot search in them
    axes.streamplot(x, y, *gridded, color=(1, 1, 1, 0.75), linewidth=0.6, arrowsize=0.6, density=(1.4, 1.0))


# Reference solution, prediction and error, side by side


def draw_case(case: Case, fields: Mapping[str, Tensor], path: str | Path) -> None:
    """Truth, prediction and error of each predicted field side by side, one row for each field and time.

    A vector is drawn as its length, its error as the length of the difference. A mesh in space is cut in its middle.
    """
    layers = layers_of(case, fields)
    mesh, cut = cut_flat(case.mesh, [values for layer in layers.values() for values in layer])
    # A field has the same colours at all of its times.
    names = [heading.partition(",")[0] for heading in layers]
    looks = {name: colours_of([cut[3 * place] for place, each in enumerate(names) if each == name]) for name in names}
    rows = []
    for number, heading in enumerate(layers):
        flat_truth, flat_prediction, flat_error = cut[3 * number : 3 * number + 3]
        colours, limits = looks[names[number]]
        rows.append(
            [
                Panel(f"{heading}: truth", mesh, flat_truth, colours, limits),
                Panel(f"{heading}: prediction", mesh, flat_prediction, colours, limits),
                Panel(f"{heading}: error", mesh, flat_error, ERROR),
            ]
        )
    draw(path, rows, title=case.name)


def layers_of(case: Case, fields: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """By heading, one for each field and time: truth, prediction and error as scalars."""
    layers: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
    for name, values in fields.items():
        if name not in case.targets:
            continue
        truth, predicted = case.targets[name].detach().cpu().double(), values.detach().cpu().double()
        rank = rank_of(name, case)
        times = truth.shape[1 + rank] if truth.ndim > 1 + rank else 0
        for number in range(max(times, 1)):
            one, other = (each[..., number] if times else each for each in (truth, predicted))
            heading = (f"|{name}|" if rank else name) + (f", time {number + 1} of {times}" if times else "")
            layers[heading] = (_size(one), _size(other), _size(other - one, always_positive=True))
    return layers


def colours_of(fields: Sequence[Tensor]) -> tuple[str, tuple[float, float]]:
    """Colour map and limits: the diverging map where a field has both signs, and not only by round-off."""
    values = torch.cat(list(fields)).numpy()
    colours = DIVERGING if values.min() < -_BOTH_SIGNS * np.abs(values).max() else SEQUENTIAL
    return colours, limits_of(values, colours)


def _size(values: Tensor, always_positive: bool = False) -> Tensor:
    if values.ndim > 1:
        return torch.linalg.vector_norm(values.flatten(1), dim=1)
    return values.abs() if always_positive else values


def cut_flat(mesh: Mesh, fields: Sequence[Tensor]) -> tuple[Mesh, list[Tensor]]:
    """A plane mesh as it is; a cut through the middle of one in space, with the fields on it."""
    if mesh.space == 2:
        return mesh, list(fields)
    named = {f"field {number}": values for number, values in enumerate(fields)}
    solid = mesh.with_fields(named).to_pyvista()
    cut = solid.slice(normal="z", origin=solid.center).triangulate()
    corners = np.asarray(cut.faces).reshape(-1, 4)[:, 1:]
    flat = Mesh.from_arrays(np.asarray(cut.points, dtype=np.float64)[:, :2], corners)
    return flat, [torch.from_numpy(np.asarray(cut.point_data[name], dtype=np.float64)) for name in named]
