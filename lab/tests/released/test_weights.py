"""The files that released weights come in."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from pennlab.released import weights as released
from pennpde import checkpoints, registry
from released_networks import KINDS


def names_and_tensors(network: torch.nn.Module, prefix: str = "dict_block.") -> dict[str, Tensor]:
    """The network under the authors' names, shared tensors stored again, as in their checkpoints."""
    return {
        prefix + theirs: tensor.detach().clone()
        for name, tensor in network.state_dict().items()
        for theirs in released._released_names(network, name)
    }


def all_networks() -> list[torch.nn.Module]:
    torch.manual_seed(2)
    flows = [released.ReleasedFlow(4, kind, iterations=3) for kind in KINDS]
    plates = [released.ReleasedAdvectionDiffusion(8, kind, iterations=3, hidden=4) for kind in KINDS]
    return [*flows, *plates, released.ReleasedGradient("isogcn"), released.ReleasedGradient("neumannisogcn")]


FOLDERS = {
    "PENN": "penn_n4_rep3",
    "A": "wo_encoded_boundary_rep3",
    "B": "wo_boundary_condition_in_nns_rep3",
    "C": "wo_neural_nonlinear_solver_rep3",
    "D": "wo_boundary_condition_input_rep3",
    "E": "wo_dirichlet_layer_rep3",
    "F": "wo_pseudoinverse_decoder_rep3",
    "G": "wo_pseudoinverse_decoder_w_dirichlet_layer_after_decoding_rep3",
}


@pytest.mark.slow
@pytest.mark.parametrize("new_format", [True, False])
def test_checkpoints_of_the_authors_are_read_back_whole(tmp_path: Path, new_format: bool):
    for number, network in enumerate(all_networks()):
        folder = tmp_path / str(number) / FOLDERS.get(network.kind, network.kind)
        folder.mkdir(parents=True)
        checkpoint = {
            "epoch": 7,
            "validation_loss": np.float64(0.25),  # the authors' numbers are NumPy's
            "model_state_dict": names_and_tensors(network),
            "optimizer_state_dict": {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 1e-3}]},
        }
        torch.save(checkpoint, folder / "model", _use_new_zipfile_serialization=new_format)
        for path in (folder / "model", folder):
            loaded = released.load(path)
            assert type(loaded) is type(network)
            assert loaded.kind == network.kind
            assert getattr(loaded, "iterations", 3) == 3
            for ours, theirs in zip(loaded.parameters(), network.parameters(), strict=True):
                assert torch.equal(ours, theirs)


def test_any_wrapping_of_the_names_will_do(tmp_path: Path):
    network = released.ReleasedFlow(4)
    for prefix, wrap in (("module.dict_block.", lambda d: d), ("dict_block.", lambda d: {"state": {"model": d}})):
        torch.save(wrap(names_and_tensors(network, prefix)), tmp_path / "weights.pth")
        assert torch.equal(next(released.load(tmp_path / "weights.pth").parameters()), next(network.parameters()))


def save_arrays(path: Path, tensors: dict[str, Tensor]) -> Path:
    np.savez(path, **{name: tensor.numpy() for name, tensor in tensors.items()})
    return path


def test_names_decide_what_tensors_leave_open(tmp_path: Path):
    trained = {k: v for k, v in names_and_tensors(released.ReleasedFlow(4)).items() if "reference_block" not in k}
    plain = {k: v for k, v in names_and_tensors(released.ReleasedFlow(4, "F")).items() if "reference_block" not in k}
    file = save_arrays(tmp_path / "weights.npz", trained)
    assert released.load(file).kind == "PENN"
    assert released.load(file).iterations == 8
    assert released.load(file, iterations=5, kind="C").kind == "C"
    assert released.load(file, iterations=5, kind="C").iterations == 5
    assert released.load(save_arrays(tmp_path / "flow_wo_neural_nonlinear_solver.npz", trained)).kind == "C"
    assert released.load(save_arrays(tmp_path / "flow_penn_n4_rep12.npz", trained)).iterations == 12
    with pytest.raises(ValueError, match="may be any of the rows B, F, G"):
        released.load(save_arrays(tmp_path / "weights.npz", plain))
    with pytest.raises(ValueError, match=r"row 'G' according to the call.*PENN or C or D"):
        released.load(save_arrays(tmp_path / "other.npz", trained), kind="G")
    with pytest.raises(ValueError, match="row 'E' according to its name"):
        released.load(save_arrays(tmp_path / "wo_dirichlet_layer.npz", trained))


