"""The authors' network for advection-diffusion with all its ablations.

The temperature is encoded as h, geometry with diffusivity and speed as g, the velocity as v; dir is the Dirichlet layer
with encoded values, I an IsoGCN layer on the derivative it names. For each output time the solver looks for the fixed
point h = h0 + change(h):

    1.  t = dir(MLP(h * g))
    2.  diffusion = MLP(g) * I_lap(t),  advection = v . I_grad(t)
    3.  change = tanh((diffusion + advection) W + b)

and dir and the pseudoinverse of the encoder give the temperature. `Switches` lists what rows A to G change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennlab.released.layers import (
    SWITCHES,
    EquivariantMLP,
    Inputs,
    IsoGCN,
    Kind,
    Prescribed,
    ReleasedSolver,
    Slab,
    State,
    released_operators,
)
from pennpde.case import Case
from pennpde.penn.encoder import Encoder
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import distance_levels, dot

OPERATOR_SCALE = 99.9117394321183
"""Mostly the thickness: the derivative across a slab 0.01 thick has 100 on its diagonal."""
THICKNESS = 0.01
TIMES = (0.25, 0.5, 0.75, 1.0)


class ReleasedAdvectionDiffusion(nn.Module):
    """The released advection-diffusion network, or one of its ablations.

    Args:
        width: Feature channels; 64 in all released networks.
        kind: "PENN", or the row of the ablation table.
        iterations: Iterations for each of the four output times.
        hidden: Hidden width of encoders and decoders.
    """

    equivariant = True
    """Its output is a scalar and it sees the velocity only through invariants, so every row is equivariant."""

    def __init__(self, width: int = 64, kind: Kind = "PENN", iterations: int = 8, *, hidden: int = 16):
        super().__init__()
        self.width, self.kind, self.iterations = width, kind, iterations
        # Unlike the flow's, this row G keeps the encoded Dirichlet layer before the decoder.
        self.switches = replace(SWITCHES[kind], dirichlet_before_decoding=True) if kind == "G" else SWITCHES[kind]
        physical = self.switches.dirichlet_in_solver == "physical"

        self.geometry_encoder = MLP((5, hidden, width), bias=False)
        self.velocity_encoder = EquivariantMLP((1, width, width), bias=False)
        if self.switches.boundary_features:
            self.temperature_encoder = MLP((3, hidden, width), ("leaky_relu", "identity"))
        else:
            self.temperature_encoder = Encoder((1, hidden, width), bias=True)
        if self.switches.decoder == "mlp":
            self.temperature_decoder = MLP((width, hidden, 1), ("leaky_relu", "identity"))

        self.temperature = MLP((width, hidden, 1) if physical else (width, width, width))
        if physical:
            self.temperature_after = MLP((1, hidden, width))
        self.material = MLP((width, width, width))
        self.laplacian = IsoGCN(width, width, width, bias=False)
        self.gradient = IsoGCN(width, width, width, bias=False)
        self.output = MLP((width, width), ("tanh",))

    def released_blocks(self) -> dict[str, tuple[str, ...]]:
        """By our name of a part, the authors' names of its block: the one that is trained, then its copies."""
        group = "GROUP1.group.dict_block."
        copies = ["IN_DIRICHLET.reference_block"] if self.switches.dirichlet_in_solver == "encoded" else []
        blocks = {
            "geometry_encoder": ("IN_GEO",),
            "velocity_encoder": ("IN_U",),
            "temperature": (group + "T_MLP",),
            "material": (group + "MAT_MLP",),
            "laplacian": (group + "ISO_GCN_LAPLACIAN",),
            "gradient": (group + "ISO_GCN_GRADIENT",),
            "output": (group + "OUT_MLP",),
        }
        if self.switches.dirichlet_in_solver == "physical":
            blocks["temperature_after"] = (group + "T_MLP_AFTER_DIRICHLET",)
        if self.switches.decoder == "mlp":
            blocks["temperature_decoder"] = ("DECODER",)
        else:
            copies.append("DECODER.reference_block")
        return blocks | {"temperature_encoder": ("IN_T", *copies)}

    def forward(self, case: Case) -> dict[str, Tensor]:
        """Temperature at t = 0.25, 0.5, 0.75 and 1, [points, 4].

        The case has the parameters "velocity" and "diffusivity" and the feature "inlet_distance", the distance to the
        Dirichlet side. A plane case is solved on a slab one cell thick, as the authors did.
        """
        slab = Slab.of(case, THICKNESS)
        return {"T": slab.lower(self.forward_scaled(self.inputs(case, slab))["T"], 0)}

    def inputs(self, case: Case, slab: Slab | None = None) -> Inputs:
        """A case as the authors have it (nothing but the operators is rescaled), in the precision of the network."""
        if "inlet_distance" not in case.features:
            raise KeyError(
                "The released advection-diffusion network sees the distance to the side with T prescribed: give the "
                f"case a feature 'inlet_distance', for example mesh.points[:, 0]. It has {sorted(case.features)}."
            )
        slab = slab or Slab.of(case, THICKNESS)
        like = next(self.parameters())
        distance = case.features["inlet_distance"]
        initial, condition = case.initial["T"], case.dirichlet["T"]
        velocity = case.parameter("velocity", initial[:, None]).expand(case.number_of_points, -1)
        diffusivity = case.parameter("diffusivity", initial).expand_as(initial)
        speed = torch.linalg.vector_norm(velocity, dim=1)
        geometry = [*distance_levels(distance).unbind(dim=1), diffusivity, speed]
        return Inputs(
            operators=released_operators(
                slab.mesh, OPERATOR_SCALE, thin_faces=False, dtype=like.dtype, device=like.device
            ),
            geometry=torch.stack(geometry, dim=1).repeat_interleave(slab.copies, dim=0),
            initial={"T": slab.lift(initial)},
            prescribed={"T": Prescribed(slab.lift(condition.mask), slab.lift(condition.values))},
            velocity=slab.lift(velocity),
            sizes=slab.sizes(case),
        ).to(like.dtype, like.device)

    def forward_scaled(self, inputs: Inputs) -> dict[str, Float[Tensor, "points times"]]:
        """What the authors' network computes from inputs in their scales."""
        assert inputs.velocity is not None, "advection-diffusion needs a known velocity"
        operators = inputs.operators
        geometry = self.geometry_encoder(inputs.geometry)
        material = self.material(geometry)
        velocity = self.velocity_encoder(inputs.velocity[..., None])
        prescribed = inputs.prescribed["T"]
        condition = Prescribed.nothing(geometry)
        if self.switches.dirichlet_in_solver == "encoded":
            condition = prescribed.encoded(self.temperature_encoder)
        elif self.switches.dirichlet_in_solver == "physical":
            condition = prescribed.encoded(lambda values: values[:, None])

        def operator(state: Float[Tensor, "points width"]) -> Float[Tensor, "points width"]:
            """The numbers are the steps above."""
            # 1. Temperature from the state and the geometry. Row A passes through the physical temperature.
            temperature = condition.apply(self.temperature(state * geometry))
            if self.switches.dirichlet_in_solver == "physical":
                temperature = self.temperature_after(temperature)
            # 2. Diffusion and advection share the gradient.
            gradient = operators.grad(temperature)
            diffusion = material * self.laplacian(operators.div(gradient), temperature)
            advection = dot(velocity, self.gradient(gradient, temperature))
            # 3. The tanh bounds the increment; signs and time step are left to the weights.
            return self.output(diffusion + advection)

        values = inputs.initial["T"]
        state = self.temperature_encoder(prescribed.features(values) if self.switches.boundary_features else values)
        fields = []
        for _ in TIMES:
            state = self._advance(operator, state, inputs.sizes)
            encoded = condition.apply(state) if self.switches.dirichlet_before_decoding else state
            field = self._decode(encoded)
            fields.append(prescribed.apply(field) if self.switches.dirichlet_after_decoding else field)
        return {"T": torch.stack(fields, dim=1)}

    def _advance(self, operator: Callable[[Tensor], Tensor], start: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """One output time, from the final state of the one before; its step sizes start again."""
        if self.switches.solver == "simple":
            # Row C is not explicit Euler: the previous state is not added.
            for _ in range(self.iterations):
                start = operator(start)
            return start

        def residual(state: State) -> State:
            return {"T": state["T"] - start - operator(state["T"])}

        return ReleasedSolver(self.iterations, divergence=1e9)(residual, {"T": start}, sizes)["T"]

    def _decode(self, encoded: Float[Tensor, "points width"]) -> Float[Tensor, " points"]:
        if self.switches.decoder == "mlp":
            return self.temperature_decoder(encoded)[..., 0]
        assert isinstance(self.temperature_encoder, Encoder)
        return self.temperature_encoder.decode(encoded)
