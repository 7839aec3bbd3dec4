"""Training and evaluation: `fit` for any `nn.Module` from a `Case` to fields, and what `penn train` does around it.

running     a training from its data to the network that it leaves in a folder
rows        rows of TOML files: a dataset, a network and a training each
defaults    what follows from a dataset, without a file
examples    the cases of a training, and which of their targets a network learns
starts      trained weights to begin with, frozen layers
report      errors, learning curve and worst cases at the end

fitting     the loop: steps, tests, restarts, rollbacks, pauses
settings    every number of a training, checked
schedule    the protocol as pure decisions: learning rate, early stop, restart, rollback
batches     cases as batches: filled up to one shape on the device, or block by block
order       which cases a step sees
stack       cases filled up to one shape, as tensors on the device
last_steps  gradients through the last steps of a network that marches in time
losses      what a training makes small
optimizers  Adam and SOAP on one flat gradient
steps       one step of them; on a GPU captured as a graph
threads     how many threads of a CPU a training takes
processes   several processes under torchrun or accelerate
state       everything that a continued training needs, in one file without pickle
log         CSV, TensorBoard, progress bar

evaluation  one timed record per case, and pooled errors as in the paper's tables
snapshots   relative errors at every time and in the steady state, of networks for any time
calibrate   measures the errors of a network on cases with reference solutions: what `penn calibrate` learns from
known_cases  where these cases come from
baselines   what can be had without a network: the start, the nearest training case

`penn train` is the command for users. On machines that have torch, h5py and safetensors but not the dependencies of
`penn`, the same is `python -m pennpde.train FILE --row penn --data data/flow --out runs/flow`.
"""

from pennpde.data.storage import dataset_hash
from pennpde.train.defaults import for_dataset
from pennpde.train.evaluation import CaseRecord, Evaluation, Model, evaluate
from pennpde.train.fitting import TrainingResult, fit
from pennpde.train.rows import Experiment, read, read_row
from pennpde.train.running import RECORD, Trained, run
from pennpde.train.settings import Settings
from pennpde.train.snapshots import MomentEvaluation, evaluate_moments
from pennpde.train.starts import Start

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
