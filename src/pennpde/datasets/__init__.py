"""The datasets of the paper: what a case of each looks like, and how it is made."""
