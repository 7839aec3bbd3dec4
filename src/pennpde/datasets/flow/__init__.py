"""The paper's flow dataset: ducts, their meshes, OpenFOAM's truth, and the cases made of them."""
