"""A pretrained network on a mesh of your own: heat that a stream carries through a plate.

    python examples/predict_on_your_mesh.py

The mesh may come from any program whose files PyVista reads; conditions go by the names that you give to parts of its
boundary. The prescribed temperature comes out bit for bit, and the certificate says what else holds.
"""

from pathlib import Path

import numpy as np
import pyvista as pv

import pennpde as penn


def main(folder=".", network="advection-diffusion"):
    # Triangles, where the network was trained on squares; but points as far apart as there, for it knows no other
    # scale: on a plate of 24 x 24 cells it fails, and the certificate says so.
    plate = pv.Plane(center=(0.5, 0.5, 0), i_resolution=10, j_resolution=10).triangulate()
    plate.cast_to_unstructured_grid().save(Path(folder) / "plate.vtu")

    mesh = penn.Mesh.read(Path(folder) / "plate.vtu").with_patches({"hot": lambda x: np.isclose(x[:, 0], 0.0)})
    case = penn.Case(
        mesh,
        initial={"T": 0.0},
        dirichlet={"T": {"hot": 0.8}},
        neumann={"T": 0.0},
        parameters={"velocity": (0.6, 0.0), "diffusivity": 0.3},
    )
    outcome = penn.predict(penn.load_pretrained(network), case)

    for time, temperature in zip(outcome.times, outcome.fields["T"].T, strict=True):
        print(f"t = {time:g}: mean temperature {temperature.mean():.3f}")
    print(*outcome.certificate.lines(), sep="\n")
    outcome.save(Path(folder) / "heat.vtu")
    print(f"Written: {Path(folder) / 'heat.vtu'}")
    return outcome


if __name__ == "__main__":
    main()
