import sys

sys.path.insert(0, "runs/general")
from facet import *

from pennpde.mesh import Mesh


def refined(mesh):
    c = cells_of(mesh)
    x = mesh.points.numpy()
    n = len(x)
    ed = []
    for t in c.values():
        k = t.shape[1]
        ed.append(np.stack([t, np.roll(t, -1, 1)], -1).reshape(-1, 2))
    e = np.unique(np.sort(np.concatenate(ed), 1), axis=0)
    key = e[:, 0].astype(np.int64) * n + e[:, 1]
    mid = lambda a, b: n + np.searchsorted(key, np.minimum(a, b).astype(np.int64) * n + np.maximum(a, b))
    X = [x, x[e].mean(1)]
    out = {}
    if "triangle" in c:
        t = c["triangle"]
        a, b, d = mid(t[:, 0], t[:, 1]), mid(t[:, 1], t[:, 2]), mid(t[:, 2], t[:, 0])
        out["triangle"] = np.concatenate(
            [np.stack(q, 1) for q in ((t[:, 0], a, d), (a, t[:, 1], b), (d, b, t[:, 2]), (a, b, d))]
        )
    if "quad" in c:
        q = c["quad"]
        ce = n + len(e) + np.arange(len(q))
        X.append(x[q].mean(1))
        m = [mid(q[:, k], q[:, (k + 1) % 4]) for k in range(4)]
        out["quad"] = np.concatenate([np.stack((q[:, k], m[k], ce, m[k - 1]), 1) for k in range(4)])
    M = Mesh.from_arrays(np.concatenate(X), out)
    pf = {}
    for name, p in mesh.patches.items():
        ij = mesh.facets.connectivity.reshape(-1, 2)[p.facets]
        mm = mid(ij[:, 0], ij[:, 1])
        pf[name] = np.concatenate([np.stack([ij[:, 0], mm], 1), np.stack([mm, ij[:, 1]], 1)])
    return M.with_patch_facets(pf)


def refinedcase(P):
    mesh = refined(P.mesh)
    case = cases.case_on_mesh(P.flow, mesh)
    x = mesh.points.numpy().astype(float)
    K, G, M = assemble(x, cells_of(mesh))
    m = np.asarray(M.sum(1)).ravel()
    Q = Prob(
        P.name,
        x,
        P.nu,
        K,
        G,
        M,
        m,
        case.dirichlet["u"].mask.numpy(),
        case.dirichlet["u"].values.numpy().astype(float),
        case.dirichlet["p"].mask.numpy(),
        case,
        P.times,
        None,
        None,
        None,
        None,
        P.plan,
        mesh,
        P.flow,
    )
    Q.fb = boundary_flux(Q)
    Q.slip = case.slip.get("u") if case.slip else None
    return Q


if __name__ == "__main__":
    tot = []
    for nm in sys.argv[1:]:
        P = realcase(f"runs/general/real/{nm}.vtkhdf")
        n = len(P.x)
        S = Facet(P, scheme="lust", blend=0.1)
        o = S.run(list(P.times))
        Q = refinedcase(P)
        t = time.time()
        R = Facet(Q, scheme="lust", blend=0.1)
        o2 = R.run(list(P.times))
        f = lambda o, k, T: [rel(o[q][k][:n], T[..., i]) * 100 if q in o else np.nan for i, q in enumerate(P.times)]
        a, b, c, d = f(o, 0, P.ut), f(o2, 0, P.ut), f(o, 1, P.pt), f(o2, 1, P.pt)
        tot.append([np.mean(q) for q in (a, b, c, d)])
        print(
            f"{nm:20s} {P.plan.kind:9s} {P.plan.points_per_width:3.0f} Re {P.flow.reynolds:5.0f} n {n}->{len(Q.x)} steps {S.steps}->{R.steps} {time.time() - t:.0f}s u",
            *[f"{e:.1f}" for e in a],
            "->",
            *[f"{e:.1f}" for e in b],
            " p",
            *[f"{e:.1f}" for e in c],
            "->",
            *[f"{e:.1f}" for e in d],
            flush=True,
        )
        print("   mean so far u %.2f -> %.2f p %.2f -> %.2f" % tuple(np.mean(tot, 0)), flush=True)
