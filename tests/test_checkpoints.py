"""Networks on disk: what comes back, what is refused, what a configuration tells."""

import contextlib
import json
import pickle
from dataclasses import replace

import pytest
import torch
from torch import nn

import pennpde
from pennpde import checkpoints, files, registry
from pennpde.checkpoints import CheckpointError, Config, config_of, load, load_pretrained, save
from pennpde.models.advection_diffusion import advection_diffusion_network
from problems import heated_plate
from shapes import unchecked

ARGUMENTS = {"width": 4, "iterations": 2, "hidden": 8}
CONFIG = Config(
    "advection-diffusion",
    ARGUMENTS,
    row="penn",
    dataset={"hash": "abc", "train": 6},
    seed=3,
    scales={"T": 0.3},
    metrics={"validation": {"T": 1e-4}},
    training_range={"space": [2.0, 2.0]},
)


@pytest.fixture
def stored(tmp_path):
    torch.manual_seed(0)
    model = advection_diffusion_network(**ARGUMENTS)
    return model, save(model, tmp_path / "network", CONFIG)


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_network_comes_back_bit_for_bit_with_its_history(stored):
    model, folder = stored
    case = heated_plate(cells=(4, 4))
    found = load(folder)
    assert torch.equal(found(case)["T"], model(case)["T"])
    assert not found.training
    config = config_of(found)
    assert replace(config, parameters=0, weights_sha256="") == CONFIG
    assert config.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert config.version == pennpde.__version__
    assert config_of(model) is None


def test_a_network_is_the_old_or_the_new_one_wherever_its_writer_was_cut_off(stored, monkeypatch):
    first, folder = stored
    written = []

    def cut_off_after(number):
        def write(path, content):
            if len(written) == number:
                raise KeyboardInterrupt
            written.append(path.name)
            files.write_atomically(path, content)

        return write

    weights = [first.state_dict()]
    for number in (0, 1, 1, 2, 3):
        weights.append(advection_diffusion_network(**ARGUMENTS).state_dict())
        model = advection_diffusion_network(**ARGUMENTS)
        model.load_state_dict(weights[-1])
        written.clear()
        write = cut_off_after(number)
        monkeypatch.setattr(checkpoints, "write_atomically", write)
        monkeypatch.setattr(checkpoints, "write_json", lambda path, value, write=write: write(path, json.dumps(value)))
        with contextlib.suppress(KeyboardInterrupt):
            save(model, folder, replace(CONFIG, seed=len(weights)))
        found = load(folder)
        # The weights come second of three files.
        expected = weights[-1] if number >= 2 else weights[0]
        assert all(torch.equal(values, expected[name]) for name, values in found.state_dict().items())
        config = config_of(found)
        assert config is not None
        assert config.seed == (len(weights) if number >= 2 else CONFIG.seed)
    assert "previous" not in json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused_in_words(stored, half):
    model, folder = stored
    with pytest.raises(ValueError, match=r"predict under torch.autocast"):
        load(folder, dtype=half)
    with unchecked(), pytest.raises(ValueError, match="Keep network and case in float32 or float64"):
        model.to(half)(heated_plate())


def test_a_network_loads_in_another_precision(stored):
    assert next(load(stored[1], dtype=torch.float64).parameters()).dtype == torch.float64


def test_a_stored_network_holds_plain_numbers_and_json_alone(stored):
    _, folder = stored
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    length = int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")
    json.loads((folder / "model.safetensors").read_bytes()[8 : 8 + length])


def test_a_path_serves_as_a_name(stored):
    model, folder = stored
    case = heated_plate(cells=(4, 4))
    for name in (folder, str(folder), folder / "model.safetensors"):
        assert torch.equal(load_pretrained(name)(case)["T"], model(case)["T"])


def test_every_shipped_network_loads():
    for name in registry.shipped():
        assert isinstance(load_pretrained(name), nn.Module)
        assert config_of(load_pretrained(name)).training_range


def test_a_name_that_is_nowhere_is_refused_with_those_that_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "WEIGHTS", tmp_path)
    save(advection_diffusion_network(**ARGUMENTS), tmp_path / "heat", CONFIG)
    with pytest.raises(FileNotFoundError, match=r"'flwo'.*the shipped networks are heat"):
        load_pretrained("flwo")
    assert registry.shipped() == ["heat"]
    load_pretrained("heat")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "config.json").unlink(), r"holds no network: it has no config\.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"no model\.safetensors"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "config.json is damaged"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}'), "of another program"),
        (lambda folder: (folder / "config.json").write_text("[]"), "of another program"),
        (lambda folder: change(folder, format_version=99, version="7.0"), r"written by pennpde 7\.0; this is"),
        (lambda folder: change(folder, network="transformer"), "no network 'transformer'; there are"),
        (lambda folder: change(folder, arguments={"widht": 4}), "widht"),
        (
            lambda folder: change(folder, arguments=ARGUMENTS | {"width": 8}),
            r"tensors differ, the first is '\S+', which",
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"\x00" * 99), "expected is"),
        (lambda folder: (folder / "model.safetensors").write_bytes(pickle.dumps({})), "expected is"),
    ],
)
def test_what_is_no_whole_network_is_refused_in_words(stored, spoil, words):
    _, folder = stored
    spoil(folder)
    with pytest.raises(CheckpointError, match=words):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"\x00" * 99, pickle.dumps({}), b"\xff" * 8 + b"{}"])
def test_weights_in_another_format_are_refused_even_where_the_hash_agrees(stored, content):
    import hashlib

    _, folder = stored
    (folder / "model.safetensors").write_bytes(content)
    change(folder, weights_sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(CheckpointError, match="damaged or no safetensors file"):
        load(folder)


def test_facts_that_a_later_version_adds_do_no_harm(stored):
    change(stored[1], colour="blue")
    load(stored[1])


@pytest.mark.parametrize(("former", "name"), [("flow", "ducts"), ("gradient", "gradient")])
def test_networks_stored_before_the_general_one_was_called_flow_keep_their_architecture(stored, former, name):
    change(stored[1], format_version=1, network=former)
    assert checkpoints.read_config(stored[1]).network == name
    change(stored[1], format_version=2, network="flow")
    assert checkpoints.read_config(stored[1]).network == "flow"


def test_a_network_of_a_user_is_stored_once_it_is_registered(tmp_path):
    model = nn.Linear(2, 3)
    config = Config("test-linear", {"in_features": 2, "out_features": 3})
    with pytest.raises(KeyError, match=r"registry\.register\('test-linear', function\)"):
        save(model, tmp_path, config)
    registry.register("test-linear", nn.Linear)
    assert torch.equal(load(save(model, tmp_path, config)).weight, model.weight)
    with pytest.raises(ValueError, match="pennpde has a network 'flow' itself"):
        registry.register("flow", nn.Linear)


def test_an_argument_that_a_network_does_not_take_is_refused_with_those_that_it_takes():
    registry.register("test-linear", nn.Linear)
    with pytest.raises(ValueError, match=r"'test-linear' takes in_features, out_features, bias.*'widht'"):
        registry.build("test-linear", {"widht": 3})


def test_a_network_is_found_by_its_former_name_and_the_new_one_is_told():
    with pytest.warns(FutureWarning, match="flow-paper is called ducts now"):
        former = checkpoints.load_pretrained("flow-paper")
    assert checkpoints.config_of(former) == checkpoints.config_of(checkpoints.load_pretrained("ducts"))
