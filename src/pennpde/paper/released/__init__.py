"""The networks that the authors of the paper released, to read their weights and reproduce their outputs."""
