"""What a training has had, in short."""

from pennlab.paper.budgets import training_in_short
from pennpde.checkpoints import Config


def test_a_config_tells_in_short_what_its_network_has_had():
    settings = {"minutes": 5.0, "epochs": None, "steps": None, "batch_size": 8, "learning_rate": 1e-3}
    config = Config(
        "ducts",
        dataset={"train": 203},
        training={"settings": settings, "steps": 900, "minutes": 4.9, "restarts": 0},
    )
    had = {"steps": 900, "minutes": 4.9, "cases": 203, "batch": 8, "budget": {"minutes": 5.0}}
    assert training_in_short(config) == had
    assert training_in_short(Config("ducts")) == {}
