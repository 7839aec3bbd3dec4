"""Differential operators on a mesh: the linear part of IsoGCN and NIsoGCN (equations 14 and 15 of the paper).

Every point fits a gradient to the slopes towards its neighbours and, on a Neumann boundary, to the prescribed normal
derivative with weight w. The fit needs one small moment matrix per point::

    M_i = sum_j r_ij r_ij^T / |r_ij|^2 + w n_i n_i^T          r_ij = x_j - x_i
    (grad f)_i = M_i^{-1} [ sum_j r_ij (f_j - f_i) / |r_ij|^2 + w n_i g_i ]

On a Robin boundary, a f + b df/dn = c, the normal derivative depends on the point's own value: g_i = c/b - (a/b) f_i.
The first part is prescribed, as g is; the second is a diagonal term of the gradient. There the divergence is fitted to
the neighbours only: with the normal in its fit, only a sixth of the flux through the boundary would count, and modes
that should decay would grow. Points of periodic patches share the neighbours of their copies (`periodic`).

Axes: points first, the axis of the derivative directly after them, feature channels last: `grad(u)[p, j, i]` is the
derivative of u_i by x_j. All operators are equivariant under rotation, reflection and translation.

Accuracy (h is the distance between points; each line is a test):

- grad and div are exact on linear fields, on any mesh and up to the boundary; grad on a Neumann boundary given the
  matching normal derivative, on a Robin boundary given the matching c/b; div on a Neumann boundary where the normal
  derivative of the vector is zero. Over periodic pairs they are exact on fields whose copies differ as those of a
  linear field do.
- Inside a regular or smoothly bent mesh, grad, div, laplacian and hessian are of second order.
- At the boundary, and inside a mesh whose points are jittered at random, grad and div are of first order. A prescribed
  normal derivative makes the error on the boundary smaller, not its order higher.
- The laplacian is div of grad, a fit of a fit: if the gradient's error is as irregular as the mesh, one more division
by h leaves an error that does not shrink with h. Inside a jittered mesh it is proportional to the jitter; on the
  boundary and next to it, it is of order one. It stays bounded: if only the boundary is rough, the root of its mean
  square over the mesh falls with h^1/2.
- Averaged against a smooth function over a jittered mesh, these errors nearly cancel: the mean of the gradient is of
  second order, and the mean of the laplacian falls about with h, down to a bias that grows with the fourth power of the
  jitter (some 0.05 % of the laplacian at a jitter of 0.2 h, 1 % at 0.4 h).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pennpde.mesh import Mesh
from pennpde.operators.damping import Damping, damped_laplacian
from pennpde.operators.graph import LARGEST_KEPT, ClosedNeighbours, PointGraph
from pennpde.operators.sparse import SparseMatrix

if TYPE_CHECKING:
    import scipy.sparse

NEUMANN_WEIGHT = 10.0
"""w of the paper: about ten points lie virtually outside a flat boundary in space."""

_UNDAMPED = Damping()
_FIRST_ORDER = ("gradient", "divergence", "moment_inverse", "neumann_lift", "robin_lift")
_SECOND_ORDER = ("composed_laplacian", "composed_lift")
"""What `Operators` are made of, by the power of an inverse length that it has."""

# Moment matrices are sums of unit dyads, so their largest eigenvalue is of the order of the number of neighbours. Below
# this share of it the smallest is round-off: the neighbours do not span the space.
_SINGULAR = 1e-10


@dataclass(frozen=True, eq=False)
class Operators:
    """grad, div, laplacian and hessian for one unknown: its mesh with its own Neumann boundary."""

    gradient: SparseMatrix
    """Rows (point, axis), columns points: all axes in one product."""
    divergence: SparseMatrix
    """Rows points, columns (point, axis). It shares its index tensors with the transpose of `gradient`."""
    moment_inverse: Float[Tensor, "points space space"]
    neumann_lift: Float[Tensor, "points space"]
    """w M^-1 n: what one unit of prescribed normal derivative adds to the gradient. Zero off the Neumann boundary."""
    robin_lift: Float[Tensor, "points space"] | None = None
    """(a/b) w M^-1 n: what one unit of a point's own value takes from its gradient; None without Robin boundary."""
    stress_normals: Float[Tensor, "points space"] | None = None
    """Unit normals where a vector's stress is zero, zero elsewhere; None without such a boundary. These are the
    operators of a vector then, its axis directly after the points: others have the normal derivative zero there."""
    closed: ClosedNeighbours | None = None
    """The neighbours across periodic pairs, which a damped Laplacian needs; None without such pairs."""
    composed_laplacian: SparseMatrix | None = None
    """divergence x gradient as one matrix, where `composed()` made it."""
    composed_lift: SparseMatrix | None = None
    """What prescribed normal derivatives add to that Laplacian."""
    composed_damping: Damping = _UNDAMPED
    """The damping that is in it."""
    # What follows is worked out, not given: a changed copy begins without it.
    _composed_with: dict[Damping, Operators] = field(default_factory=dict, init=False, repr=False)
    """By damping, what these operators were composed to."""
    _parts: tuple[Operators, ...] = field(default=(), init=False, repr=False)
    """What they were put together from, side by side."""

    def __repr__(self) -> str:
        points, space = self.neumann_lift.shape
        normals = int((self.neumann_lift != 0).any(dim=1).sum())
        return f"Operators({points} points in {space}D; normal derivatives at {normals} of them)"

    @classmethod
    def on(
        cls,
        mesh: Mesh,
        neumann: str | Sequence[str] | None = None,
        *,
        neumann_weight: float = NEUMANN_WEIGHT,
        singular: Literal["error", "pseudoinverse"] = "error",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Operators:
        """Assemble the operators of a mesh.

        Args:
            mesh: The mesh.
            neumann: Names of the patches on which the unknown's normal derivative is prescribed; None: nowhere, which
                is IsoGCN.
            neumann_weight: The strength w of the Neumann condition against one neighbour.
            singular: What to do at a point whose neighbours (and normal) do not span the space.
            dtype: Precision of the result; assembly is always in that of `mesh.points`.
            device: Where the result goes.
        """
        if not isinstance(mesh, Mesh):
            raise TypeError(f"Operators are made on a mesh, as of penn.read(path) or case.mesh, not {mesh!r:.60}.")
        names = [neumann] if isinstance(neumann, str) else list(neumann or ())
        operators = cls.from_normals(
            mesh.points,
            mesh.edges,
            mesh.point_normals(names),
            neumann_weight=neumann_weight,
            singular=singular,
            dtype=dtype,
        )
        return operators.to(device=device)

    @classmethod
    def from_normals(
        cls,
        points: Float[Tensor, "points space"],
        edges: np.ndarray | PointGraph,
        normals: Float[Tensor, "points space"],
        *,
        neumann_weight: float = NEUMANN_WEIGHT,
        transfer: Float[Tensor, " points"] | None = None,
        is_robin: Bool[Tensor, " points"] | None = None,
        representative: Int[Tensor, " points"] | None = None,
        is_stress_free: Bool[Tensor, " points"] | None = None,
        singular: Literal["error", "pseudoinverse"] = "error",
        dtype: torch.dtype | None = None,
    ) -> Operators:
        """Assemble from a point graph and the Neumann normals, zero elsewhere.

        Args:
            points: Positions, on the CPU.
            edges: Both directions (i, j) of every edge, sorted by i, then j; or the graph made of them, which unknowns
                that differ only in their Neumann boundary may share.
            normals: The outward unit normal where the normal derivative is prescribed, zero elsewhere.
            neumann_weight: As for `on`.
            transfer: a/b where a Robin condition a f + b df/dn = c is prescribed (c/b is its normal derivative), zero
                elsewhere.
            is_robin: Where that is.
            representative: For each point, the one of its copies on periodic patches that stands for all of them;
                points that have no copies stand for themselves.
            is_stress_free: Where [grad u + (grad u)^T] n = 0 is prescribed.
            singular: As for `on`.
            dtype: As for `on`.
        """
        points = points.detach()
        if representative is not None:
            pairs = edges.edges() if isinstance(edges, PointGraph) else edges
            closed = ClosedNeighbours.of(points.numpy(), pairs, representative.numpy())
            operators = cls._from_closed(closed, normals, neumann_weight, singular, points, is_robin)
            return operators._with_lifts(transfer, normals, is_stress_free).to(dtype)
        number, space = points.shape
        graph = edges if isinstance(edges, PointGraph) else PointGraph.of(edges, number, space)
        rows = graph.rows

        directions, plain = _directions_and_moments(points, graph)
        moments = neumann_weight * normals[:, :, None] * normals[:, None, :] + plain
        inverse = _inverse_moments(moments, singular, points, np.diff(graph.starts) - 1)
        lift = neumann_weight * (inverse * normals[:, None, :]).sum(dim=2)

        def weights_of(inverse: Float[Tensor, "points space space"]) -> list[Float[Tensor, " entries"]]:
            weights = []
            for k in range(space):
                weight = inverse[:, k, 0].index_select(0, rows) * directions[0]
                for m in range(1, space):
                    weight.addcmul_(inverse[:, k, m].index_select(0, rows), directions[m])
                total = points.new_zeros(number).index_add(0, rows, weight)
                weights.append(weight.index_copy(0, graph.diagonal, -total).to(dtype or points.dtype))
            return weights

        of_divergence = None if is_robin is None else weights_of(_without_normals(inverse, plain, is_robin))
        operators = cls._from_weights(graph, weights_of(inverse), inverse, lift, of_divergence)
        return operators._with_lifts(transfer, normals, is_stress_free)

    @classmethod
    def _from_closed(
        cls,
        closed: ClosedNeighbours,
        normals: Float[Tensor, "points space"],
        neumann_weight: float,
        singular: Literal["error", "pseudoinverse"],
        points: Float[Tensor, "points space"],
        is_robin: Bool[Tensor, " points"] | None,
    ) -> Operators:
        number, space = points.shape
        directions = closed.offsets / (closed.offsets**2).sum(axis=1, keepdims=True)
        dyads = (closed.offsets[:, :, None] * directions[:, None, :]).reshape(-1, space * space)
        summed = np.stack([np.bincount(closed.rows, each, number) for each in dyads.T], axis=1)
        moments = neumann_weight * normals[:, :, None] * normals[:, None, :]
        plain = torch.from_numpy(summed.reshape(number, space, space)).to(normals)
        inverse = _inverse_moments(moments + plain, singular, points, closed.counts())

        def matrices_of(inverse: Float[Tensor, "points space space"]) -> list[scipy.sparse.csr_matrix]:
            weights = np.einsum("eij,ej->ei", inverse.numpy()[closed.rows], directions)
            return [closed.differences(weight) for weight in weights.T]

        operators = cls.from_matrices(
            matrices_of(inverse),
            divergence=None if is_robin is None else matrices_of(_without_normals(inverse, plain, is_robin)),
            moment_inverse=inverse,
            neumann_lift=neumann_weight * (inverse * normals[:, None, :]).sum(dim=2),
        )
        return replace(operators, closed=closed)

    def _with_lifts(
        self,
        transfer: Float[Tensor, " points"] | None,
        normals: Float[Tensor, "points space"],
        is_stress_free: Bool[Tensor, " points"] | None,
    ) -> Operators:
        """With what Robin conditions and ends without stress make of a point's own value and gradient."""
        lift, stress = None, None
        if transfer is not None:
            lift = self.neumann_lift * transfer.to(self.neumann_lift)[:, None]
        if is_stress_free is not None and bool(is_stress_free.any()):
            stress = torch.where(is_stress_free[:, None], normals, 0.0).to(self.dtype)
        return replace(self, robin_lift=lift, stress_normals=stress)

    @property
    def plain(self) -> Operators:
        """The operators for fields that do not obey the unknown's Robin or stress condition, as its own gradient."""
        if self.robin_lift is None and self.stress_normals is None:
            return self
        return replace(self, robin_lift=None, stress_normals=None, composed_laplacian=None, composed_lift=None)

    @classmethod
    def from_matrices(
        cls,
        gradient: Sequence[scipy.sparse.spmatrix],
        *,
        divergence: Sequence[scipy.sparse.spmatrix] | None = None,
        moment_inverse: Float[Tensor, "points space space"] | None = None,
        neumann_lift: Float[Tensor, "points space"] | None = None,
    ) -> Operators:
        """Take gradient matrices from elsewhere, one an axis: how stored networks bring their own.

        The divergence has the same weights, unless its own matrices of the same pattern are given.
        """
        import scipy.sparse

        number, space = gradient[0].shape[0], len(gradient)
        # Taken from ones: entries that are stored as zero, or cancel between the axes, keep their place.
        pattern = scipy.sparse.csr_matrix(scipy.sparse.identity(number))
        for matrix in map(scipy.sparse.csr_matrix, gradient):
            filled = scipy.sparse.csr_matrix((np.ones_like(matrix.data), matrix.indices, matrix.indptr), matrix.shape)
            pattern = scipy.sparse.csr_matrix(pattern + filled + filled.T)
        pattern.sort_indices()
        rows = np.repeat(np.arange(number), np.diff(pattern.indptr))
        apart = rows != pattern.indices
        graph = PointGraph.of(np.stack([rows[apart], pattern.indices[apart]]), number, space)

        at = graph.rows.numpy().copy(), graph.columns.numpy().copy()  # SciPy wants to write to them

        def weights_of(matrices: Sequence[scipy.sparse.spmatrix]) -> list[Tensor]:
            return [torch.from_numpy(np.asarray(scipy.sparse.csr_matrix(matrix)[at]).ravel()) for matrix in matrices]

        weights = weights_of(gradient)
        like = weights[0]
        inverse = like.new_zeros(number, space, space) if moment_inverse is None else moment_inverse.to(like)
        lift = like.new_zeros(number, space) if neumann_lift is None else neumann_lift.to(like)
        return cls._from_weights(graph, weights, inverse, lift, weights_of(divergence) if divergence else None)

    @classmethod
    def _from_weights(
        cls,
        graph: PointGraph,
        weights: list[Float[Tensor, " entries"]],
        inverse: Tensor,
        lift: Tensor,
        of_divergence: list[Float[Tensor, " entries"]] | None = None,
    ) -> Operators:
        """Lay out one weight an entry and axis as the matrices of gradient and divergence, which may have its own.

        The graph is symmetric, so the transpose of the gradient has the index tensors of the divergence and the other
        way round; only the values differ, by the weights of the edge in the other direction.
        """
        reverse = [weight.index_select(0, graph.reverse) for weight in weights]
        tall, wide = graph.tall_indices, graph.wide_indices
        gradient = SparseMatrix(*tall, graph.tall(weights), *wide, graph.wide(reverse))
        own = of_divergence or weights
        if of_divergence is not None:
            reverse = [weight.index_select(0, graph.reverse) for weight in own]
        divergence = SparseMatrix(*wide, graph.wide(own), *tall, graph.tall(reverse))
        dtype = weights[0].dtype
        return cls(gradient, divergence, inverse.to(dtype), lift.to(dtype))

    @property
    def number_of_points(self) -> int:
        return self.neumann_lift.shape[0]

    @property
    def space(self) -> int:
        return self.neumann_lift.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.gradient.values.dtype

    def grad(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points space *axes"]:
        """Gradient of a field of any rank; `normal_derivative` is the Neumann value, zero where none is given.

        On a Robin boundary, a f + b df/dn = c, it is c/b: what depends on the field is in the operators.
        """
        gradient = self._grad(field)
        if self.robin_lift is not None:
            gradient = gradient - _beside(self.robin_lift, gradient) * field[:, None]
        normal_derivative = self._without_stress(gradient, normal_derivative)
        if normal_derivative is None:
            return gradient
        return gradient + _beside(self.neumann_lift, gradient) * normal_derivative[:, None]

    def _without_stress(
        self, gradient: Float[Tensor, "points space *axes"], normal_derivative: Tensor | None
    ) -> Tensor | None:
        """With the normal derivative that makes the stress of a vector zero: minus the slope of its normal component.

        That component's own normal derivative is zero, which the gradient knows already.
        """
        normals = self.stress_normals
        if normals is None or gradient.ndim < 3 or gradient.shape[2] != self.space:
            return normal_derivative
        along = (gradient * normals.reshape(-1, 1, self.space, *[1] * (gradient.ndim - 3))).sum(dim=2)
        across = _beside(normals, along)
        tied = across * (across * along).sum(dim=1, keepdim=True) - along
        return tied if normal_derivative is None else normal_derivative + tied

    def _grad(self, field: Float[Tensor, "points *axes"]) -> Float[Tensor, "points space *axes"]:
        self._check(field)
        flat = self.gradient @ field.reshape(self.number_of_points, -1)
        return flat.reshape(self.number_of_points, self.space, *field.shape[1:])

    def div(self, field: Float[Tensor, "points space *axes"]) -> Float[Tensor, "points *axes"]:
        """Divergence: the derivative's axis, directly after the points, is contracted.

        On the Neumann boundary the field's own normal derivative counts as zero; on a Robin boundary nothing is assumed
        about it.
        """
        self._check(field)
        if field.ndim < 2 or field.shape[1] != self.space:
            raise ValueError(
                f"div takes a field of shape [points, {self.space}, ...], its second axis the one to contract; "
                f"got {list(field.shape)}."
            )
        flat = self.divergence @ field.reshape(self.number_of_points * self.space, -1)
        return flat.reshape(self.number_of_points, *field.shape[2:])

    def laplacian(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points *axes"]:
        """div(grad(field)): of each component, for a field of any rank."""
        if self.composed_laplacian is None:
            return self.div(self.grad(field, normal_derivative))
        self._check(field)
        laplacian = self.composed_laplacian @ field.reshape(self.number_of_points, -1)
        if self.stress_normals is not None:
            normal_derivative = self._without_stress(self._grad(field), normal_derivative)
        if normal_derivative is not None:
            if self.composed_lift is None:
                raise ValueError("These operators were composed for cases whose normal derivatives are all zero.")
            laplacian = laplacian + self.composed_lift @ normal_derivative.reshape(self.number_of_points, -1)
        return laplacian.reshape(field.shape)

    def hessian(
        self,
        field: Float[Tensor, "points *axes"],
        normal_derivative: Float[Tensor, "points *axes"] | None = None,
    ) -> Float[Tensor, "points space space *axes"]:
        """grad(grad(field))."""
        return self._grad(self.grad(field, normal_derivative))

    def composed(self, damping: float | Damping = 0.0) -> Operators:
        """The same operators with the Laplacian multiplied out.

        In the plane 25 entries a point replace 36 and the gradient in between is never stored; in space 125 replace
        162. It pays if only the Laplacian is needed, and often, as in a Poisson loop.

        Args:
            damping: div(grad) hardly sees what alternates from point to point, and with Neumann sides may even feed it;
                a damping of 0.25 to 1 makes such modes decay, as they do under the real Laplacian. It is zero on linear
                fields and costs nothing: the entries are there already. A `Damping` says more than its strength.
        """
        damping = Damping.of(damping)
        if self.composed_laplacian is not None:
            if damping != self.composed_damping:
                raise ValueError(
                    f"These operators were composed with a damping of {self.composed_damping}, asked for is {damping}."
                )
            return self
        if torch.compiler.is_compiling():
            return torch.compiler.disable()(self._composed)(damping)  # it would trace into SciPy
        return self._composed(damping)

    def _composed(self, damping: Damping) -> Operators:
        # Kept: a network asks for it at every call, and later maybe in training, where no tensors of inference mode do.
        made, parts = self._composed_with, self._parts
        if damping not in made:
            with torch.inference_mode(mode=False):
                # Those of a batch's meshes serve all batches that they are drawn into.
                composed = [each.composed(damping) for each in parts]
                made[damping] = Operators.block_diagonal(composed) if parts else self._multiplied_out(damping)
        return made[damping]

    def _multiplied_out(self, damping: Damping) -> Operators:
        import scipy.sparse

        number, space = self.number_of_points, self.space
        every = np.arange(number * space)

        def lifting(lift: Tensor) -> scipy.sparse.csr_matrix:
            values = lift.double().cpu().numpy().ravel()
            return scipy.sparse.csr_matrix((values, (every, every // space)), shape=(number * space, number))

        laplacian, of_gradient = damped_laplacian(
            self.gradient.to_scipy(),
            self.divergence.to_scipy(),
            self.moment_inverse.double().cpu().numpy(),
            damping,
            self.closed,
            None if self.robin_lift is None else lifting(self.robin_lift),
        )
        lifted = lifting(self.neumann_lift)
        matrices = (
            SparseMatrix.from_scipy(scipy.sparse.csr_matrix(matrix)).to(self.dtype, self.gradient.values.device)
            for matrix in (laplacian, of_gradient @ lifted)
        )
        return replace(self, composed_laplacian=next(matrices), composed_lift=next(matrices), composed_damping=damping)

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Operators:
        if (dtype is None or dtype == self.dtype) and device is None:
            return self
        if dtype in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"Operators cannot be {dtype}: they take differences of neighbouring values, which half precision "
                "cancels. Keep network and case in float32 or float64; torch.autocast makes the layers in between fast."
            )
        moved: dict[int, Tensor] = {}

        def move(tensor: Tensor) -> Tensor:
            # The matrices share their index tensors, and still do so afterwards.
            if id(tensor) not in moved:
                moved[id(tensor)] = tensor.to(device, dtype if tensor.is_floating_point() else None)
            return moved[id(tensor)]

        def there(value: SparseMatrix | Tensor) -> Any:
            return value.map(move) if isinstance(value, SparseMatrix) else move(value)

        made = replace(self, **self._each((*_FIRST_ORDER, *_SECOND_ORDER, "stress_normals"), there))
        for damping, each in self._composed_with.items():
            made._composed_with[damping] = replace(made, **each._each(_SECOND_ORDER, there), composed_damping=damping)
        return made

    def scaled(self, factor: float) -> Operators:
        """Operators in another unit of length: every first derivative is multiplied by the factor."""

        def by(factor: float) -> Callable[[Any], Any]:
            return lambda value: value.scaled(factor) if isinstance(value, SparseMatrix) else value * factor

        return replace(self, **self._each(_FIRST_ORDER, by(factor)), **self._each(_SECOND_ORDER, by(factor**2)))

    def _each(self, names: Sequence[str], change: Callable[[Any], Any]) -> dict[str, Any]:
        """Those of its tensors and matrices that are there, changed."""
        return {name: change(value) for name in names if (value := getattr(self, name)) is not None}

    def gradient_matrices(self) -> list[scipy.sparse.csr_matrix]:
        """The gradient as one SciPy matrix an axis."""
        stacked = self.gradient.to_scipy()
        return [stacked[axis :: self.space] for axis in range(self.space)]

    @classmethod
    def block_diagonal(cls, operators: Sequence[Operators]) -> Operators:
        """The operators of several meshes side by side, as one."""
        if len(operators) == 1:
            return operators[0]

        def together(matrices: list[SparseMatrix | None]) -> SparseMatrix | None:
            present = [each for each in matrices if each is not None]
            return SparseMatrix.block_diagonal(present) if len(present) == len(operators) else None

        gradient = SparseMatrix.block_diagonal([each.gradient for each in operators])
        divergence = replace(
            gradient.transposed,
            values=torch.cat([each.divergence.values for each in operators]),
            transposed_values=torch.cat([each.divergence.transposed_values for each in operators]),
        )
        whole = cls(
            gradient=gradient,
            divergence=divergence,
            moment_inverse=torch.cat([each.moment_inverse for each in operators]),
            neumann_lift=torch.cat([each.neumann_lift for each in operators]),
            robin_lift=cls._joined(operators, "robin_lift"),
            stress_normals=cls._joined(operators, "stress_normals"),
            closed=None,  # what a damped Laplacian needs, the parts have
            composed_laplacian=together([each.composed_laplacian for each in operators]),
            composed_lift=together([each.composed_lift for each in operators]),
            composed_damping=operators[0].composed_damping,
        )
        object.__setattr__(whole, "_parts", tuple(operators))
        return whole

    @staticmethod
    def _joined(operators: Sequence[Operators], name: str) -> Tensor | None:
        if all(getattr(each, name) is None for each in operators):
            return None
        return torch.cat([each.or_zero(name) for each in operators])

    def or_zero(self, name: str) -> Float[Tensor, "points space"]:
        """`robin_lift` or `stress_normals`, also without such a boundary."""
        found = getattr(self, name)
        return torch.zeros_like(self.neumann_lift) if found is None else found

    def _check(self, field: Tensor) -> None:
        if field.shape[:1] != (self.number_of_points,):
            raise ValueError(
                f"A field on these operators has {self.number_of_points} points as its first axis; "
                f"got shape {list(field.shape)}."
            )
        # Under autocast the product takes half precision too, and computes in float32.
        autocast = torch.is_autocast_enabled(field.device.type) and self.dtype == torch.float32
        if field.dtype != self.dtype and not (autocast and field.dtype in (torch.float16, torch.bfloat16)):
            raise ValueError(
                f"The field is {field.dtype}, the operators are {self.dtype}. "
                f"Convert one of them: operators.to({field.dtype}) or field.to({self.dtype})."
            )


def _beside(lift: Float[Tensor, "points space"], gradient: Float[Tensor, "points space *axes"]) -> Tensor:
    """A lift, shaped to multiply a gradient."""
    return lift.reshape(*lift.shape, *[1] * (gradient.ndim - 2))


def _without_normals(
    inverse: Float[Tensor, "points space space"],
    plain: Float[Tensor, "points space space"],
    is_robin: Bool[Tensor, " points"],
) -> Float[Tensor, "points space space"]:
    """The inverse moments, at Robin points of the neighbours only, as far as these span the space."""
    eigenvalues = torch.linalg.eigvalsh(plain[is_robin])
    chosen = is_robin.clone()
    chosen[is_robin] = eigenvalues[:, 0] > _SINGULAR * eigenvalues[:, -1].clamp_min(1.0)
    return inverse.index_put((chosen,), torch.linalg.inv(plain[chosen]))


def _extreme_eigenvalues(
    moments: Float[Tensor, "points space space"],
) -> tuple[Float[Tensor, " points"], Float[Tensor, " points"]]:
    if moments.shape[1] != 2:
        eigenvalues = torch.linalg.eigvalsh(moments)
        return eigenvalues[:, 0], eigenvalues[:, -1]
    # By the formula, a fifth of the time; its round-off is a millionth of what counts as singular.
    first, second, across = moments[:, 0, 0], moments[:, 1, 1], moments[:, 0, 1]
    mean, apart = 0.5 * (first + second), torch.hypot(0.5 * (first - second), across)
    return mean - apart, mean + apart


_Known = tuple[list[Float[Tensor, " entries"]], Float[Tensor, "points space space"]]
_LAST: deque[tuple[Tensor, int, PointGraph, _Known]] = deque(maxlen=1)
"""Unknowns of a case and its certificate assemble operators from the same points."""


def _directions_and_moments(points: Float[Tensor, "points space"], graph: PointGraph) -> _Known:
    """By axis, the offsets of neighbours over their squares; and the moments of all neighbours without conditions."""
    for known, version, of_graph, found in list(_LAST):
        same = known.data_ptr() == points.data_ptr() and known.shape == points.shape and known.dtype == points.dtype
        if same and version == points._version and of_graph is graph:
            return found
    number, space = points.shape
    # One array an axis, not one row an edge: a million points have 27 million entries, which are better streamed
    # through than gathered in threes. And in place where autograd does not mind: fresh memory costs more than sums.
    offsets = [x.index_select(0, graph.columns).sub_(x.index_select(0, graph.rows)) for x in points.T.contiguous()]
    squares = offsets[0] * offsets[0]
    for offset in offsets[1:]:
        squares.addcmul_(offset, offset)
    # A point is its own neighbour at distance zero; any length but zero gives it the weight zero for now.
    squares.index_fill_(0, graph.diagonal, 1.0)
    directions = [offset / squares for offset in offsets]
    summed = {
        (k, m): points.new_zeros(number).index_add(0, graph.rows, offsets[k] * directions[m])
        for k in range(space)
        for m in range(k, space)
    }
    every = [summed[min(k, m), max(k, m)] for k in range(space) for m in range(space)]
    found = directions, torch.stack(every, dim=1).reshape(number, space, space)
    # Tensors of inference mode can never be a part of what has gradients.
    if number <= LARGEST_KEPT and not (points.is_inference() or torch.is_inference_mode_enabled()):
        _LAST.append((points, points._version, graph, found))
    return found


def _inverse_moments(
    moments: Float[Tensor, "points space space"],
    singular: Literal["error", "pseudoinverse"],
    points: Tensor,
    neighbours: np.ndarray,
) -> Float[Tensor, "points space space"]:
    smallest, largest = _extreme_eigenvalues(moments)
    broken = smallest <= _SINGULAR * largest.clamp_min(1.0)
    if not broken.any():
        return torch.linalg.inv(moments)
    if singular == "pseudoinverse":
        whole = torch.where(broken[:, None, None], torch.eye(points.shape[1]).to(moments), moments)
        partial = torch.linalg.pinv(moments[broken], rtol=_SINGULAR, hermitian=True)
        return torch.linalg.inv(whole).index_put((broken,), partial)
    point = int(broken.nonzero()[0])
    raise ValueError(
        f"The moment matrix of point {point} at {points[point].tolist()} is singular: its {neighbours[point]} "
        f"neighbours do not span the space ({int(broken.sum())} such points). Mend the mesh there, or pass "
        'singular="pseudoinverse" to take the gradient in the directions that they do span.'
    )
