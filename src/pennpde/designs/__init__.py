"""Ready problems: what the demo, the page and the datasets of the paper show.

ducts         shapes of ducts by their parameters
duct_flow     flow through them
heated_plate  heat that a stream carries across a plate
"""
