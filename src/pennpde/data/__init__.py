"""Datasets: how cases are stored and read, and how finished simulations become training cases.

storage  datasets in folders: manifest, reading, writing
vtkhdf   one case in one file
shards   many cases in one file
content  what a dataset holds, from its manifest
workers  one function on many cases, in processes or on a cluster
runs/    finished simulations of users: `penn collect`
"""
