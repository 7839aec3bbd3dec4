"""The authors' network for incompressible flow with all its ablations.

Velocity and pressure are encoded as u and p, the distance to the wall as g; dir is the Dirichlet layer with encoded
values, E an equivariant MLP, I an IsoGCN layer on the derivative it names, A the normalised adjacency. The change of
(u, p) whose fixed point the solver looks for, h = h0 + change(h), is

    1.  U = dir(E[u * g, I_grad(g)])
    2.  lap = I_contract(grad U),  adv = U . I_grad(U)       (over the component of U, not over that of the gradient)
    3.  V = U + E(lap + adv)
    4.  source = GCN(I_div(V))
    5.  P0 = MLP[g, p]
    6.  P from 5 inner iterations on P = P0 + source + I_lap(dir(P))
    7.  P = dir(P)
    8.  change of u = A (lap + adv + I_grad(P)) W,  change of p = P

and at the end dir and the pseudoinverses of the encoders give the fields. Rows A to G of the ablation table change the
steps as the comments say; `Switches` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pennlab.released.layers import (
    SWITCHES,
    EquivariantMLP,
    GraphConvolution,
    Inputs,
    IsoGCN,
    Kind,
    Prescribed,
    ReleasedSolver,
    Slab,
    State,
    gradient_of_divergence,
    released_operators,
    released_smoothing,
)
from pennpde.case import Case
from pennpde.operators import Operators
from pennpde.operators.sparse import SparseMatrix
from pennpde.penn.encoder import Encoder
from pennpde.penn.mlp import MLP
from pennpde.penn.nisogcn import squared_norm

VELOCITY_SCALE = 0.35204985011434536
WALL_SCALES = {0.5: 0.10016567831746169, 1.0: 0.16660008829057793, 2.0: 0.24025185629902143}
"""By k, the scale of exp(-k d), d the distance to the wall."""
OPERATOR_SCALE = 6.53346373815793
THICKNESS = 0.05
"""Of the authors' meshes; plane cases are made this thick."""

POISSON_ITERATIONS = 5


