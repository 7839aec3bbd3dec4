"""Datasets: how cases are stored and read, and how finished simulations become training cases.

manifest  what a dataset holds: its cases, files, hashes and splits, and what networks learn from it
storage   its folder, read and written: one file for each case, or shards of many
vtkhdf    one case in one file
workers   one function on many cases, in processes or on a cluster
runs/     finished simulations of users: `penn collect`
"""
