import sys

sys.path.insert(0, "runs/general")
from facet import *

v = {}
for f in sorted(Path("runs/general/real").glob("*.vtkhdf")):
    fam = f.name.split("_")[0]
    if fam not in ("aerofoil", "u-bend", "moving-tee", "cavity"):
        continue
    if fam == "cavity" and not f.name.startswith("cavity_2") and not f.name.startswith("cavity_000"):
        continue
    P = realcase(f)
    for tag, cls in (("facet", Facet),) + ((("strong", Slipping),) if fam == "cavity" else ()):
        o = cls(P, scheme="lust", blend=0.1).run(list(P.times))
        v.setdefault((fam, tag), []).append(
            (
                np.mean([rel(o[q][0], P.ut[..., i]) * 100 if q in o else np.nan for i, q in enumerate(P.times)]),
                np.mean([rel(o[q][1], P.pt[..., i]) * 100 if q in o else np.nan for i, q in enumerate(P.times)]),
            )
        )
    print(f.name, P.flow.reynolds, v[(fam, "facet")][-1], flush=True)
for k, x in v.items():
    print(k, len(x), "u %.2f p %.2f" % tuple(np.mean(x, 0)), "median u %.2f p %.2f" % tuple(np.median(x, 0)))
x = np.array([y for k, z in v.items() if k[0] != "cavity" for y in z])
print("unseen", len(x), x.mean(0), x.std(0, ddof=1) / len(x) ** 0.5, np.median(x, 0))
