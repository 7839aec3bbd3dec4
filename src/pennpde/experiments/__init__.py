"""Experiments: what to train on what, and the training of it.

rows      rows of TOML files: a dataset, a network and a training each
defaults  what follows from a dataset, without a file
starts    trained weights to begin with, frozen layers
levels    what the general flow network learns: its own scheme on finer cells
data      the cases of a training, and which of their targets a network learns
running   the training itself, and the network that it leaves
__main__  `python -m pennpde.experiments`
report    errors, learning curve and worst cases at the end

`penn train` is the command for users. On machines that have torch, h5py and safetensors but not the dependencies of
`penn`, the same is `python -m pennpde.experiments FILE --row penn --data data/flow --out runs/flow`.
"""

from pennpde.datasets.storage import dataset_hash
from pennpde.experiments.defaults import for_dataset
from pennpde.experiments.rows import Experiment, LossName, read, read_row
from pennpde.experiments.running import KIND, RECORD, Trained, run
from pennpde.experiments.starts import Start

__all__ = [
    "KIND",
    "RECORD",
    "Experiment",
    "LossName",
    "Start",
    "Trained",
    "dataset_hash",
    "for_dataset",
    "read",
    "read_row",
    "run",
]
