import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu


class Edges:
    """Dual-cell geometry of a Prob."""

    def __init__(s, P):
        K = P.K.tocoo()
        keep = K.row < K.col
        s.i, s.j = K.row[keep], K.col[keep]
        s.k = K.data[keep]
        gx, gy = P.G
        A = [(g - g.T).tocsr() for g in (gx, gy)]
        B = [(g + g.T).tocsr() for g in (gx, gy)]
        s.a = np.stack([np.asarray(g[s.i, s.j]).ravel() for g in A], 1)  # from i to j
        s.B = B
        s.b = np.stack([np.asarray(x.sum(1)).ravel() for x in B], 1)
        s.n = len(P.x)
        n = s.n
        ne = len(s.i)
        e = np.arange(ne)
        s.sel_i = sp.csr_matrix((np.ones(ne), (e, s.i)), shape=(ne, n))
        s.sel_j = sp.csr_matrix((np.ones(ne), (e, s.j)), shape=(ne, n))
        s.dv = (s.sel_i - s.sel_j).T.tocsr()  # outflow sum: +F at i, -F at j
        s.x = P.x
        s.r = P.x[s.j] - P.x[s.i]

    def flux(s, u):
        return (s.a * 0.5 * (u[s.i] + u[s.j])).sum(1)

    def bflux(s, u):
        return 0.5 * (s.b * u).sum(1) + 0.5 * sum(B @ u[:, c] for c, B in enumerate(s.B))


