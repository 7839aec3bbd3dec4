"""Draw the networks as pictures: the counterparts of the paper's figures 5, 9 to 11 and 13 to 15, for docs/figures.md.

python docs/figures_architectures.py [NUMBER ...]

Solid grey boxes are learned, dashed ones are not; dotted arrows are loops. Sizes of layers are read from the networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from pennlab.charts import save
from pennlab.paper.gradient import GradientNetwork
from pennpde.models.advection_diffusion import advection_diffusion_network
from pennpde.models.ducts import flow_network

IMAGES = Path(__file__).parent / "images" / "figures"
INCHES = 0.82
"""A unit of length in the drawings; a box is 0.8 units high and about two wide."""
FONT = 10

Kind = Literal["input", "learned", "fixed", "output"]
STYLES: dict[Kind, dict[str, Any]] = {
    "input": {"facecolor": "#dcebf7", "edgecolor": "#3b76a8", "linestyle": "-"},
    "learned": {"facecolor": "#e4e4e4", "edgecolor": "#444444", "linestyle": "-"},
    "fixed": {"facecolor": "white", "edgecolor": "#444444", "linestyle": "--"},
    "output": {"facecolor": "#fde6d5", "edgecolor": "#c05a12", "linestyle": "-"},
}
NAMES: dict[Kind, str] = {"input": "input", "learned": "learned", "fixed": "not learned", "output": "output"}


@dataclass(frozen=True)
class Box:
    """A part of a network: what it does, at the place of its centre."""

    text: str
    x: float
    y: float
    kind: Kind = "fixed"
    width: float = 2.0
    height: float = 0.8

    def edge(self, side: str) -> tuple[float, float]:
        """The middle of a side: l, r, t or b."""
        across = {"l": -0.5, "r": 0.5}.get(side, 0.0) * self.width
        along = {"b": -0.5, "t": 0.5}.get(side, 0.0) * self.height
        return self.x + across, self.y + along


@dataclass(frozen=True)
class Arrow:
    """From a side of one box to a side of another, through corners."""

    begin: str
    end: str
    sides: str = "rl"
    via: tuple[tuple[float, float], ...] = ()
    loop: bool = False
    shift: float = 0.0
    """Of the end along its side, where several arrows arrive."""


@dataclass(frozen=True)
class Drawing:
    """A picture: boxes by name, arrows between them, and words at places."""

    size: tuple[float, float]
    boxes: dict[str, Box]
    arrows: Sequence[Arrow]
    words: Sequence[tuple[float, float, str]] = ()


def layers(network: Any) -> str:
    """The sizes of an MLP or a linear layer, such as 3 → 16 → 16."""
    found = getattr(network, "layers", None) or [network]
    return " → ".join(str(number) for number in [found[0].in_features, *(each.out_features for each in found)])


def draw(drawing: Drawing, path: Path) -> None:
    """Write the picture, with a legend of the kinds of boxes below."""
    width, height = drawing.size
    figure = Figure(figsize=(width * INCHES, (height + 0.5) * INCHES))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(-0.5, height))
    axes.set_axis_off()
    for box in drawing.boxes.values():
        _draw_box(axes, box)
    for arrow in drawing.arrows:
        begin, end = drawing.boxes[arrow.begin].edge(arrow.sides[0]), drawing.boxes[arrow.end].edge(arrow.sides[1])
        along_side = (0.0, arrow.shift) if arrow.sides[1] in "lr" else (arrow.shift, 0.0)
        end = (end[0] + along_side[0], end[1] + along_side[1])
        places = [begin, *arrow.via, end]
        style = {"color": "#b03030" if arrow.loop else "#222222", "linewidth": 1.2, "zorder": 1}
        line = ":" if arrow.loop else "-"
        axes.plot(*zip(*places[:-1], strict=True), linestyle=line, solid_capstyle="butt", **style)
        axes.annotate(
            "", end, places[-2], arrowprops={"arrowstyle": "-|>", "linestyle": line, "shrinkA": 0, "shrinkB": 0,
                                              "color": style["color"], "linewidth": 1.2, "mutation_scale": 11},
        )  # fmt: skip
    for x, y, text in drawing.words:
        axes.text(x, y, text, fontsize=FONT, ha="center", va="center", color="#222222", linespacing=1.25)
    for number, kind in enumerate(NAMES):
        _draw_box(axes, Box(NAMES[kind], 1.0 + 1.75 * number, -0.18, kind, 1.5, 0.36))
    if any(arrow.loop for arrow in drawing.arrows):
        axes.plot((7.4, 8.0), (-0.18, -0.18), linestyle=":", color="#b03030", linewidth=1.2)
        axes.text(8.15, -0.18, "loop", fontsize=FONT, ha="left", va="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path, colours=128)


def _draw_box(axes: Any, box: Box) -> None:
    corner = (box.x - box.width / 2, box.y - box.height / 2)
    patch = FancyBboxPatch(
        corner, box.width, box.height, boxstyle="round,pad=0,rounding_size=0.08", linewidth=1.2, zorder=2,
        **STYLES[box.kind],
    )  # fmt: skip
    axes.add_patch(patch)
    axes.text(box.x, box.y, box.text, fontsize=FONT, ha="center", va="center", linespacing=1.25, zorder=3)


def gradient() -> Drawing:
    """Figure 5: (a) IsoGCN of the paper's table, (b) NIsoGCN."""
    theirs, ours = GradientNetwork("isogcn_of_table_1"), GradientNetwork("nisogcn")
    mixing = " × ".join(map(str, ours.mixing.shape))
    boxes = {
        "values a": Box("φ, ĝ", 1.0, 4.6, "input", 1.3),
        "encoder a": Box(f"MLP {layers(theirs.encoder)}\nLeakyReLU, no biases", 3.5, 4.6, "learned", 2.7),
        "operator a": Box("gradient 0 → 1\nmoment matrix with n", 6.4, 4.6, "fixed", 2.3),
        "mixing a": Box(f"W, {mixing}", 8.5, 4.6, "learned", 1.2),
        "normals": Box("normals n", 6.4, 3.45, "input", 1.5, 0.6),
        "output a": Box(f"linear {layers(theirs.output)}", 10.4, 4.6, "learned", 1.6),
        "result a": Box("∇φ", 12.1, 4.6, "output", 0.9),
        "values b": Box("φ", 1.0, 2.0, "input", 1.3),
        "slopes b": Box("ĝ", 1.0, 0.8, "input", 1.3),
        "encoder b": Box(f"MLP {layers(ours.encoder)}\nLeakyReLU, no biases", 3.5, 2.0, "learned", 2.7),
        "neumann b": Box(f"linear {layers(ours.neumann_encoder)}\nno bias", 3.5, 0.8, "learned", 2.7),
        "operator b": Box("gradient 0 → 1\nwith normal derivative", 6.4, 2.0, "fixed", 2.3),
        "mixing b": Box(f"W, {mixing}", 8.5, 2.0, "learned", 1.2),
        "output b": Box(f"linear {layers(ours.output)}", 10.4, 2.0, "learned", 1.6),
        "result b": Box("∇φ", 12.1, 2.0, "output", 0.9),
    }
    arrows = [
        Arrow(f"{begin} {row}", f"{end} {row}")
        for row in "ab"
        for begin, end in (
            ("values", "encoder"),
            ("encoder", "operator"),
            ("operator", "mixing"),
            ("mixing", "output"),
            ("output", "result"),
        )
    ]
    arrows += [
        Arrow("normals", "output a", "rb", ((10.4, 3.45),)),
        Arrow("slopes b", "neumann b"),
        Arrow("neumann b", "operator b", "rb", ((6.4, 0.8),)),
    ]
    words = [(2.6, 5.35, "(a) IsoGCN as in the paper's table"), (1.35, 2.75, "(b) NIsoGCN")]
    return Drawing((12.8, 5.7), boxes, arrows, words)


