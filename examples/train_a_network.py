"""Training: a small network learns how a stream carries and spreads heat, from stored cases; seconds on one core.

    python examples/train_a_network.py [FOLDER]

The cases are a few of data/advection_diffusion; any list of `penn.Case` with targets trains the same way. The best
weights on the validation cases are kept, and with a folder the network is stored for `penn predict --model FOLDER`.
"""

import sys
from pathlib import Path
from typing import Any

import torch

import pennpde as penn
from pennpde.data import storage
from pennpde.data.storage import CaseReader
from pennpde.metrics import relative_l2
from pennpde.models.advection_diffusion import advection_diffusion_network

DATA = Path(__file__).parents[1] / "data" / "advection_diffusion"
ARGUMENTS: dict[str, Any] = {"width": 8, "iterations": 4, "hidden": 16}


def cases_of(split, number):
    """Cases from all over a split of the dataset, which is sorted by velocity and diffusivity."""
    manifest = storage.read_manifest(DATA)
    names = manifest.names(split)
    reader = CaseReader(DATA, manifest)
    return [reader.read(name).case for name in names[:: len(names) // number][:number]]


def error(network, cases):
    """Mean relative error of the temperature."""
    with torch.no_grad():
        return sum(float(relative_l2(network(case)["T"].double(), case.targets["T"])) for case in cases) / len(cases)


def main(folder=None, steps=150, train=24, validation=8):
    torch.manual_seed(0)
    network = advection_diffusion_network(**ARGUMENTS)
    test = cases_of("test", 8)
    before = error(network, test)
    result = penn.fit(
        network,
        cases_of("train", train),
        validation=cases_of("validation", validation),
        learning_rate=5e-3,
        schedule="cosine",
        steps=steps,
        batch_size=8,
        test_every=10,  # epochs
        device="cpu",
    )
    for row in result.history:
        print(f"step {row['step']:4}: training loss {row['loss']:.4f}, validation loss {row['validation']:.4f}")
    after = error(network, test)
    print(
        f"relative error on test cases: {100 * before:.1f} % before, {100 * after:.1f} % after {result.seconds:.0f} s"
    )
    if folder is not None:
        penn.save(network, folder, penn.Config("advection-diffusion", arguments=ARGUMENTS, title="My first network"))
        print(f"stored in {folder}")
    return before, after


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
