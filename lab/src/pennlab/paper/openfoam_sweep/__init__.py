"""OpenFOAM on the flows of the dataset in many settings, by error and by time.

settings  families of settings, by name
sweep     running them, and the record of it
"""
