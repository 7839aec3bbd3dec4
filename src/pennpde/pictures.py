"""Pictures of fields on meshes, drawn with Matplotlib: no display, no OpenGL, no system library."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from pennpde.case import Case
from pennpde.case.moments import STEADY_PREFIX, unknown_of
from pennpde.files import write_atomically
from pennpde.mesh import Mesh
from pennpde.mesh.cells import Facets, fans, mean_rows
from pennpde.metrics import rank_of
from pennpde.penn.equation import Look

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
_FLAT = 0.4
"""Height over width of a panel below which its colour bar is below it."""
_ARROW = 0.045
"""Length of the arrows at inlets and outlets, in sizes of the domain."""
_INLET, _OUTLET = "#0072b2", "#d55e00"
_OPEN_SHARE = 0.3
"""Of its length through which fluid enters or leaves a patch that is an inlet or an outlet."""
_OPEN, _LEAST = 0.1, 0.02
"""A patch is an inlet or an outlet from this share of the fastest flow through the boundary on. Slower than that share
of the fastest flow of all nothing goes through."""
_DOTS_PER_INCH = 200
_GREYS = 24
"""Of the colours of an animation, for lines and letters."""
_MILLISECONDS = 250
"""For which a frame is shown, the last one four times as long."""
_BULK = (2.0, 98.0)
"""Percentiles between which values are never a peak."""
_ONE_SIDED = 0.25
"""Share of the larger side of zero below which the smaller one gets no more of the colours than it has."""
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
        streamlines: A velocity whose streamlines are drawn over the field.
        scale: What the colours stand for, with its unit, next to the colour bar.
        through: A velocity that says where the boundary is an inlet or an outlet; they are marked by arrows.
    """

    title: str
    mesh: Mesh
    values: Tensor | None
    colours: str = SEQUENTIAL
    limits: tuple[float, float] | None = None
    outline: bool = False
    streamlines: Tensor | None = None
    scale: str = ""
    through: Tensor | None = None


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
    panel_width: float | None = None,
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
        panel_width: In inches; by default for two side by side.
        bars: Whether each panel has its colour bar, or each row one, where colours mean the same along it.
    """
    figure = _figure(rows, title, corner, notes, panel_width, bars)
    return Picture(figure, "\n".join([corner, *notes] if corner else notes))


def stacked(rows: Sequence[Sequence[Panel]]) -> list[list[Panel]]:
    """Flat panels one below the other, where they are twice as wide; others as they are."""
    panels = [panel for row in rows for panel in row]
    if all(span[1] < _FLAT * span[0] for span in map(_span, panels)):
        return [[panel] for panel in panels]
    return [list(row) for row in rows]


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
    """Draw rows of panels one after the other, as .mp4 or .webm, or as .gif, which starts again at its end.

    Args:
        path: Of the file.
        frames: Each a row of panels. Their limits should be given: otherwise the colours change their meaning.
        titles: Above each frame, such as its time.
        corner: As for `draw`.
        notes: As for `draw`.
    """
    from PIL import Image

    path = Path(path)
    if path.suffix not in (".gif", *_FILMS):
        raise ValueError(f"An animation cannot be written as {path.suffix}; its name ends in .mp4, .webm or .gif.")
    images = []
    for panels, title in zip(frames, titles, strict=True):
        content = _content(_figure(stacked([panels]), title, corner, notes), ".png", _DOTS_PER_INCH * 0.75, "")
        images.append(np.asarray(Image.open(content).convert("RGB")))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _gif(images, frames[0]) if path.suffix == ".gif" else _film(images, path.suffix))


def _gif(images: Sequence[np.ndarray], panels: Sequence[Panel]) -> bytes:
    """A palette of the colours that occur, and dots of two of them for those in between: no bands."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb
    from PIL import Image

    each = (254 - _GREYS) // len(panels)
    tables = [np.linspace([0, 0, 0], [1, 1, 1], _GREYS), np.array([to_rgb(_INLET), to_rgb(_OUTLET)])]
    tables += [colormaps[panel.colours](np.linspace(0, 1, each))[:, :3] for panel in panels]
    palette = Image.new("P", (1, 1))
    palette.putpalette((255 * np.concatenate(tables)).round().astype(np.uint8).tobytes())
    drawn = [Image.fromarray(each).quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for each in images]
    durations = [_MILLISECONDS] * (len(drawn) - 1) + [4 * _MILLISECONDS]
    content = io.BytesIO()
    drawn[0].save(
        content, format="GIF", save_all=True, append_images=drawn[1:], duration=durations, loop=0, optimize=False
    )
    return content.getvalue()