def flow_overview() -> Drawing:
    """Figure 9."""
    network = flow_network()
    encoder = layers(network.encoders["u"].network)
    boxes = {
        "u": Box("u(t = 0)", 1.0, 5.3, "input", 1.5),
        "û": Box("û Dirichlet", 1.0, 4.3, "input", 1.5),
        "p": Box("p(t = 0)", 1.0, 3.1, "input", 1.5),
        "p̂": Box("p̂ Dirichlet", 1.0, 2.1, "input", 1.5),
        "d": Box("wall distance d", 1.0, 0.8, "input", 1.7),
        "encode u": Box(f"encoder of u\nlinear {encoder}", 3.4, 4.8, "learned", 1.9),
        "encode p": Box(f"encoder of p\nlinear {encoder}", 3.4, 2.6, "learned", 1.9),
        "levels": Box("exp(−d/2), exp(−d),\nexp(−2d)", 3.4, 0.8, "fixed", 1.9),
        "geometry": Box(f"MLP {layers(network.equation.geometry)}\ntanh", 5.8, 0.8, "learned", 1.9),
        "solver": Box(
            f"neural nonlinear solver\nvelocity and pressure\n(figure 10; its inner loop\nfor pressure: figure 11)\n"
            f"{network.solver.iterations} iterations,\nDirichlet layer inside",
            7.6,
            3.7,
            "learned",
            2.6,
            2.2,
        ),
        "decode u": Box("pseudoinverse of\nencoder of u", 10.4, 4.8, "fixed", 1.8),
        "decode p": Box("pseudoinverse of\nencoder of p", 10.4, 2.6, "fixed", 1.8),
        "û again": Box("prescribed\nvalues as given", 12.5, 4.8, "fixed", 1.6),
        "p̂ again": Box("prescribed\nvalues as given", 12.5, 2.6, "fixed", 1.6),
        "u end": Box("u(t = 4)", 14.4, 4.8, "output", 1.2),
        "p end": Box("p(t = 4)", 14.4, 2.6, "output", 1.2),
    }
    arrows = [
        Arrow("u", "encode u", shift=0.2),
        Arrow("û", "encode u", shift=-0.2),
        Arrow("p", "encode p", shift=0.2),
        Arrow("p̂", "encode p", shift=-0.2),
        Arrow("d", "levels"),
        Arrow("levels", "geometry"),
        Arrow("encode u", "solver", "rl", ((5.4, 4.8), (5.4, 4.2)), shift=0.5),
        Arrow("encode p", "solver", "rl", ((5.4, 2.6), (5.4, 3.2)), shift=-0.5),
        Arrow("geometry", "solver", "rb", ((7.6, 0.8),)),
        Arrow("solver", "solver", "tt", ((7.6, 5.3), (8.6, 5.3)), loop=True, shift=1.0),
        Arrow("solver", "decode u", "rl", ((9.2, 3.7), (9.2, 4.8))),
        Arrow("solver", "decode p", "rl", ((9.2, 3.7), (9.2, 2.6))),
        Arrow("decode u", "û again"),
        Arrow("decode p", "p̂ again"),
        Arrow("û again", "u end"),
        Arrow("p̂ again", "p end"),
    ]
    return Drawing((15.2, 5.9), boxes, arrows)


