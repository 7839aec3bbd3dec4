"""Networks for the paper's problems, ours and the authors'."""
