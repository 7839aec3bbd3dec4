"""Cases that are one problem in another guise, so that a network trained on one has seen the other.

In type C of the flow dataset `c_0.20_0.70` is the mirror image of `c_0.70_0.20`, and the networks are equivariant under
reflections. In advection-diffusion the field is proportional to the prescribed temperature, so cases with the same
velocity and diffusivity are multiples of one another: all test cases of the lattice are multiples of a training case.
"""

from collections.abc import Sequence

from pennpde.data.storage import Manifest


def problem(dataset: str, name: str) -> str:
    """What a case has in common with its relatives and with no other case."""
    parts = name.split("_")
    if dataset == "flow" and parts[0] == "c":
        return "_".join(["c", *sorted(parts[1:])])
    if dataset == "advection-diffusion":
        return "_".join(parts[:2])  # without the temperature
    return name


def unrelated_names(manifest: Manifest, split: str, seen: Sequence[str] = ("train", "validation")) -> list[str]:
    """The cases of a split that have no relative in the splits that a training sees."""
    known = {problem(manifest.dataset, name) for other in seen for name in manifest.splits.get(other, ())}
    return [name for name in manifest.names(split) if problem(manifest.dataset, name) not in known]


def second_test_set(manifest: Manifest, *, unrelated: bool = False) -> str:
    """What a record calls cases other than those of the paper's test set; empty for these."""
    if manifest.settings.get("off_lattice"):
        return "parameters off the lattice"
    return "without relatives in training" if unrelated else ""