def velocity_solver() -> Drawing:
    """Figure 10."""
    network = flow_network()
    equation, width = network.equation, network.width
    mixing = f"{width} × {width}"
    boxes = {
        "state": Box("$h_u$, $h_p$ after\ni iterations", 1.5, 6.6, "input", 2.2),
        "code": Box("code of the wall distance\nand its gradient", 1.5, 5.2, "input", 2.5),
        "correction": Box(
            f"correction, Dirichlet layer\nlinear {layers(equation.correction)}, gate MLP\n"
            f"{layers(equation.correction_gate)}",
            4.8,
            6.4,
            "learned",
            2.8,
            1.1,
        ),
        "jacobian": Box("gradient 1 → 2\n∇$h_u$, Neumann at outlet", 8.1, 7.0, "fixed", 2.5),
        "laplacian": Box("damped Laplacian\n∇²$h_u$", 8.1, 5.8, "fixed", 2.5),
        "advection": Box(f"($h_u$·∇)$h_u$, times W\n{mixing}", 11.2, 7.0, "learned", 2.2),
        "diffusion": Box(f"5 ν ∇²$h_u$, times W\n{mixing}", 11.2, 5.8, "learned", 2.2),
        "coefficients": Box(
            f"coefficients of all five operators\nMLP {layers(equation.coefficients)}, tanh\nof code and |$h_u$|²",
            4.8,
            4.4,
            "learned",
            2.9,
            1.1,
        ),
        "rate": Box("rate of the\nintermediate velocity", 11.2, 4.4, "fixed", 2.2),
        "source": Box(f"source: divergence,\ntimes W, {mixing}", 11.2, 3.0, "learned", 2.2),
        "pressure": Box("pressure loop\n(figure 11)", 8.1, 3.0, "learned", 2.2),
        "slope": Box(f"∇$h_p$, times W, {mixing}\nNeumann at walls, inlet", 4.8, 3.0, "learned", 2.6),
        "force": Box(
            f"force: linear {layers(equation.force)}\nof $h_u$, advection, diffusion, ∇$h_p$\n"
            f"gate MLP {layers(equation.force_gate)}",
            4.8,
            1.5,
            "learned",
            3.2,
            1.1,
        ),
        "sum": Box(
            f"$h_u^{{(0)}}$ + {equation.relaxation:.0%} of Δt × (rate − ∇$h_p$)\n+ force, then Dirichlet layer",
            8.6,
            1.5,
            "fixed",
            3.0,
            1.0,
        ),
        "step": Box("Barzilai–Borwein step\nh ← h − |α| R(h)", 12.0, 1.5, "fixed", 2.4),
        "next": Box("$h_u$, $h_p$ after\ni + 1 iterations", 14.5, 1.5, "output", 1.8),
    }
    arrows = [
        Arrow("state", "correction", "rl", shift=0.2),
        Arrow("code", "correction", "rl", ((3.1, 5.2), (3.1, 6.2)), shift=-0.2),
        Arrow("code", "coefficients", "rl", ((3.1, 5.2), (3.1, 4.4))),
        Arrow("correction", "jacobian", "rl", ((6.5, 6.4), (6.5, 7.0))),
        Arrow("correction", "laplacian", "rl", ((6.5, 6.4), (6.5, 5.8))),
        Arrow("correction", "coefficients", "bt"),
        Arrow("jacobian", "advection"),
        Arrow("laplacian", "diffusion"),
        Arrow("advection", "rate", "rr", ((12.8, 7.0), (12.8, 4.4))),
        Arrow("diffusion", "rate", "bt"),
        Arrow("coefficients", "rate"),
        Arrow("rate", "source", "bt"),
        Arrow("source", "pressure", "lr"),
        Arrow("pressure", "slope", "lr"),
        Arrow("slope", "force", "bt"),
        Arrow("slope", "sum", "bt", ((4.8, 2.3), (8.6, 2.3))),
        Arrow("force", "sum"),
        Arrow("sum", "step"),
        Arrow("step", "next"),
        Arrow("next", "state", "tt", ((14.5, 7.75), (1.5, 7.75)), loop=True),
    ]
    words = [(13.4, 7.5, f"{network.solver.iterations} iterations")]
    return Drawing((15.6, 8.0), boxes, arrows, words)


