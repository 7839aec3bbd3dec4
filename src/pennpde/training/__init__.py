"""Training: `fit` for any `nn.Module` that maps a `Case` to fields.

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
"""

from pennpde.training.fitting import TrainingResult, fit
from pennpde.training.settings import Settings

__all__ = ["Settings", "TrainingResult", "fit"]
