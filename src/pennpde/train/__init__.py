"""Training and evaluation: `fit` for any `nn.Module` from a `Case` to fields, and what `penn train` does around it.

running      a training from its dataset to the network that it leaves in a folder
experiment   what is trained on what: a row of a TOML file, or what follows from a dataset
report       errors, learning curve and worst cases at the end, next to what can be had without a network

fitting      the loop: steps, tests, restarts, rollbacks, pauses
settings     every number of a training, checked, and the decisions of its protocol
losses       what a training makes small
cases        which cases a step sees, with which targets, and by which a network is judged
steps        one step, by Adam or SOAP
folder       state and log, everything that a continued training needs

evaluation   errors and times of a network on a test set
calibrate    errors on cases with reference solutions: what `penn calibrate` learns from
"""

from pennpde.data.storage import dataset_hash
from pennpde.train.evaluation import CaseRecord, Evaluation, Model, MomentEvaluation, evaluate, evaluate_moments
from pennpde.train.experiment import Experiment, Start, for_dataset, read, read_row
from pennpde.train.fitting import TrainingResult, fit
from pennpde.train.running import RECORD, Trained, run
from pennpde.train.settings import Settings

__all__ = [
    "RECORD",
    "CaseRecord",
    "Evaluation",
    "Experiment",
    "Model",
    "MomentEvaluation",
    "Settings",
    "Start",
    "Trained",
    "TrainingResult",
    "dataset_hash",
    "evaluate",
    "evaluate_moments",
    "fit",
    "for_dataset",
    "read",
    "read_row",
    "run",
]