class Solver:
    def __init__(
        s,
        P,
        scheme="lust",
        theta=1.0,
        blend=0.25,
        time="bdf2",
        courant=2.0,
        outer=1,
        rc=1.0,
        mass="lumped",
        nuf=1.0,
        limit=False,
        adv_fe=False,
        fluxfix=True,
        back=0.5,
    ):
        s.back = back
        s.fluxfix = fluxfix and hasattr(P, "fb")
        s.P = P
        s.E = Edges(P)
        s.scheme = scheme
        s.blend = blend
        s.time = time
        s.courant = courant
        s.outer = outer
        s.rc = rc
        s.mass = mass
        s.n = len(P.x)
        s.free = ~P.fixed
        s.Kp = P.K.tocsr()
        pf = ~P.pfix
        s.pf = np.flatnonzero(pf)
        s.lu = splu(P.K[s.pf][:, s.pf].tocsc())
        s.minv = 1 / P.m
        s.Gm = [sp.diags(s.minv) @ g for g in P.G]
        s.nu = P.nu * nuf
        s.adv_fe = adv_fe
        s.M = sp.diags(P.m).tocsr() if mass == "lumped" else P.M
        E = s.E
        s.half = 0.5 * (E.sel_i + E.sel_j)
        rx, ry = [sp.diags(0.5 * E.r[:, c]) for c in (0, 1)]
        gx, gy = s.grad_matrices()
        s.from_i = (E.sel_i + (rx @ E.sel_i @ gx + ry @ E.sel_i @ gy)).tocsr()  # linear-upwind face values
        s.from_j = (E.sel_j - (rx @ E.sel_j @ gx + ry @ E.sel_j @ gy)).tocsr()
        s.bnd = ~P.pfix

    def grad_matrices(s):
        return s.Gm

    def poisson(s, rhs):
        p = np.zeros(s.n)
        p[s.pf] = s.lu.solve(rhs[s.pf])
        return p

    def bflux(s, u):
        return s.P.fb if s.fluxfix else s.E.bflux(u)

    def div(s, u, F=None):
        E = s.E
        return E.dv @ (E.flux(u) if F is None else F) + E.bflux(u)

    def grad(s, p):
        return np.stack([g @ p for g in s.Gm], 1)

    def advection(s, F, u=None):
        """Matrix of sum_j F_ij phi_f - phi_i sum_j F_ij (advective form)."""
        E = s.E
        if s.scheme == "upwind":
            f = sp.diags((F > 0) * 1.0) @ E.sel_i + sp.diags((F <= 0) * 1.0) @ E.sel_j
        elif s.scheme == "central":
            f = s.half
        elif s.scheme == "lust":
            up = sp.diags((F > 0) * 1.0) @ s.from_i + sp.diags((F <= 0) * 1.0) @ s.from_j
            f = (1 - s.blend) * s.half + s.blend * up
        elif s.scheme == "blend":
            up = sp.diags((F > 0) * 1.0) @ E.sel_i + sp.diags((F <= 0) * 1.0) @ E.sel_j
            f = (1 - s.blend) * s.half + s.blend * up
        A = E.dv @ sp.diags(F) @ f
        d = E.dv @ F
        back = np.where(s.P.pfix & s.free, np.maximum(d, 0), 0) * s.back  # inflow through outlets
        return A - sp.diags(d) + sp.diags(back)

    def momentum(s, c0, dt, A, rhs):
        """(c0/dt M + A + nu K) u = rhs on free points."""
        P = s.P
        L = (s.M * (c0 / dt) + A + s.nu * P.K).tocsr()
        fr = s.free
        u = P.ub.copy()
        Lf = L[fr]
        r = rhs[fr] - Lf[:, P.fixed] @ P.ub[P.fixed]
        u[fr] = splu(Lf[:, fr].tocsc()).solve(r)
        return u

    def project(s, u, tau, p_old=None):
        """Full pressure: u* holds -tau grad p_old; returns u,p,F."""
        E = s.E
        g0 = s.grad(p_old) if p_old is not None else np.zeros_like(u)
        uh = u + tau * g0 * s.rc * s.free[:, None]
        F = E.flux(uh)
        d = E.dv @ F + s.bflux(uh)
        q = s.poisson(-d / tau)
        F = F + tau * E.k * (q[E.j] - q[E.i])
        p = q + (1 - s.rc) * (p_old if p_old is not None else 0)
        un = u - tau * s.free[:, None] * (s.grad(p) - g0)
        return un, p, F

    def run(s, times, dtmax=None, verbose=False, u0=None, t0=0.0, p0=None, ramp=True, first=0.02, grow=1.3):
        P = s.P
        E = s.E
        out = {}
        u = P.case.initial["u"].numpy().astype(float).copy() if u0 is None else u0.copy()
        u[P.fixed] = P.ub[P.fixed]
        u, _, F = s.project(u, 1.0)
        p = np.zeros(s.n) if p0 is None else p0
        have_p = p0 is not None
        t = t0
        uold = Fold = None
        dtold = None
        steps = 0
        dtc = first if ramp else 1e9
        for T in times:
            while t < T - 1e-9:
                out_rate = (E.dv.maximum(0) @ np.maximum(F, 0) + (-E.dv.minimum(0)) @ np.maximum(-F, 0)) * s.minv
                dt = min(s.courant / np.quantile(out_rate, 0.99), dtmax or 0.25, dtc)
                dtc *= grow
                k = np.ceil((T - t) / dt - 1e-9)
                dt = (T - t) / k
                if s.time == "bdf2" and uold is not None:
                    r = dt / dtold
                    c0, c1, c2 = (1 + 2 * r) / (1 + r), (1 + r), -r * r / (1 + r)
                    past = c1 * u + c2 * uold
                    Fe = (1 + r) * F - r * Fold
                else:
                    c0 = 1.0
                    past = u
                    Fe = F
                if s.time == "cn":
                    pass
                pk = p
                for o in range(s.outer + (0 if have_p else 1)):
                    A = s.advection(Fe)
                    rhs = np.stack([s.M @ past[:, c] / dt - P.m * s.grad(pk)[:, c] for c in (0, 1)], 1)
                    us = s.momentum(c0, dt, A, rhs)
                    un, pk, Fn = s.project(us, dt / c0, pk)
                    Fe = Fn
                have_p = True
                uold, Fold, dtold = u, F, dt
                u, p, F = un, pk, Fn
                t += dt
                steps += 1
                if not np.isfinite(u).all() or np.abs(u).max() > 50:
                    s.steps = steps
                    s.diverged = t
                    return out
            out[T] = (u.copy(), p.copy())
        s.steps = steps
        s.final = (u, p, F)
        s.diverged = None
        return out


def rel(a, b, m=None):
    w = np.ones(len(a)) if m is None else m
    w = w.reshape(-1, *[1] * (a.ndim - 1))
    return np.sqrt((w * (a - b) ** 2).sum() / (w * b**2).sum())