def test_copies_of_a_shared_tensor_must_agree(tmp_path: Path):
    tensors = names_and_tensors(released.ReleasedFlow(4))
    tensors["dict_block.DECODER.reference_block.linears.0.weight"] += 1
    with pytest.raises(ValueError, match=r"weights.npz.*DECODER.reference_block.linears.0.weight differs from IN_U"):
        released.load(save_arrays(tmp_path / "weights.npz", tensors))


def test_missing_unknown_and_broken_tensors_are_named(tmp_path: Path):
    tensors = names_and_tensors(released.ReleasedFlow(4))
    group = "dict_block.GROUP1.group.dict_block."
    del tensors[group + "GCN.subchains.0.0.weight"]
    tensors[group + "ISO_GCN_JACOBIAN.subchains.0.0.weight"] = torch.zeros(4, 5)
    tensors[group + "U_MLP.linears.0.bias"][1] = torch.nan
    tensors[group + "SURPRISE.weight"] = torch.zeros(2)
    with pytest.raises(ValueError, match="does not fit ReleasedFlow") as refusal:
        released.load(save_arrays(tmp_path / "broken.npz", tensors))
    for part in (
        "broken.npz",
        "GCN.subchains.0.0.weight is missing",
        "ISO_GCN_JACOBIAN.subchains.0.0.weight is [4, 5], not [4, 4]",
        "U_MLP.linears.0.bias is not finite",
        "SURPRISE.weight is unknown",
    ):
        assert part in str(refusal.value)


class Payload:
    def __reduce__(self):
        return (Path.touch, (Path("pwned"),))


def test_foreign_and_corrupt_files_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noise.npz").write_bytes(b"\x00\x01 no archive at all")
    (tmp_path / "empty").write_bytes(b"")
    torch.save({"model": {"layer.weight": torch.ones(2)}}, tmp_path / "other.pt")
    torch.save({"model_state_dict": Payload()}, tmp_path / "evil.pth")
    np.savez(tmp_path / "objects.npz", a=np.array([Payload()], dtype=object))
    whole = save_arrays(tmp_path / "cut.npz", names_and_tensors(released.ReleasedFlow(4)))
    whole.write_bytes(whole.read_bytes()[:3000])
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing here")
    np.savez(tmp_path / "near.npz", **{"dict_block.ELSE.weight": np.ones(3)})
    names = ("noise.npz", "empty", "other.pt", "evil.pth", "objects.npz", "cut.npz", "text.zip", "near.npz")
    for name in names:
        with pytest.raises(ValueError, match=name):
            released.load(tmp_path / name)
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(FileNotFoundError, match=r"absent.npz"):
        released.load(tmp_path / "absent.npz")


def test_a_file_of_several_networks_asks_which(reference: Path):
    file = reference / "expected" / "random_weights__grad__tiny_brick.npz"
    with pytest.raises(ValueError, match=r"2 networks.*kind="):
        released.load(file)


def test_released_weights_say_which_row_of_the_paper_they_are(reference: Path):
    flow = released.load(reference / "weights" / "flow_penn_n16_rep4.npz")
    config = checkpoints.config_of(flow)
    assert config is not None
    assert (config.network, config.row, config.paper) == ("released-flow", "authors_n16_r4", "penn_n16_r4")
    rebuilt = registry.build(config.network, config.arguments)
    rebuilt.load_state_dict(flow.state_dict())
    heat = released.load(reference / "weights" / "advection_diffusion_wo_neural_nonlinear_solver.npz")
    config = checkpoints.config_of(heat)
    assert config is not None
    assert (config.row, config.paper) == ("authors_C", "ablation_c")