def pressure_solver() -> Drawing:
    """Figure 11."""
    network = flow_network()
    equation, width = network.equation, network.width
    boxes = {
        "state": Box("$h_p$ after k iterations", 1.5, 3.4, "input", 2.2, 0.7),
        "source": Box("source\n(figure 10)", 1.5, 2.2, "input", 2.2),
        "invariants": Box("code, |$h_u$|², div $h_u$ and $h_p$\nbefore the loop", 1.5, 0.9, "input", 2.5),
        "laplacian": Box("damped Laplacian ∇²$h_p$\nNeumann at walls, inlet", 4.6, 3.4, "fixed", 2.6),
        "poisson": Box(f"times W, {width} × {width},\nand a coefficient", 7.5, 3.4, "learned", 2.1),
        "difference": Box(
            f"{equation.pressure_step:g} ℓ² × (∇²$h_p$ − source)\nℓ = {equation.length:g}", 7.5, 2.2, "fixed", 2.5
        ),
        "local": Box(f"local term: MLP\n{layers(equation.local_pressure)}, tanh", 4.6, 0.9, "learned", 2.6),
        "sum": Box("$h_p^{(0)}$ + change,\nDirichlet layer", 10.3, 2.2, "fixed", 1.9),
        "step": Box("Barzilai–Borwein step\nh ← h − |α| R(h)", 12.7, 2.2, "fixed", 2.2),
        "next": Box("$h_p$ after\nk + 1 iterations", 14.9, 2.2, "output", 1.6),
    }
    arrows = [
        Arrow("state", "laplacian"),
        Arrow("laplacian", "poisson"),
        Arrow("poisson", "difference", "bt"),
        Arrow("source", "difference"),
        Arrow("invariants", "local"),
        Arrow("difference", "sum"),
        Arrow("local", "sum", "rb", ((10.3, 0.9),)),
        Arrow("sum", "step"),
        Arrow("step", "next"),
        Arrow("next", "state", "tt", ((14.9, 4.3), (1.5, 4.3)), loop=True),
    ]
    words = [(8.2, 4.1, f"{equation.pressure_solver.iterations} iterations")]
    return Drawing((15.9, 4.6), boxes, arrows, words)


