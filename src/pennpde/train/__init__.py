"""Training: `fit` for any `nn.Module` from a `Case` to fields, and what `penn train` does around it.

experiment   what is trained on what, a row of a TOML file or a dataset; its training, to the network in a folder
report       errors, learning curve and worst cases at the end, next to what can be had without a network

fitting      the loop: steps, tests, restarts, rollbacks, pauses
settings     every number of a training, checked, and the decisions of its protocol
cases        which cases a step sees, with which targets, and by which a network is judged
steps        what a training makes small, and one step, by Adam or SOAP
folder       state and log, everything that a continued training needs

calibrate    errors on cases with reference solutions: what `penn calibrate` learns from
"""

from pennpde.data.storage import dataset_hash
from pennpde.train.experiment import RECORD, Experiment, Start, Trained, for_dataset, read, read_row, run
from pennpde.train.fitting import TrainingResult, fit
from pennpde.train.settings import Settings

__all__ = [
    "RECORD",
    "Experiment",
    "Settings",
    "Start",
    "Trained",
    "TrainingResult",
    "dataset_hash",
    "fit",
    "for_dataset",
    "read",
    "read_row",
    "run",
]
