"""Charts of the documentation in one style: 200 dots per inch, round ticks, colours that everybody can tell apart."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from cycler import cycler

from pennpde.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#7a4419", "#000000")
"""Those of Okabe and Ito, as far as they are dark enough for lines."""
_DOTS_PER_INCH = 200
_STYLE: dict[Any, Any] = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
}


def chart(rows: int, columns: int, width: float, height: float, **how: Any) -> tuple[Figure, Any]:
    """A figure of so many inches and an array of its axes [rows, columns]; `how` as for Matplotlib's subplots."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mpl.rcParams.update(_STYLE)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **how)


def round_ticks(axes: Axes, which: str) -> None:
    """On a logarithmic axis 1, 2, 5, 10 ... as far as there is room, and no words at the others."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    if high < 200 * low and low > 1e-3 and high < 1e4:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path, colours: int = 256) -> None:
    """Write a PNG of a palette of colours, which takes a third of the space."""
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DOTS_PER_INCH)
    write_atomically(path, with_palette(content.getvalue(), colours))


def with_palette(picture: bytes, colours: int = 256) -> bytes:
    """A PNG with so many colours; with all 256, fields have dots of two of them, and so no bands."""
    from PIL import Image

    content = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    palette = image.quantize(colours, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
    dots = Image.Dither.FLOYDSTEINBERG if colours == 256 else Image.Dither.NONE
    drawn = image.quantize(palette=palette, dither=dots)
    drawn.save(content, format="PNG", optimize=True, dpi=(_DOTS_PER_INCH, _DOTS_PER_INCH))
    return content.getvalue()
