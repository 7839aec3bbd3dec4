"""OpenFOAM on the flows of the dataset in many settings, by error and by time."""
