"""Readers of mesh files for pennpde that few users need, found through the entry points `pennpde.formats`.

cgns          .cgns
su2           .su2
unv           .unv
meshio_files  .inp, .med, .bdf, .nas, .mesh
"""
