"""What a training shows on a terminal."""

import sys

from pennpde.train import fit
from trainings import TRAIN, network


def test_the_progress_bar_shows_on_a_terminal_and_nowhere_else(capsys, monkeypatch):
    options = {"batch_size": 2, "steps": 4, "check_every": 2}
    fit(network(), TRAIN, **options)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fit(network(), TRAIN, **options)
    shown = capsys.readouterr().err
    assert "loss" in shown
    fit(network(), TRAIN, progress=False, **options)
    assert capsys.readouterr().err == ""
