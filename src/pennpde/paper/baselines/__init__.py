"""Networks of others that the paper compares with.

mp_pde          MP-PDE
mesh_graph_net  MeshGraphNet
graphs          their graphs, made once per mesh
"""
