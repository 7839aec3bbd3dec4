"""Settings of a training that cannot be, refused by name."""

import pytest

from pennpde.train import fit
from trainings import TRAIN, network


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lerning_rate": 1e-3}, r"no setting 'lerning_rate'; it has .*learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate is -1.0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"schedule": "linear"}, "'linear'"),
        ({"optimizer": "sgd"}, 'optimizer is \'sgd\'; it may be "adam" or "soap"'),
        ({"schedule": "cosine"}, "give epochs, steps or minutes"),
        ({"rate_factor": 1.5}, "rate_factor is 1.5"),
        ({"judges": 0}, "judges is 0"),
        ({"judges": 2.5}, "judges is 2.5"),
        ({"scales": {"T": 0.0}}, r"scales\['T'\] is 0.0"),
        ({"scales": {"u": 1.0}, "epochs": 1}, r"scales lack \['T'\]"),
        ({"pause_after": 1.0}, "need the folder"),
    ],
)
def test_wrong_settings_are_named(settings, words):
    with pytest.raises(ValueError, match=words):
        fit(network(), TRAIN, **settings)
