"""Networks of others that the paper compares with.

mp_pde          MP-PDE
mesh_graph_net  MeshGraphNet
plane_mesh_graph_net  the same for plane flows of any shape, at any time
graphs          their graphs, made once per mesh
"""
