import sys

sys.path.insert(0, "runs/general")
from compare import *

y = np.array(
    [
        0.0547,
        0.0625,
        0.0703,
        0.1016,
        0.1719,
        0.2813,
        0.4531,
        0.5,
        0.6172,
        0.7344,
        0.8516,
        0.9531,
        0.9609,
        0.9688,
        0.9766,
    ]
)
G = {
    100: [
        -0.03717,
        -0.04192,
        -0.04775,
        -0.06434,
        -0.1015,
        -0.15662,
        -0.2109,
        -0.20581,
        -0.13641,
        0.00332,
        0.23151,
        0.68717,
        0.73722,
        0.78871,
        0.84123,
    ],
    1000: [
        -0.18109,
        -0.20196,
        -0.2222,
        -0.2973,
        -0.38289,
        -0.27805,
        -0.10648,
        -0.0608,
        0.05702,
        0.18719,
        0.33304,
        0.46604,
        0.51117,
        0.57492,
        0.65928,
    ],
}
for k in (32, 48):
    for Re in (100, 1000):
        g = np.linspace(0, 1, k + 1)
        X = np.stack(np.meshgrid(g, g, indexing="ij"), -1).reshape(-1, 2)
        num = np.arange((k + 1) ** 2).reshape(k + 1, k + 1)
        q = np.stack([num[:-1, :-1], num[1:, :-1], num[1:, 1:], num[:-1, 1:]], -1).reshape(-1, 4)
        K, Gr, M = assemble(X, {"quad": q})
        m = np.asarray(M.sum(1)).ravel()
        n = len(X)
        fixed = (X < 1e-9).any(1) | (X > 1 - 1e-9).any(1)
        ub = np.zeros((n, 2))
        lid = X[:, 1] > 1 - 1e-9
        ub[lid & (X[:, 0] > 1e-9) & (X[:, 0] < 1 - 1e-9), 0] = 1
        pf = np.zeros(n, bool)
        pf[0] = True
        case = type("c", (), dict(initial={"u": type("t", (), dict(numpy=lambda s: ub.copy()))()}))
        P = Prob("ghia", X, 1 / Re, K, Gr, M, m, fixed, ub, pf, case, (), None, None, None, None, None, None, None)
        P.fb = np.zeros(n)
        S = Solver(P, scheme="lust", blend=0.1, courant=4.0)
        E = S.E
        e = (X[E.i][:, 1] > 1 - 1e-9) & (X[E.j][:, 1] > 1 - 1e-9)
        old = E.flux

        def flux(u, E=E, e=e):
            mid = np.where(e[:, None], np.array([1.0, 0.0]), 0.5 * (u[E.i] + u[E.j]))
            return (E.a * mid).sum(1)

        E.flux = flux
        T = 20.0 if Re == 100 else 60.0
        o = S.run([T], dtmax=0.5)
        u = o[T][0][:, 0].reshape(k + 1, k + 1)[k // 2]
        d = np.interp(y, g, u) - np.array(G[Re])
        from scipy.interpolate import CubicSpline

        d2 = CubicSpline(g, u)(y) - np.array(G[Re])
        print(
            f"cavity {k}x{k} Re {Re} steps {S.steps} largest deviation from Ghia on centre line: linear {abs(d).max():.4f} cubic {abs(d2).max():.4f}",
            flush=True,
        )