def heat_in_time() -> Drawing:
    """Figure 13."""
    network = advection_diffusion_network()
    times = [0.0, *network.output_times]
    boxes = {
        "start": Box("T(t = 0)", 1.0, 1.9, "input", 1.4),
        "encode": Box("encoder", 1.0, 3.4, "learned", 1.4),
        "conditions": Box("T̂, c, D, distance from the inlet: the same at all times", 7.6, 4.9, "input", 6.0, 0.6),
    }
    arrows = [Arrow("start", "encode", "tb")]
    before = "encode"
    for number, time in enumerate(times[1:]):
        x = 3.4 + 2.7 * number
        boxes[f"solver {number}"] = Box("the same solver\n(figures 14, 15)", x, 3.4, "learned", 1.9)
        boxes[f"decode {number}"] = Box("pseudoinverse", x, 1.9, "fixed", 1.9, 0.6)
        boxes[f"result {number}"] = Box(f"T(t = {time:g})", x, 0.7, "output", 1.6, 0.7)
        arrows += [
            Arrow(before, f"solver {number}", loop=number > 0),
            Arrow(f"solver {number}", f"decode {number}", "bt"),
            Arrow(f"decode {number}", f"result {number}", "bt"),
            Arrow("conditions", f"solver {number}", "bt", ((7.6, 4.25), (x, 4.25))),
        ]
        before = f"solver {number}"
    words = [(13.3, 3.4, "encoded state\nto the next step,\nas long as wanted")]
    return Drawing((14.6, 5.4), boxes, arrows, words)


def heat_overview() -> Drawing:
    """Figure 14."""
    network = advection_diffusion_network()
    equation, width = network.equation, network.width
    boxes = {
        "T": Box("T(t = 0)", 1.1, 4.4, "input", 1.6),
        "T̂": Box("T̂ Dirichlet", 1.1, 3.4, "input", 1.6),
        "distance": Box("inlet distance d", 1.1, 2.1, "input", 1.8),
        "c, D": Box("velocity c,\ndiffusivity D", 1.1, 0.8, "input", 1.8),
        "encode": Box(f"encoder, linear\n{layers(network.encoders['T'].network)}", 3.7, 3.9, "learned", 1.8),
        "numbers": Box("invariants: exp(−d/2), exp(−d),\nexp(−2d), c·∇ of these, |c|, D", 4.3, 1.4, "fixed", 3.0),
        "coefficients": Box(f"MLP {layers(equation.coefficients)}\ntanh", 7.6, 1.4, "learned", 2.5),
        "terms": Box(
            f"coefficients, {width} channels each:\nadvection 1 + a, source s,\n"
            f"diffusion D eᵇ + {equation.upwind:g} |c| eᵉ",
            10.9,
            1.4,
            "fixed",
            3.1,
            1.1,
        ),
        "solver": Box(
            f"neural nonlinear solver\n(figure 15), {network.solver.iterations} iterations,\nDirichlet layer inside",
            7.6,
            3.9,
            "learned",
            2.6,
            1.2,
        ),
        "decode": Box("pseudoinverse,\nprescribed values", 10.9, 3.9, "fixed", 2.0),
        "end": Box("T at\nt + Δt", 13.3, 3.9, "output", 1.3),
    }
    arrows = [
        Arrow("T", "encode", shift=0.2),
        Arrow("T̂", "encode", shift=-0.2),
        Arrow("distance", "numbers", shift=0.2),
        Arrow("c, D", "numbers", shift=-0.2),
        Arrow("numbers", "coefficients"),
        Arrow("coefficients", "terms"),
        Arrow("terms", "solver", "tb", ((10.9, 2.6), (7.6, 2.6))),
        Arrow("encode", "solver"),
        Arrow("solver", "decode"),
        Arrow("decode", "end"),
        Arrow("solver", "solver", "tt", ((7.6, 5.0), (6.6, 5.0)), loop=True, shift=-1.0),
    ]
    words = [(8.9, 5.05, f"encoded state, {network.steps} times")]
    return Drawing((14.3, 5.4), boxes, arrows, words)


