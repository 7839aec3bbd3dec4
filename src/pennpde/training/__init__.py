"""Training: `fit` for any `nn.Module` that maps a `Case` to fields.

fitting     the loop: steps, tests, restarts, rollbacks, pauses
settings    every number of a training, checked
course      the protocol as pure decisions: learning rate, early stop, restart, rollback
batches     cases as batches: filled up to one shape on the device, or block by block
steps       one step of Adam; on a GPU captured as a graph
processes   several processes under torchrun or accelerate
state       everything that a continued training needs, in one file without pickle
journal     CSV, TensorBoard, progress bar
"""

from pennpde.training.fitting import TrainingResult, fit
from pennpde.training.settings import Settings

__all__ = ["Settings", "TrainingResult", "fit"]
