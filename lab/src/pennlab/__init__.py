"""The laboratory of pennpde: reproduces the paper, generates datasets, trains what pennpde is compared with, measures.

paper/       the paper's tables and figures, baselines, the comparison with OpenFOAM
datasets/    how the datasets are made
known_cases  finished plane flows, for calibration
released/    the authors' networks, which read their weights
elasticity   a PENN for linear elasticity, with data and without
running/     OpenFOAM cases of our own, written and run
coverage     how often the bound of an expected error holds for them
levels       the flow scheme on coarser or finer cells
cli/         `penn generate`, `penn bench`, `penn report`
stacks       cases in one shape, for steps that a GPU captures
captured     training steps that a GPU captures
side_by_side several trainings on one GPU
train        `penn train` where only torch, h5py and safetensors are installed
plugin       what of it pennpde finds by name
"""
