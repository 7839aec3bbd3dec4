"""Error against time of networks and OpenFOAM on the same flows and the same machine."""
