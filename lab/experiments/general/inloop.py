"""Differentiable skeleton in torch with a learned edge correction, few flows, CPU."""

import sys

sys.path.insert(0, "runs/general")
from compare import *
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
T32 = torch.float32


def t(a, d=T32):
    return torch.as_tensor(np.ascontiguousarray(a)).to(d)


class Case:
    def __init__(c, name, kind, w):
        P = problem(name, kind, w)
        P.fb = boundary_flux(P)
        E = Edges(P)
        c.P = P
        c.name = name
        n = len(P.x)
        c.i, c.j = t(E.i, torch.long), t(E.j, torch.long)
        c.a = t(E.a)
        c.k = t(E.k)
        c.m = t(P.m)[:, None]
        c.fb = t(P.fb)
        c.free = t(~P.fixed)[:, None]
        c.ub = t(P.ub)
        c.nu = P.nu
        c.r = t(E.r)
        c.G = [
            t(g.toarray())
            if n < 1
            else torch.sparse_csr_tensor(
                *[torch.as_tensor(q) for q in (g.tocsr().indptr, g.tocsr().indices)], t(g.tocsr().data), size=(n, n)
            )
            for g in P.G
        ]
        Ki = np.zeros((n, n))
        pf = ~P.pfix
        Ki[np.ix_(pf, pf)] = np.linalg.inv(P.K[pf][:, pf].toarray())
        c.Ki = t(Ki)
        c.K = P.K
        c.n = n
        c.out = t(P.pfix & ~P.fixed)[:, None]
        c.E = E
        d = P.case.features["wall_distance"].numpy()
        c.d = t(d)
        c.h = t(np.sqrt(P.m))
        c.B = {}
        c.wall = t(d < 1e-9)
        c.Ksp = torch.sparse_csr_tensor(
            torch.as_tensor(P.K.indptr), torch.as_tensor(P.K.indices), t(P.K.data), size=(n, n)
        )

    def inv(c, q):
        key = round(q, 6)
        if key not in c.B:
            fr = ~c.P.fixed
            M = np.zeros((c.n, c.n))
            A = (sp.diags(c.P.m * q) + c.nu * c.P.K)[fr][:, fr].toarray()
            M[np.ix_(fr, fr)] = np.linalg.inv(A)
            c.B[key] = t(M)
        return c.B[key]

    def div(c, F):
        return torch.zeros(c.n).index_add(0, c.i, F).index_add(0, c.j, -F)

    def grad(c, p):
        return (
            torch.stack([g @ p for g in c.G], -2).transpose(0, -2)
            if p.ndim > 1
            else torch.stack([g @ p for g in c.G], 1) / c.m
        )

    def gradu(c, u):
        return torch.stack([(g @ u) / c.m for g in c.G], 2)  # [n,comp,axis]

    def advect(c, F, u, blend=0.1):
        g = c.gradu(u)
        du = u[c.j] - u[c.i]
        mean = 0.5 * (u[c.i] + u[c.j])
        gb = torch.where((F > 0)[:, None, None], g[c.i], g[c.j])
        sgn = torch.where(F > 0, 1.0, -1.0)[:, None]
        up = torch.where((F > 0)[:, None], u[c.i], u[c.j]) + 0.5 * sgn * (gb * c.r[:, None, :]).sum(2)
        fl = F[:, None] * ((1 - blend) * mean + blend * up)
        z = torch.zeros_like(u).index_add(0, c.i, fl).index_add(0, c.j, -fl)
        dv = c.div(F)[:, None]
        return z - dv * u + 0.5 * c.out * dv.clamp_min(0) * u, g

    def project(c, u, tau, p):
        gp = c.grad(p) if p is not None else 0 * u
        uh = u + tau * gp * c.free
        F = (c.a * 0.5 * (uh[c.i] + uh[c.j])).sum(1)
        q = c.Ki @ (-(c.div(F) + c.fb) / tau)
        F = F + tau * c.k * (q[c.j] - q[c.i])
        return u - tau * c.free * (c.grad(q) - gp), q, F

    def run(c, u0, dur, net=None, courant=1.0, its=3):
        u, _, F = c.project(u0, 1.0, None)
        with torch.no_grad():
            rate = torch.zeros(c.n).index_add(0, c.i, F.clamp_min(0)).index_add(0, c.j, (-F).clamp_min(0)) / c.m[:, 0]
            steps = int(np.ceil(dur / min(courant / float(torch.quantile(rate, 0.99)), 0.25)))
        dt = dur / steps
        p = torch.zeros(c.n)
        uo = Fo = None
        for s in range(steps):
            if uo is None:
                c0 = 1.0
                past = u
                w = u
                Fe = F
            else:
                c0 = 1.5
                past = 2 * u - 0.5 * uo
                w = 2 * u - uo
                Fe = 2 * F - Fo
            B = c.inv(c0 / dt)
            src = c.correction(net, w, Fe, dt) if net is not None else 0.0
            nP = 2 if s == 0 else 1
            for o in range(nP):
                gp = c.grad(p)
                base = c.m * past / dt - c.m * gp + src
                kb = c.nu * (c.Ksp @ (c.ub * (1 - c.free)))
                us = w
                for k in range(its):
                    adv, _ = c.advect(Fe, us)
                    us = c.free * (B @ (base - adv - kb)) + (1 - c.free) * c.ub
                un, pn, Fn = c.project(us, dt / c0, p)
                p = pn
            uo, Fo = u, F
            u, F = un, Fn
        return u, p, steps

    def correction(c, net, u, F, dt):
        g = c.gradu(u)
        du = u[c.j] - u[c.i]
        rb = 0.5 * ((g[c.i] + g[c.j]) * c.r[:, None, :]).sum(2)
        rough = du - rb
        ub = 0.5 * (u[c.i] + u[c.j])
        s2 = (ub**2).sum(1) + 1e-3
        r2 = (c.r**2).sum(1)
        h = r2.sqrt()
        k = c.k.abs() * c.nu
        Fa = F.abs()
        sm = 0.5 * (c.m[c.i, 0] + c.m[c.j, 0])
        g2 = 0.5 * ((g[c.i] ** 2).sum((1, 2)) + (g[c.j] ** 2).sum((1, 2))) * r2
        on = lambda f: 0.5 * (f[c.i] + f[c.j])
        dd = on(c.d) / h
        inv = torch.stack(
            [
                torch.exp(-dd),
                torch.exp(-dd / 3),
                on(c.wall),
                Fa / (Fa + k),
                torch.log10(Fa * dt / sm + 1e-3),
                torch.log10(c.nu * dt / r2 + 1e-4),
                ((ub * c.r).sum(1) ** 2) / (s2 * r2),
                torch.tanh((du**2).sum(1) / s2),
                torch.tanh((rough**2).sum(1) / ((du**2).sum(1) + 1e-4)),
                torch.tanh(g2 / s2),
            ],
            1,
        )
        y = 0.5 * torch.tanh(net(inv))
        kap = (Fa * 0.5 + k)[:, None]
        fl = kap * (y[:, :1] * du + 2 * y[:, 1:2] * rough)
        return torch.zeros_like(u).index_add(0, c.i, fl).index_add(0, c.j, -fl)


