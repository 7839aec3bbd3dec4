"""Networks of others that the paper compares with."""
