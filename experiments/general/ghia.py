import sys; sys.path.insert(0,"runs/general")
from compare import *
from pennpde.mesh import Mesh
y=np.array([.0547,.0625,.0703,.1016,.1719,.2813,.4531,.5,.6172,.7344,.8516,.9531,.9609,.9688,.9766])
G={100:[-.03717,-.04192,-.04775,-.06434,-.1015,-.15662,-.2109,-.20581,-.13641,.00332,.23151,.68717,.73722,.78871,.84123],1000:[-.18109,-.20196,-.2222,-.2973,-.38289,-.27805,-.10648,-.0608,.05702,.18719,.33304,.46604,.51117,.57492,.65928]}
for k in (32,48):
  for Re in (100,1000):
    g=np.linspace(0,1,k+1); X=np.stack(np.meshgrid(g,g,indexing="ij"),-1).reshape(-1,2); num=np.arange((k+1)**2).reshape(k+1,k+1)
    q=np.stack([num[:-1,:-1],num[1:,:-1],num[1:,1:],num[:-1,1:]],-1).reshape(-1,4); K,Gr,M=assemble(X,{"quad":q}); m=np.asarray(M.sum(1)).ravel(); n=len(X)
    fixed=(X<1e-9).any(1)|(X>1-1e-9).any(1); ub=np.zeros((n,2)); lid=X[:,1]>1-1e-9; ub[lid&(X[:,0]>1e-9)&(X[:,0]<1-1e-9),0]=1; pf=np.zeros(n,bool); pf[0]=True
    case=type("c",(),dict(initial={"u":type("t",(),dict(numpy=lambda s:ub.copy()))()}))
    P=Prob("ghia",X,1/Re,K,Gr,M,m,fixed,ub,pf,case,(),None,None,None,None,None,None,None); P.fb=np.zeros(n)
    S=Solver(P,scheme="lust",blend=.1,courant=4.0); E=S.E
    e=(X[E.i][:,1]>1-1e-9)&(X[E.j][:,1]>1-1e-9); old=E.flux
    def flux(u,E=E,e=e): mid=np.where(e[:,None],np.array([1.,0.]),.5*(u[E.i]+u[E.j])); return (E.a*mid).sum(1)
    E.flux=flux
    T=20. if Re==100 else 60.; o=S.run([T],dtmax=.5); u=o[T][0][:,0].reshape(k+1,k+1)[k//2]
    d=np.interp(y,g,u)-np.array(G[Re]); 
    from scipy.interpolate import CubicSpline
    d2=CubicSpline(g,u)(y)-np.array(G[Re]); print(f"cavity {k}x{k} Re {Re} steps {S.steps} largest deviation from Ghia on centre line: linear {abs(d).max():.4f} cubic {abs(d2).max():.4f}",flush=True)
