"""Datasets: how cases are stored and read, and how finished simulations become training cases.

storage   the folder of a dataset with its manifest, read and written: one file for each case, or shards of many
vtkhdf    one case in one file, or many in a shard
workers   one function on many cases, in processes or on a cluster
runs/     finished simulations of users: `penn collect`
"""
