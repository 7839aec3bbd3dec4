"""Training and evaluation: `fit` for any `nn.Module` from a `Case` to fields, and what `penn train` does around it.

running      a training from its dataset to the network that it leaves in a folder, with its `report`
experiment   what is trained on what: a row of a TOML file, or what follows from a dataset
targets      which targets of a case a network learns, and which it is judged by
fitting      the loop, with its `settings`, `losses` and `folder` of state and log
steps        one step, captured as a graph on a GPU: `batches`, `optimizers`, `last_steps` of a march
machine      devices, threads, processes
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