if __name__ == "__main__":
    tr = [
        ("cavity_0002", "lattice", 20),
        ("contraction_0000", "triangles", 12),
        ("step_0001", "lattice", 12),
        ("tee_0000", "mixed", 12),
        ("chamber_0001", "lattice", 12),
        ("round-bodies_0002", "triangles", 14),
        ("bend_0001", "mixed", 12),
    ]
    te = [("u-bend_0002", "quads", 12), ("aerofoil_0000", "triangles", 13), ("blunt-bodies_0002", "triangles", 12)]
    pairs = [(0.125, 0.5), (0.5, 1.0), (2.0, 2.25)]
    C = [Case(*q) for q in tr]
    D = [Case(*q) for q in te]

    def err(c, a, b, net, grad=False):
        ia, ib = c.P.times.index(a), c.P.times.index(b)
        u, p, st = c.run(t(c.P.ut[..., ia]), b - a, net)
        ut = t(c.P.ut[..., ib])
        return ((u - ut) ** 2).sum() / (ut**2).sum()

    def report(net, tag):
        with torch.no_grad():
            for nm, S in (("trained", C), ("unseen", D)):
                print(
                    tag,
                    nm,
                    *[
                        f"{a}->{b}: {100 * np.mean([float(err(c, a, b, net)) ** 0.5 for c in S]):.2f}"
                        for a, b in pairs + [(0.5, 2.0), (2.25, 4.0)]
                    ],
                    flush=True,
                )

    net = torch.nn.Sequential(
        torch.nn.Linear(10, 24), torch.nn.Tanh(), torch.nn.Linear(24, 24), torch.nn.Tanh(), torch.nn.Linear(24, 2)
    )
    net[4].weight.data.zero_()
    net[4].bias.data.zero_()
    print([c.n for c in C + D])
    tm = time.time()
    report(None, "untrained")
    print("time", time.time() - tm, flush=True)
    opt = torch.optim.Adam(net.parameters(), 3e-3)
    rng = np.random.default_rng(0)
    tm = time.time()
    base = {}
    N = 0
    budget = float(sys.argv[1])
    while time.time() - tm < budget:
        for gq in opt.param_groups:
            gq["lr"] = 3e-3 * 0.5 * (1 + np.cos(np.pi * min(1, (time.time() - tm) / budget))) + 1e-5
        opt.zero_grad()
        for _ in range(2):
            c = C[rng.integers(len(C))]
            a, b = pairs[rng.integers(3)]
            key = (c.name, a)
            if key not in base:
                with torch.no_grad():
                    base[key] = float(err(c, a, b, None))
            l = err(c, a, b, net) / base[key] / 2
            l.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        N += 1
        if N % 25 == 0:
            print(N, f"{time.time() - tm:.0f}s", float(l) * 2, flush=True)
        if N % 100 == 0:
            report(net, f"after {N}")
    report(net, f"final {N}")