_FILMS: dict[str, dict[str, Any]] = {
    ".mp4": {"quality": 8},
    ".webm": {
        "codec": "libvpx-vp9",
        "quality": None,
        "output_params": ["-crf", "24", "-b:v", "0", "-deadline", "good", "-cpu-used", "5"],
    },
}
"""H.264, which every slide show plays, and VP9, the free one of browsers."""


def _film(images: Sequence[np.ndarray], suffix: str) -> bytes:
    import imageio_ffmpeg

    # Its sizes are even; the last time stays for as long as four others.
    height, width = (size - size % 2 for size in images[0].shape[:2])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"film{suffix}"
        how = {"fps": 1000 // _MILLISECONDS, "macro_block_size": 2, "ffmpeg_log_level": "error"} | _FILMS[suffix]
        film = imageio_ffmpeg.write_frames(path, (width, height), **how)
        film.send(None)
        for image in [*images, *[images[-1]] * 3]:
            film.send(np.ascontiguousarray(image[:height, :width]))
        film.close()
        return path.read_bytes()


def _figure(
    rows: Sequence[Sequence[Panel]],
    title: str,
    corner: str,
    notes: Sequence[str],
    panel_width: float | None = None,
    bars: Literal["panels", "rows"] = "panels",
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(len(row) for row in rows)
    panel_width = panel_width or (8.0 if columns == 1 else 4.6)
    # Height over width of the tallest panel of each row.
    shapes = [max(span[1] / span[0] for span in map(_span, row)) for row in rows]
    below = [bars == "panels" and shape < _FLAT for shape in shapes]
    heights = [
        panel_width * min(max(shape, 0.08), 1.2) + (0.9 if bar else 0.5)
        for shape, bar in zip(shapes, below, strict=True)
    ]
    width = panel_width * columns + 0.6
    cut = [shorten(note, int(width / _LETTER), placeholder=" …") for note in notes[:_MOST_NOTES]]
    more = [f"and {len(notes) - _MOST_NOTES} more"] * (len(notes) > _MOST_NOTES)
    small_print = [corner] * bool(corner) + cut + more
    figure = Figure(
        figsize=(width, sum(heights) + (0.4 if title else 0) + _LINE * len(small_print)),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    # Of all panels the same, so that panels of one mesh have one size; below and above, by axis, in sizes of the mesh.
    margins = np.full((2, 2), 0.01)
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for row, axes_row, flat in zip(rows, grid, below, strict=True):
        for axes in axes_row[len(row) :]:
            axes.set_axis_off()
        for panel, axes in zip(row, axes_row, strict=False):
            positions = panel.mesh.points.numpy()
            axes.set_title(panel.title, fontsize=10)
            axes.set_aspect("equal")
            axes.set_axis_off()
            if panel.values is None:
                _draw_mesh(axes, panel.mesh)
            else:
                drawn, arrows = _draw_field(axes, panel, panel.values.detach().cpu().numpy())
                if len(arrows):
                    beyond = (_reach(arrows) - _reach(positions)) * [[-1], [1]] / np.ptp(positions, axis=0).max()
                    margins = np.maximum(margins, beyond + 0.01)
                if bars == "panels" or panel is row[-1]:
                    where = axes if bars == "panels" else list(axes_row)
                    group = [panel] if bars == "panels" else row
                    _draw_bar(figure, drawn, where, panel.scale, _extend(group, drawn.get_clim()), flat=flat)
    for row, axes_row in zip(rows, grid, strict=True):
        for panel, axes in zip(row, axes_row, strict=False):
            # Set, because Matplotlib leaves no margin around streamlines.
            positions = panel.mesh.points.numpy()
            (left, lower), (right, upper) = _reach(positions) + margins * [[-1], [1]] * np.ptp(positions, axis=0).max()
            axes.set(xlim=(left, right), ylim=(lower, upper))
    if title:
        figure.suptitle(title, fontsize=11)
    if small_print:
        # A label rather than a text: the layout leaves room for it.
        figure.supxlabel("\n".join(small_print), x=0.995, ha="right", fontsize=8, color="0.3")
    return figure


def _draw_bar(figure: Figure, drawn: Any, where: Any, scale: str, extend: str, *, flat: bool) -> None:
    """A colour bar with round ticks, below a flat panel and to the right of others."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    how: dict[str, Any] = (
        {"location": "bottom", "aspect": 60, "shrink": 0.6, "pad": 0.02} if flat else {"shrink": 0.85, "pad": 0.02}
    )
    bar = figure.colorbar(drawn, ax=where, extend=extend, **how)
    bar.locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10])
    bar.formatter = ScalarFormatter()
    bar.formatter.set_powerlimits((-3, 4))
    bar.update_ticks()
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=9, width=0.5)
    bar.set_label(scale, fontsize=9)


def _extend(panels: Sequence[Panel], limits: tuple[float, float]) -> str:
    """At which ends of the colours there are values beyond them: the bar has an arrow there."""
    values = np.concatenate([panel.values.detach().cpu().numpy() for panel in panels if panel.values is not None])
    finite = values[np.isfinite(values)]
    slack = 1e-3 * (limits[1] - limits[0])
    under = bool((finite < limits[0] - slack).any())
    over = bool((finite > limits[1] + slack).any())
    return {(False, False): "neither", (True, True): "both", (True, False): "min", (False, True): "max"}[under, over]


def _reach(positions: np.ndarray) -> np.ndarray:
    return np.array([positions.min(axis=0), positions.max(axis=0)])


def _span(panel: Panel) -> np.ndarray:
    return np.ptp(panel.mesh.points.numpy()[:, :2], axis=0)


def _draw_solids(path: Path | str, rows: Sequence[Sequence[Panel]]) -> None:
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
        for column, panel in enumerate(row):
            assert panel.values is not None
            axes: Any = figure.add_subplot(len(rows), columns, line * columns + column + 1, projection="3d")
            facets, positions = panel.mesh.facets, panel.mesh.points.numpy()
            means = mean_rows(panel.values.numpy()[facets.connectivity], facets.offsets)
            colours = ScalarMappable(Normalize(float(means.min()), float(means.max())), "viridis")
            polygons = [positions[facet] for facet in np.split(facets.connectivity, facets.offsets[1:-1])]
            axes.add_collection3d(
                Poly3DCollection(polygons, facecolors=colours.to_rgba(means), edgecolors=(0, 0, 0, 0.2), linewidths=0.2)
            )
            low, high = positions.min(axis=0), positions.max(axis=0)
            axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), zlim=(low[2], high[2]), title=panel.title)
            axes.set_box_aspect(high - low)
            figure.colorbar(colours, ax=axes, shrink=0.7)
    save_figure(figure, path, dots_per_inch=_DOTS_PER_INCH)


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
    units: bool = False,
) -> list[Panel]:
    """One panel per field: a scalar as it is, a vector by its length, with streamlines.

    Args:
        mesh: Plane.
        fields: Over the points.
        looks: How fields are titled and coloured, as `Equation.looks` has it.
        label: Before each title.
        streamlines: Whether those of vectors are drawn.
        units: Whether the fields have the units of `Look.unit`.
    """
    panels = []
    through = next((values for values in fields.values() if values.ndim == 2), None)
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
                scale=look.unit if units else "",
                through=through,
            )
        )
    return panels


def error_panels(
    mesh: Mesh, errors: Mapping[str, Tensor], looks: Mapping[str, Look] | None = None, *, units: bool = False
) -> list[Panel]:
    """One panel per unknown with the error that is expected at each point."""
    known = {name: (looks or {}).get(name, Look(name)) for name in errors}
    return [
        Panel(f"expected error of {look.title}", mesh, errors[name], ERROR, scale=look.unit if units else "")
        for name, look in known.items()
    ]


def series_panels(
    mesh: Mesh,
    fields_at_times: Sequence[Mapping[str, Tensor]],
    looks: Mapping[str, Look] | None = None,
    *,
    units: bool = False,
) -> list[list[Panel]]:
    """Panels of fields at several times, a row for each time; a colour means the same value at all times."""
    rows = [field_panels(mesh, fields, looks, streamlines=False, units=units) for fields in fields_at_times]
    shared = []
    for panels in zip(*rows, strict=True):
        values = np.concatenate([panel.values.detach().cpu().numpy() for panel in panels if panel.values is not None])
        shared.append(limits_of(values, panels[0].colours))
    return [[replace(panel, limits=each) for panel, each in zip(row, shared, strict=True)] for row in rows]


def triangles(mesh: Mesh) -> Int64[np.ndarray, "triangles 3"]:
    """The cells of a plane mesh as triangles, each polygon a fan around the corner that sees the others best."""
    if mesh.space != 2:
        raise ValueError(
            f"Only a plane mesh can be drawn flat; this one has {mesh.space} dimensions. Draw a slice, or open the "
            "file in ParaView."
        )
    cells = Facets(mesh.connectivity, mesh.offsets, np.arange(mesh.number_of_cells))
    return fans(np.pad(mesh.points.numpy(), ((0, 0), (0, 1))), cells)


def _draw_field(axes: Axes, panel: Panel, values: Float[np.ndarray, " points"]) -> tuple[Any, np.ndarray]:
    """What the colours are of, and the ends of arrows outside of the mesh."""
    low, high = panel.limits or limits_of(values, panel.colours)
    colours = _section(panel.colours, (low, high))
    drawn = axes.tripcolor(_surface(panel.mesh), values, shading="gouraud", cmap=colours, vmin=low, vmax=high)
    if panel.outline:
        _draw_cells(axes, panel.mesh, (0, 0, 0, 0.25), 0.25)
    if panel.streamlines is not None:
        _draw_streamlines(axes, panel.mesh, panel.streamlines.detach().cpu().numpy())
    through = panel.through
    found = [] if through is None else openings(panel.mesh, through.detach().cpu().double().numpy())
    for each in found:
        _draw_edges(axes, panel.mesh, each.facets, colors="0.75", linewidths=0.9)
        how: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 1, "clip_on": False}
        how |= {"width": 0.006, "headwidth": 4, "headlength": 4, "headaxislength": 3.5}
        colour = _INLET if each.enters else _OUTLET
        axes.quiver(*each.tails.T, *each.arrows.T, color=colour, **how).set_in_layout(False)
    walls = np.setdiff1d(np.arange(len(panel.mesh.facets)), np.concatenate([[], *(each.facets for each in found)]))
    _draw_edges(axes, panel.mesh, walls, colors="0.2", linewidths=0.9)
    return drawn, np.concatenate(
        [np.zeros((0, 2)), *(ends for each in found for ends in (each.tails, each.tails + each.arrows))]
    )


def _section(colours: str, limits: tuple[float, float]) -> Any:
    """The part of the diverging map that the limits take of it: white is zero, also where one sign has little to show.

    The page in the browser does the same (`section` in field_view.js).
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    low, high = limits
    if colours != DIVERGING or not low <= 0 <= high or low == high:
        return colormaps[colours]
    half = 2 * max(-low, high)
    return ListedColormap(colormaps[colours](np.linspace(0.5 + low / half, 0.5 + high / half, 256)))


@dataclass(frozen=True, eq=False)
class Opening:
    """A part of the boundary where fluid enters or leaves.

    Attributes:
        facets: Of the mesh.
        enters: Or leaves.
        tails: Where arrows outside of the mesh begin that show it.
        arrows: From there.
    """

    facets: np.ndarray
    enters: bool
    tails: Float[np.ndarray, "arrows 2"]
    arrows: Float[np.ndarray, "arrows 2"]


def openings(mesh: Mesh, velocity: Float[np.ndarray, "points 2"]) -> list[Opening]:
    """The patches through which fluid enters and leaves; of a mesh without patches, the facets."""
    areas = mesh.geometry.facet_areas.numpy()
    ends = mesh.facets.connectivity.reshape(-1, 2)
    lengths = np.linalg.norm(areas, axis=1)
    outward = areas / np.maximum(lengths, 1e-300)[:, None]
    leaving = (velocity[ends].mean(axis=1) * areas).sum(axis=1)
    positions = mesh.points.numpy()
    middles, size = positions[ends].mean(axis=1), float(np.ptp(positions, axis=0).max())
    groups = [patch.facets for patch in mesh.patches.values() if len(patch.facets)]
    groups = groups or [each for each in (np.flatnonzero(leaving < 0), np.flatnonzero(leaving > 0)) if len(each)]
    speeds = [leaving[group].sum() / max(lengths[group].sum(), 1e-300) for group in groups]
    fastest = max(float(np.abs(speeds).max(initial=0.0)), _LEAST * float(np.abs(velocity).max(initial=0.0)))
    found = []
    for group, speed in zip(groups, speeds, strict=True):
        through = leaving[group] * np.sign(speed) > 0  # next to a moving wall only one facet has some
        if not abs(speed) > _OPEN * fastest or lengths[group][through].sum() < _OPEN_SHARE * lengths[group].sum():
            continue
        ordered = group[np.argsort(middles[group] @ (1.0, 1.618))]
        share = lengths[ordered].cumsum() / lengths[ordered].sum()
        number = max(1, int(lengths[ordered].sum() / (2 * _ARROW * size)))
        places = ordered[np.searchsorted(share, (np.arange(number) + 0.5) / number)]
        along = np.sign(speed) * outward[places] * _ARROW * size
        tails = middles[places] + (0.25 if speed > 0 else -1.25) * along
        found.append(Opening(group, bool(speed < 0), tails, along))
    return found


def _draw_mesh(axes: Axes, mesh: Mesh) -> None:
    _draw_cells(axes, mesh, (0.35, 0.35, 0.35, 1.0), 0.4)
    for number, (name, patch) in enumerate(mesh.patches.items()):
        _draw_edges(axes, mesh, patch.facets, colors=f"C{number}", linewidths=2.0, label=name)
    if mesh.patches:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0.0),
            ncols=len(mesh.patches),
            frameon=False,
            fontsize=8,
            columnspacing=1.0,
            handlelength=1.2,
        )


def _draw_edges(axes: Axes, mesh: Mesh, facets: np.ndarray | slice, **how: Any) -> None:
    """Draw facets of the boundary."""
    from matplotlib.collections import LineCollection

    edges = mesh.facets.connectivity.reshape(-1, 2)[facets]
    following: dict[int, list[int]] = {}
    for first, second in edges.tolist():
        following.setdefault(first, []).append(second)
    lines = []
    # In one stroke as far as they go: single edges have joints that show. Lines that do not close begin at their ends.
    for first in [*np.setdiff1d(edges[:, 0], edges[:, 1]).tolist(), *edges[:, 0].tolist()]:
        line = [first]
        while following.get(line[-1]):
            line.append(following[line[-1]].pop())
        lines += [mesh.points.numpy()[line]] if len(line) > 1 else []
    axes.add_collection(LineCollection(lines, joinstyle="round", **how))


def _surface(mesh: Mesh) -> Triangulation:
    from matplotlib.tri import Triangulation

    positions = mesh.points.numpy()
    return Triangulation(positions[:, 0], positions[:, 1], triangles(mesh))


def limits_of(values: np.ndarray, colours: str) -> tuple[float, float]:
    """The range of the colours: almost all of the field; for the diverging map around zero, where it has both signs.

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
        least, most = (max(0.0, float(each)) for each in np.percentile(finite, _BULK) * (-1, 1))
        if middle == 0.0 and min(least, most) < _ONE_SIDED * max(least, most):
            low, high = _without_peaks(finite)
            return min(low, 0.0), max(high, 0.0)
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
    # As dense along as across: Matplotlib counts them by the sides of the picture.
    density = tuple(np.clip(1.2 * (high - low) / np.sqrt((high - low).prod()), 0.3, 3.0))
    axes.streamplot(x, y, *gridded, color=(1, 1, 1, 0.75), linewidth=0.6, arrowsize=0.6, density=density)


# Reference solution, prediction and error, side by side


def draw_case(case: Case, fields: Mapping[str, Tensor], path: str | Path) -> None:
    """Truth, prediction and error of each predicted field side by side, one row for each field and time.

    A vector is drawn as its length, its error as the length of the difference. A mesh in space is cut in its middle.
    """
    layers = layers_of(case, fields)
    mesh, cut, _ = cut_flat(case.mesh, [values for layer in layers.values() for values in layer])
    # A field has the same colours at all of its times.
    names = [heading.partition(",")[0] for heading in layers]
    looks = {name: colours_of([cut[3 * place] for place, each in enumerate(names) if each == name]) for name in names}
    rows = []
    for number, heading in enumerate(layers):
        flat_truth, flat_prediction, flat_error = cut[3 * number : 3 * number + 3]
        colours, limits = looks[names[number]]
        rows.append(
            [
                Panel(f"{heading}: reference", mesh, flat_truth, colours, limits),
                Panel(f"{heading}: prediction", mesh, flat_prediction, colours, limits),
                Panel(f"{heading}: error", mesh, flat_error, ERROR),
            ]
        )
    draw(path, rows, title=case.name)


def draw_all(path: Path | str, shown: Iterable[Case | Mesh], in_a_row: int = 1, **how: Any) -> None:
    """The fields of some cases or meshes side by side: targets at their last time, unknowns without one at the start.

    Args:
        path: Of the picture.
        shown: All in the plane, or all in space.
        in_a_row: How many of them.
        **how: As for `picture`.
    """
    groups: list[list[Panel]] = []
    for each in shown:
        mesh, fields = (each, each.fields) if isinstance(each, Mesh) else (each.mesh, _last_fields(each))
        doubles = {name: values.double() for name, values in fields.items()} or {"mesh": mesh.points[:, 0]}
        looks = {name: Look(name, bool((values < 0).any())) for name, values in doubles.items() if values.ndim == 1}
        label = "" if isinstance(each, Mesh) else each.name
        panels = field_panels(mesh, doubles, looks, label, streamlines=False)
        groups.append([replace(panels[0], outline=True), *panels[1:]])
    rows = [list(chain(*groups[place : place + in_a_row])) for place in range(0, len(groups), in_a_row)]
    if rows[0][0].mesh.space == 3:
        _draw_solids(path, rows)
    else:
        draw(path, rows, **how)


def _last_fields(case: Case) -> dict[str, Tensor]:
    found = {}
    for name, start in case.initial.items():
        values = case.targets.get(name, case.targets.get(STEADY_PREFIX + name, start))
        found[name] = values[..., -1] if values.ndim > start.ndim else values
    return found | {name: each for name, each in case.targets.items() if unknown_of(name, case.initial) is None}


def layers_of(case: Case, fields: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """By heading, one for each field and time: reference, prediction and error as scalars."""
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


_BESIDE = 1e-4
"""Of the extent of a mesh in space, by how much it is cut beside its middle."""


def cut_flat(mesh: Mesh, fields: Sequence[Tensor]) -> tuple[Mesh, list[Tensor], str]:
    """A plane mesh as it is; a cut through the middle of one in space, across its shortest side, and where that is."""
    if mesh.space == 2:
        return mesh, list(fields), ""
    extent = np.ptp(mesh.points.numpy(), axis=0)
    across = 2 - int(extent[::-1].argmin())
    named = {f"field {number}": values for number, values in enumerate(fields)}
    solid = mesh.with_fields(named).to_pyvista()
    along = [axis for axis in range(3) if axis != across]
    # Beside the middle: a plane of faces would be cut twice, and in points.
    origin = np.array(solid.center) + _BESIDE * extent[across] * (np.arange(3) == across)
    cut = solid.slice(normal=[float(axis == across) for axis in range(3)], origin=origin).triangulate()
    corners, points = np.asarray(cut.faces).reshape(-1, 4)[:, 1:], np.asarray(cut.points, dtype=np.float64)[:, along]
    one, other = (points[corners[:, place]] - points[corners[:, 0]] for place in (1, 2))
    areas = np.abs(one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0])
    flat = Mesh.from_arrays(points, corners[areas > 1e-9 * areas.mean()])
    values = [torch.from_numpy(np.asarray(cut.point_data[name], dtype=np.float64)) for name in named]
    return flat, values, f"slice at {'xyz'[across]} = {solid.center[across]:.4g}"