class ReleasedFlow(nn.Module):
    """The released flow network, or one of its ablations.

    Args:
        width: Feature channels. 16, 8 and 4 were released.
        kind: "PENN", or the row of the ablation table.
        iterations: Outer iterations; 8 and 4 were released.
        hidden: Hidden width of the encoders; by default that of the released networks.
        geometry_hidden: Hidden width of the coefficient network on the geometry's gradient, which is the one layer
            that does not follow the rule: 16 at width 16, but 4 at width 8.
    """

    def __init__(
        self,
        width: int = 16,
        kind: Kind = "PENN",
        iterations: int = 8,
        *,
        hidden: int | None = None,
        geometry_hidden: int | None = None,
    ):
        super().__init__()
        self.width, self.kind, self.iterations = width, kind, iterations
        self.switches = switches = SWITCHES[kind]
        hidden = hidden or max(width // 2, 4)
        geometry_hidden = geometry_hidden or (16 if width == 16 else 4)
        physical = switches.dirichlet_in_solver == "physical"
        state = 1 if physical else width

        self.geometry_encoder = MLP((3, hidden, width), bias=False)
        self.geometry_gradient = IsoGCN(width, geometry_hidden, width, bias=True)
        if physical:
            self.velocity_encoder = MLP((1, width))
            self.pressure_encoder = MLP((1, hidden, width))
            self.pressure_decoder = MLP((width, hidden, 1))
        elif switches.boundary_features:
            self.velocity_encoder = MLP((3, width), bias=False)
            self.pressure_encoder = MLP((3, hidden, width), ("leaky_relu", "identity"), bias=False)
        else:
            self.velocity_encoder = Encoder((1, width))
            self.pressure_encoder = Encoder((1, hidden, width))
        if switches.decoder == "mlp" and not physical:
            self.velocity_decoder = MLP((width, 1))
            self.pressure_decoder = MLP((width, hidden, 1))

        self.velocity = EquivariantMLP((2 * width, width, width))
        self.laplacian = IsoGCN(width, width, width, bias=False)
        self.jacobian = IsoGCN(width, width, width, bias=False)
        self.intermediate = EquivariantMLP((width, width, width))
        self.divergence = IsoGCN(width, width, width, bias=True)
        self.source = GraphConvolution((width, width, width), bias=True)
        self.pressure = MLP((2 * width, width, width))
        self.poisson = IsoGCN(width, width, width, bias=False)
        self.pressure_gradient = IsoGCN(state, width, width, bias=False)
        self.smoothing = GraphConvolution((width, state), ("identity",), bias=False)

    @property
    def equivariant(self) -> bool:
        """Whether predictions turn with the case.

        Rows B, E, F and G decode vectors with a bias, row A encodes them with one, and row E sees the flag of each
        component: all of them single out directions of space.
        """
        return self.switches.decoder == "pseudoinverse"

    def released_blocks(self) -> dict[str, tuple[str, ...]]:
        """By our name of a part, the authors' names of its block: the one that is trained, then its copies."""
        group, poisson = "GROUP1.group.dict_block.", "GROUP1.group.dict_block.GROUP_POISSON.group.dict_block."
        physical = self.switches.dirichlet_in_solver == "physical"
        blocks = {
            "geometry_encoder": ("IN_GEO",),
            "geometry_gradient": ("ISOGCN_GRAD_GEO",),
            "velocity": (group + "U_MLP",),
            "laplacian": (group + "ISO_GCN_LAPLACIAN",),
            "jacobian": (group + "ISO_GCN_JACOBIAN",),
            "intermediate": (group + "FRACTION_MLP",),
            "divergence": (group + "ISOGCN_SOURCE_POISSON",),
            "source": (group + "GCN_SOURCE_POISSON",),
            "pressure": ((poisson if physical else group) + "P_MLP",),
            "poisson": (poisson + "ISOGCN_LAPLACIAN_P",),
            "pressure_gradient": (group + "ISOGCN_GRAD_P",),
            "smoothing": (group + "GCN",),
        }
        if physical:
            return blocks | {
                "velocity_encoder": (group + "U_ENCODER",),
                "pressure_encoder": (poisson + "P_ENCODER",),
                "pressure_decoder": (poisson + "DECODER",),
            }
        conditions = ("IN_DIRICHLET.reference_block", "IN_P_DIRICHLET.reference_block")
        if self.switches.dirichlet_in_solver == "none":
            conditions = ()
        copies = ("DECODER.reference_block", "OUT_P.reference_block")
        if self.switches.decoder == "mlp":
            blocks |= {"velocity_decoder": ("DECODER",), "pressure_decoder": ("OUT_P",)}
            copies = ()
        return blocks | {
            "velocity_encoder": ("IN_U", *conditions[:1], *copies[:1]),
            "pressure_encoder": ("IN_P", *conditions[1:], *copies[1:]),
        }

    def forward(self, case: Case) -> dict[str, Tensor]:
        """Velocity and pressure at t = 4, from a case with the feature "wall_distance".

        A plane case is solved on a slab one cell thick, as the authors did.
        """
        slab = Slab.of(case, THICKNESS)
        scaled = self.forward_scaled(self.inputs(case, slab))
        return {"u": slab.lower(scaled["u"], 1) * VELOCITY_SCALE, "p": slab.lower(scaled["p"], 0)}

    def inputs(self, case: Case, slab: Slab | None = None) -> Inputs:
        """A case in the authors' scales, and in the precision of the network."""
        if "wall_distance" not in case.features:
            raise KeyError(
                "The released flow network sees the distance to the no-slip wall: give the case a feature "
                f"'wall_distance', for example mesh.distance_to(['wall']). It has {sorted(case.features)}."
            )
        slab = slab or Slab.of(case, THICKNESS)
        like = next(self.parameters())
        distance = case.features["wall_distance"]
        geometry = torch.stack([torch.exp(-k * distance) / s for k, s in WALL_SCALES.items()], dim=1)
        velocity, pressure = case.dirichlet["u"], case.dirichlet["p"]
        mask = slab.lift(velocity.mask)[:, None].expand(-1, 3)
        return Inputs(
            operators=released_operators(
                slab.mesh, OPERATOR_SCALE, thin_faces=True, dtype=like.dtype, device=like.device
            ),
            smoothing=released_smoothing(slab.mesh, like.dtype, like.device),
            geometry=geometry.repeat_interleave(slab.copies, dim=0),
            initial={
                "u": slab.lift(case.initial["u"]) / VELOCITY_SCALE,
                "p": slab.lift(case.initial["p"]),
            },
            prescribed={
                "u": Prescribed(mask, slab.lift(velocity.values) / VELOCITY_SCALE),
                "p": Prescribed(slab.lift(pressure.mask), slab.lift(pressure.values)),
            },
            sizes=slab.sizes(case),
        ).to(like.dtype, like.device)

    def forward_scaled(self, inputs: Inputs) -> dict[str, Tensor]:
        """Scaled velocity [points, 3] and pressure [points] from scaled inputs: what the authors' network computes."""
        switches = self.switches
        constants = self._constants(inputs)
        start = {name: self._encode(name, inputs) for name in ("u", "p")}
        if switches.solver == "simple":
            state = start
            for _ in range(self.iterations):
                state = self._operator(state, constants)
        else:

            def residual(state: State) -> State:
                change = self._operator(state, constants)
                return {name: state[name] - start[name] - each for name, each in change.items()}

            state = ReleasedSolver(self.iterations, divergence=1e9)(residual, start, inputs.sizes)
        return {name: self._decode(name, values, inputs, constants) for name, values in state.items()}

    def _encode(self, name: str, inputs: Inputs) -> Tensor:
        values = inputs.initial[name]
        if self.switches.dirichlet_in_solver == "physical":
            return values[..., None]
        if self.switches.boundary_features:
            values = inputs.prescribed[name].features(values)
        return self._encoder(name)(values)

    def _decode(self, name: str, values: Tensor, inputs: Inputs, constants: _Constants) -> Tensor:
        if self.switches.dirichlet_before_decoding:
            values = constants.conditions[name].apply(values)
        if self.switches.dirichlet_in_solver == "physical":
            field = values[..., 0]
        elif self.switches.decoder == "mlp":
            decoder = self.velocity_decoder if name == "u" else self.pressure_decoder
            field = decoder(values)[..., 0]
        else:
            encoder = self._encoder(name)
            assert isinstance(encoder, Encoder)
            field = encoder.decode(values)
        return inputs.prescribed[name].apply(field) if self.switches.dirichlet_after_decoding else field

    def _encoder(self, name: str) -> Encoder | MLP:
        return self.velocity_encoder if name == "u" else self.pressure_encoder

    def _constants(self, inputs: Inputs) -> _Constants:
        """All that stays the same from one iteration to the next."""
        assert inputs.smoothing is not None, "the flow network smooths; its inputs have the matrix"
        geometry = self.geometry_encoder(inputs.geometry)
        gradient = self.geometry_gradient(inputs.operators.grad(geometry), geometry)
        conditions = {}
        for name, prescribed in inputs.prescribed.items():
            if self.switches.dirichlet_in_solver == "physical":
                conditions[name] = prescribed.encoded(lambda values: values[..., None])
            elif self.switches.dirichlet_in_solver == "encoded":
                conditions[name] = prescribed.encoded(self._encoder(name))
            else:
                conditions[name] = Prescribed.nothing(geometry[:, None] if name == "u" else geometry)
        return _Constants(inputs.operators, inputs.smoothing, inputs.sizes, geometry, gradient, conditions)

    def _operator(self, state: State, constants: _Constants) -> dict[str, Tensor]:
        """One evaluation of the outer operator; the numbers are the steps above.

        Two "wrong" terms are theirs: the Laplacian is grad(div U), and the advection is U_c d_k U_c = grad |U|^2 / 2,
        because both contract the last axis. Time step, viscosity and signs are left to the weights.
        """
        operators = constants.operators
        physical = self.switches.dirichlet_in_solver == "physical"

        # 1. Velocity from the state and the geometry. Row A sets the condition before, on the physical state.
        condition = constants.conditions["u"]
        encoded = self.velocity_encoder(condition.apply(state["u"])) if physical else state["u"]
        seen = torch.cat([encoded * constants.geometry[:, None], constants.geometry_gradient], dim=-1)
        velocity = self.velocity(seen)
        velocity = velocity if physical else condition.apply(velocity)

        # 2. "Laplacian" and "advection" share the gradient and the invariant of the velocity.
        gradient, size = operators.grad(velocity), squared_norm(velocity)
        forces = self.laplacian(gradient_of_divergence(operators, gradient), size)
        forces = forces + (self.jacobian(gradient, size) * velocity[:, None]).sum(dim=2)

        # 3. and 4. Intermediate velocity, and its divergence as the source of the pressure.
        intermediate = velocity + self.intermediate(forces)
        source = self.divergence(operators.div(intermediate), squared_norm(intermediate))
        source = self.source(source, constants.smoothing)

        # 5. to 7. Pressure, and its gradient.
        pressure = constants.conditions["p"].apply(self._pressure(state["p"], source, constants))
        forces = forces + self.pressure_gradient(operators.grad(pressure), pressure)

        # 8. The increment of the velocity is smoothed; the pressure is a state of the outer solver too.
        change = self.smoothing(forces, constants.smoothing)
        if self.switches.solver == "simple":
            # Row C adds the velocity of step 1, not the state before it.
            change = velocity + change
        return {"u": change, "p": pressure}

    def _pressure(self, state: Tensor, source: Float[Tensor, "points width"], constants: _Constants) -> Tensor:
        """The inner solver. The authors solve P - P0 - (lap P + source) = 0, where the paper has lap P = source."""
        bounded = constants.conditions["p"].apply

        def change(values: Tensor) -> Tensor:
            return source + self.poisson(constants.operators.laplacian(values), values)

        if self.switches.dirichlet_in_solver == "physical":
            # The authors put the geometry before the pressure, except here.
            def residual(current: State) -> State:
                encoded = self.pressure_encoder(bounded(current["p"]))
                mixed = self.pressure(torch.cat([encoded, constants.geometry], dim=1))
                return {"p": current["p"] - state - self.pressure_decoder(change(mixed))}

            start = state
        else:
            start = self.pressure(torch.cat([constants.geometry, state], dim=1))

            def residual(current: State) -> State:
                return {"p": current["p"] - start - change(bounded(current["p"]))}

        if self.switches.solver == "simple":
            pressure = start
            for _ in range(POISSON_ITERATIONS):
                values = bounded(pressure)
                pressure = values + change(values)
            return pressure
        return ReleasedSolver(POISSON_ITERATIONS, divergence=100.0)(residual, {"p": start}, constants.sizes)["p"]


@dataclass(frozen=True, eq=False)
class _Constants:
    operators: Operators
    smoothing: SparseMatrix
    sizes: tuple[int, ...]
    geometry: Float[Tensor, "points width"]
    geometry_gradient: Float[Tensor, "points space width"]
    conditions: Mapping[str, Prescribed]
