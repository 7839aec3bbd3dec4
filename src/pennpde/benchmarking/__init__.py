"""The honest comparison: networks and OpenFOAM on the same flows, on the same machine, by error and by time."""
