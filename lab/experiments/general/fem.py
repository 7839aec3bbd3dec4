"""Operators on network meshes: finite elements / dual cells (edge based) from one assembly."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from pennlab.datasets.plane_flow import cases
from pennlab.datasets.plane_flow.conditions import *
from pennlab.datasets.plane_flow.meshes import MeshPlan, cells_of, network_mesh


def load(name):
    return pickle.loads(Path(f"runs/general/truth/{name}.pkl").read_bytes())


def assemble(points, cells):
    n = len(points)
    R = []
    C = []
    VK = []
    VG = []
    VM = []
    m = np.zeros(n)

    def add(conn, Ke, Ge, Me):
        k = conn.shape[1]
        R.append(np.repeat(conn, k, axis=1).ravel())
        C.append(np.tile(conn, (1, k)).ravel())
        VK.append(Ke.ravel())
        VG.append(Ge.reshape(-1, 2))
        VM.append(Me.ravel())

    if "triangle" in cells:
        t = cells["triangle"]
        x = points[t]
        d2 = (x[:, 1, 0] - x[:, 0, 0]) * (x[:, 2, 1] - x[:, 0, 1]) - (x[:, 1, 1] - x[:, 0, 1]) * (
            x[:, 2, 0] - x[:, 0, 0]
        )
        opp = x[:, [2, 0, 1]] - x[:, [1, 2, 0]]
        g = np.stack([-opp[..., 1], opp[..., 0]], -1) / d2[:, None, None]
        A = d2 / 2
        Ke = np.einsum("tia,tja->tij", g, g) * A[:, None, None]
        Ge = np.broadcast_to((g * A[:, None, None] / 3)[:, None], (len(t), 3, 3, 2))
        Me = A[:, None, None] / 12 * (np.ones((3, 3)) + np.eye(3))
        add(t, Ke, Ge, Me)
    if "quad" in cells:
        q = cells["quad"]
        x = points[q]
        s = 1 / np.sqrt(3)
        Ke = np.zeros((len(q), 4, 4))
        Ge = np.zeros((len(q), 4, 4, 2))
        Me = np.zeros((len(q), 4, 4))
        for a in (-s, s):
            for b in (-s, s):
                N = np.array([(1 - a) * (1 - b), (1 + a) * (1 - b), (1 + a) * (1 + b), (1 - a) * (1 + b)]) / 4
                dN = np.array([[-(1 - b), -(1 - a)], [(1 - b), -(1 + a)], [(1 + b), (1 + a)], [-(1 + b), (1 - a)]]) / 4
                J = np.einsum("ia,qib->qab", dN, x)
                det = np.linalg.det(J)
                Ji = np.linalg.inv(J)
                g = np.einsum("ia,qba->qib", dN, Ji)
                Ke += np.einsum("qia,qja->qij", g, g) * det[:, None, None]
                Ge += np.einsum("i,qja->qija", N, g) * det[:, None, None, None]
                Me += np.outer(N, N)[None] * det[:, None, None]
        add(q, Ke, Ge, Me)
    R = np.concatenate(R)
    C = np.concatenate(C)
    VK = np.concatenate(VK)
    VG = np.concatenate(VG)
    VM = np.concatenate(VM)
    mk = lambda v: sp.csr_matrix((v, (R, C)), shape=(n, n))
    K, Gx, Gy, M = mk(VK), mk(VG[:, 0]), mk(VG[:, 1]), mk(VM)
    return K, (Gx, Gy), M


@dataclass
class Prob:
    name: str
    x: np.ndarray
    nu: float
    K: sp.csr_matrix
    G: tuple
    M: sp.csr_matrix
    m: np.ndarray
    fixed: np.ndarray
    ub: np.ndarray
    pfix: np.ndarray
    case: object
    times: tuple
    ut: np.ndarray
    pt: np.ndarray
    us: object
    ps: object
    plan: object
    mesh: object
    flow: object


def problem(name, kind, ppw, truth=None):
    fl, tr = truth or load(name)
    plan = MeshPlan(kind, ppw, 0.5, 1)
    mesh = network_mesh(fl, plan)
    case = cases.case_with_truth(fl, mesh, tr, name)
    x = mesh.points.numpy().astype(float)
    K, G, M = assemble(x, cells_of(mesh))
    m = np.asarray(M.sum(1)).ravel()
    D = case.dirichlet["u"]
    fixed = D.mask.numpy()
    if fixed.ndim > 1:
        fixed = fixed.any(1)
    ub = D.values.numpy().astype(float)
    pf = case.dirichlet["p"].mask.numpy()
    t = case.targets
    us = t["steady_u"].numpy() if "steady_u" in t else None
    ps = t["steady_p"].numpy() if "steady_p" in t else None
    return Prob(
        name,
        x,
        fl.viscosity,
        K,
        G,
        M,
        m,
        fixed,
        ub,
        pf,
        case,
        fl.moments,
        t["u"].numpy(),
        t["p"].numpy(),
        us,
        ps,
        plan,
        mesh,
        fl,
    )


def boundary_flux(P):
    """Integral of phi_i u.n over prescribed patches with the true profile (outward positive)."""
    fb = np.zeros(len(P.x))
    fl = P.flow
    mesh = P.mesh
    gp = np.array([-np.sqrt(3 / 5), 0, np.sqrt(3 / 5)]) / 2 + 0.5
    gw = np.array([5, 8, 5]) / 18
    for name, c in fl.prescribed.items():
        fac = mesh.patch(name).facets
        F = mesh.facets
        ij = F.connectivity.reshape(-1, 2)[fac]
        a = mesh.facet_areas.numpy()[fac]
        # open inlet: sample inside the edge
        raw = np.zeros(len(P.x))
        sub = 16
        for k in range(sub):
            s = (k + 0.5) / sub
            pt = P.x[ij[:, 0]] * (1 - s) + P.x[ij[:, 1]] * s
            v = (c.velocity(pt) * a).sum(1) / sub
            raw += np.bincount(ij[:, 0], v * (1 - s), len(raw)) + np.bincount(ij[:, 1], v * s, len(raw))
        if isinstance(c, Inlet):
            want = -c.speed * np.sqrt(((np.subtract(c.end, c.start)) ** 2).sum())
            raw *= want / raw.sum()
        fb += raw
    return fb
