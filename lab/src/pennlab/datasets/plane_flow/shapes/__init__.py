"""The families of shapes, each a function that draws an outline.

ducts      straight ducts whose width changes
bends      ducts that turn, part or join
obstacles  channels with bodies in them
basins     jets into basins, rooms with inlets, cavities with lids
drawing    numbers drawn for a flow, and parts of outlines
soundness  whether an outline can be meshed
"""

from collections.abc import Callable, Mapping

from pennlab.datasets.plane_flow.shapes import basins, bends, ducts, obstacles
from pennlab.datasets.plane_flow.shapes.drawing import Draw as Draw
from pennlab.datasets.plane_flow.shapes.drawing import Shape as Shape

TRAINED: Mapping[str, Callable[[Draw], Shape]] = {
    "step": ducts.step,
    "expansion": ducts.expansion,
    "contraction": ducts.contraction,
    "diffuser": ducts.diffuser,
    "offset": ducts.offset,
    "ribs": ducts.ribs,
    "chamber": ducts.chamber,
    "wavy": ducts.wavy,
    "bend": bends.bend,
    "s-bend": bends.s_bend,
    "tee": bends.tee,
    "y-junction": bends.y_junction,
    "round-bodies": obstacles.round_bodies,
    "blunt-bodies": obstacles.blunt_bodies,
    "jet": basins.jet,
    "ventilated": basins.ventilated,
    "cavity": basins.cavity,
}
"""Families that networks are trained on."""

UNSEEN: Mapping[str, Callable[[Draw], Shape]] = {
    "aerofoil": obstacles.aerofoil,
    "u-bend": bends.u_bend,
    "moving-tee": bends.moving_tee,
}
"""Families that are only in the test set."""

FAMILIES: Mapping[str, Callable[[Draw], Shape]] = {**TRAINED, **UNSEEN}
