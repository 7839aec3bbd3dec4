"""`penn view` where it cannot start: one line, and exit code 1."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from pennpde.cli import application


def view(*arguments):
    # In a thread of its own: the browser of other tests keeps an event loop running in this one.
    with ThreadPoolExecutor(1) as thread:
        given = ["view", "--no-browser", *map(str, arguments)]
        return thread.submit(CliRunner().invoke, application, given, prog_name="penn").result()


def said(finished) -> str:
    assert finished.exit_code == 1
    assert finished.stdout == ""
    assert finished.stderr.startswith("penn view: ")
    assert "Traceback" not in finished.stderr
    return finished.stderr


def test_a_network_that_is_not_there_is_named(tmp_path):
    assert "absent" in said(view("--model", tmp_path / "absent"))


def test_a_folder_that_is_no_dataset_is_named(network_folder, tmp_path):
    assert "not a dataset" in said(view("--model", network_folder, "--data", tmp_path))


def test_a_port_that_is_taken_is_named(network_folder):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port} is in use" in said(view("--model", network_folder, "--port", port))


def test_an_address_of_another_machine_cannot_be_listened_on(network_folder):
    assert "192.0.2.1" in said(view("--model", network_folder, "--port", "0", "--host", "192.0.2.1"))


def test_without_trame_the_extra_is_named(network_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "trame_client", None)
    assert "pip install 'pennpde[viewer]'" in said(view("--model", network_folder))


@pytest.mark.parametrize("port", ["-1", "70000", "many"])
def test_a_port_that_is_none_is_wrong_usage(port):
    assert view("--port", port).exit_code == 2
