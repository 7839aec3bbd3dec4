import sys

sys.path.insert(0, "runs/general")
import weak
from real import *


class Facet(Slipping):
    """Velocity at midpoints of boundary facets from the patch itself."""

    def __init__(s, P, **kw):
        super().__init__(P, **kw)
        E = s.E
        n = s.n
        key = E.i.astype(np.int64) * n + E.j
        o = np.argsort(key)
        s.over = np.zeros((len(key), 2))
        s.has = np.zeros(len(key), bool)
        for name, c in P.flow.prescribed.items():
            ij = np.sort(P.mesh.facets.connectivity.reshape(-1, 2)[P.mesh.patch(name).facets], axis=1)
            kk = ij[:, 0].astype(np.int64) * n + ij[:, 1]
            pos = o[np.searchsorted(key[o], kk)]
            s.over[pos] = c.velocity(P.x[ij].mean(1))
            s.has[pos] = True
        base = E.flux

        def flux(u):
            mid = np.where(s.has[:, None], s.over, 0.5 * (u[E.i] + u[E.j]))
            return (E.a * mid).sum(1)

        E.flux = flux


class WeakReal(weak.Weak):
    def __init__(s, P, **kw):
        super().__init__(P, **kw)
        s.nn = P.slip.normals.numpy() if P.slip is not None else np.zeros_like(P.x)

    def tang(s, u):
        return u - s.nn * ((u * s.nn).sum(1))[:, None]

    def momentum(s, *a):
        return s.tang(super().momentum(*a))

    def grad(s, p):
        return s.tang(super().grad(p))


if __name__ == "__main__":
    want = sys.argv[1:]
    tot = {}
    for nm in want:
        try:
            P = realcase(f"runs/general/real/{nm}.vtkhdf")
        except Exception as e:
            print(nm, e)
            continue
        for tag, cls, kw in (("strong", Slipping, {}), ("facet", Facet, {}), ("weak C8", WeakReal, dict(C=8.0))):
            S = cls(P, scheme="lust", blend=0.1, **kw)
            o = S.run(list(P.times))
            ue = [rel(o[q][0], P.ut[..., i]) * 100 if q in o else np.nan for i, q in enumerate(P.times)]
            pe = [rel(o[q][1], P.pt[..., i]) * 100 if q in o else np.nan for i, q in enumerate(P.times)]
            tot.setdefault(tag, []).append((np.mean(ue), np.mean(pe)))
            print(
                f"{nm:22s} {P.plan.kind:9s} {P.plan.points_per_width:3.0f} Re {P.flow.reynolds:5.0f} {[c.profile for c in P.flow.conditions.values() if hasattr(c, 'profile')]!s:14s} {tag:8s} u",
                *[f"{e:5.1f}" for e in ue],
                " p",
                *[f"{e:5.1f}" for e in pe],
                flush=True,
            )
    for k, v in tot.items():
        print(k, "mean u %.2f p %.2f" % tuple(np.nanmean(v, 0)))