def heat_solver() -> Drawing:
    """Figure 15."""
    network = advection_diffusion_network()
    mixing = f"{network.width} × {network.width}"
    boxes = {
        "state": Box("h after\ni iterations", 1.2, 2.7, "input", 1.6),
        "gradient": Box("gradient 0 → 1\n∇h", 3.6, 4.1, "fixed", 1.8),
        "laplacian": Box("damped Laplacian\n∇²h", 3.6, 2.7, "fixed", 1.8),
        "advection": Box(f"c·∇h, times W\n{mixing}", 6.1, 4.1, "learned", 1.8),
        "diffusion": Box(f"times W\n{mixing}", 6.1, 2.7, "learned", 1.8),
        "source": Box(f"h, times W\n{mixing}", 6.1, 1.3, "learned", 1.8),
        "coefficients": Box("coefficients\n(figure 14)", 8.7, 4.1, "input", 1.8),
        "rate": Box("rate: sum of the\nthree terms, each\nwith its coefficient", 8.7, 2.7, "fixed", 2.2, 1.1),
        "sum": Box("$h^{(0)}$ + rate × Δt,\nDirichlet layer", 11.3, 2.7, "fixed", 1.9),
        "step": Box("Barzilai–Borwein step\nh ← h − |α| R(h)", 13.8, 2.7, "fixed", 2.2),
        "next": Box("h after\ni + 1 iterations", 13.8, 1.3, "output", 1.9),
    }
    arrows = [
        Arrow("state", "gradient", "rl", ((2.35, 2.7), (2.35, 4.1))),
        Arrow("state", "laplacian"),
        Arrow("state", "source", "rl", ((2.35, 2.7), (2.35, 1.3))),
        Arrow("gradient", "advection"),
        Arrow("laplacian", "diffusion"),
        Arrow("advection", "rate", "rl", ((7.35, 4.1), (7.35, 2.95)), shift=0.25),
        Arrow("diffusion", "rate"),
        Arrow("source", "rate", "rl", ((7.35, 1.3), (7.35, 2.45)), shift=-0.25),
        Arrow("coefficients", "rate", "bt"),
        Arrow("rate", "sum"),
        Arrow("sum", "step"),
        Arrow("step", "next", "bt"),
        Arrow("next", "state", "bb", ((13.8, 0.4), (1.2, 0.4)), loop=True),
    ]
    words = [(7.5, 0.55, f"{network.solver.iterations} iterations")]
    return Drawing((15.2, 4.8), boxes, arrows, words)


DRAWINGS: dict[int, Callable[[], Drawing]] = {
    5: gradient,
    9: flow_overview,
    10: velocity_solver,
    11: pressure_solver,
    13: heat_in_time,
    14: heat_overview,
    15: heat_solver,
}


def main(numbers: Sequence[str]) -> None:
    for number in map(int, numbers or map(str, DRAWINGS)):
        draw(DRAWINGS[number](), IMAGES / f"figure_{number:02}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
