"""The command `penn` as a user and a shell script meet it."""

import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import pennpde.cli
from pennpde import registry
from pennpde.cli import SUBCOMMANDS, application
from pennpde.cli.conventions import as_command, describe

HEAVY = ("torch", "numpy", "vtk", "pyvista", "matplotlib", "pydantic")


def penn(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pennpde", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def penn_in_this_process(*arguments):
    """The same without waiting for torch once more."""
    return CliRunner().invoke(application, list(map(str, arguments)), prog_name="penn")


def invoke(run, *arguments):
    """Run a subcommand that exists in this test alone."""
    command = as_command("probe", SimpleNamespace(run=run))
    try:
        command.main(list(arguments), prog_name="penn probe")
    except SystemExit as stopped:
        return stopped.code or 0
    return 0


def speak(output, times: Annotated[int, typer.Option(min=1)] = 1):
    """Say something."""
    for _ in output.progress(range(times), "speaking"):
        output.say("[red] words")
    output.warn("mind the step")
    return {"times": times, "path": Path("a/b"), "error": float("nan"), "list": (1, 2.5)}


def fail(output):
    """Fail."""
    output.say("before")
    raise ValueError("Patch 'hto' is unknown; the mesh has 'hot'.")


def blunder(output):
    """Fail for a reason that is not the user's."""
    output.say("before")
    raise TypeError("unsupported operand")


def test_help_names_every_subcommand_and_loads_nothing_heavy():
    statements = (
        "import sys, pennpde.cli\n"
        "try: pennpde.cli.main(['--help'])\n"
        f"finally: print('loaded', [name for name in {HEAVY} if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", statements], capture_output=True, text=True, check=True)
    assert all(f" {name} " in finished.stdout for name in SUBCOMMANDS)
    assert finished.stdout.strip().endswith("loaded []")


def test_every_module_beside_the_frame_is_a_subcommand():
    modules = {path.stem for path in Path(pennpde.cli.__file__).parent.glob("*.py")}
    assert modules - {"__init__", "conventions", "options"} == set(SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_help_of_a_subcommand_has_examples_that_parse(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # an example may be longer than a line
    module = import_module(f"pennpde.cli.{name}")

    def helped(*subcommand):
        return re.sub(r" \\\n +", " ", penn_in_this_process(name, *subcommand, "--help").output)  # of long lines

    assert module.EXAMPLES
    for example in module.EXAMPLES:
        parts = example.partition("   # ")
        assert parts[0].rstrip() in helped()
        assert parts[2] in helped()
        program, subcommand, *arguments = shlex.split(example, comments=True)
        assert (program, subcommand) == ("penn", name)
        command = as_command(name, module)
        if own := getattr(module, "COMMANDS", None):
            if arguments[0] not in own:
                arguments = [module.DEFAULT, *arguments]
            assert parts[0].rstrip() in helped(arguments[0])
            command, *arguments = command.commands[arguments[0]], *arguments[1:]
        command.make_context(name, arguments)


def test_the_version_is_printed():
    finished = penn("--version")
    assert (finished.returncode, finished.stdout) == (0, f"penn {pennpde.__version__}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inof"], "Did you mean 'info'?"),
        (["info", "--nope"], "--nope"),
        (["info", "one", "two"], "two"),
        (["demo", "--out"], "--out"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_so_on_stderr(arguments, words):
    finished = penn(*arguments)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert words in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_missing_file_exits_with_1_and_one_line_on_stderr(tmp_path):
    finished = penn_in_this_process("info", tmp_path / "absent.vtu")
    assert finished.exit_code == 1
    assert finished.stdout == ""
    assert finished.stderr.startswith("penn info: ")
    assert "absent.vtu" in finished.stderr
    assert "Traceback" not in finished.stderr


def test_people_get_text_and_warnings_go_to_stderr(capsys):
    assert invoke(speak) == 0
    captured = capsys.readouterr()
    assert captured.out == "[red] words\n"
    assert captured.err == "warning: mind the step\n"


def test_a_warning_of_python_is_one_line_without_our_source(capsys):
    def risk(output):
        """Warn."""
        warnings.warn("the mesh is coarse", stacklevel=1)

    with warnings.catch_warnings():  # pytest makes errors of warnings, and the frame changes how they are shown
        warnings.simplefilter("always")
        assert invoke(risk) == 0
    assert capsys.readouterr().err == "warning: the mesh is coarse\n"


def test_json_is_all_there_is_on_stdout_and_nan_becomes_null(capsys):
    assert invoke(speak, "--json", "--times", "3") == 0
    record = json.loads(capsys.readouterr().out)
    assert record == {"times": 3, "path": str(Path("a/b")), "error": None, "list": [1, 2.5]}


def test_a_record_may_say_how_the_command_exits(capsys):
    def pause(output):
        """Pause."""
        return {"exit_code": 130}

    assert invoke(pause, "--json") == 130
    assert json.loads(capsys.readouterr().out) == {"exit_code": 130}


def test_quiet_silences_stdout(capsys):
    assert invoke(speak, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_a_progress_bar_shows_on_a_terminal_only(capsys, monkeypatch):
    invoke(speak, "--times", "3")
    assert "speaking" not in capsys.readouterr().err
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    invoke(speak, "--times", "3")
    assert "speaking" in capsys.readouterr().err


def test_a_failure_is_one_line_on_stderr(capsys):
    assert invoke(fail, "--json") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "penn probe: Patch 'hto' is unknown; the mesh has 'hot'.\n"


def test_debug_lets_the_exception_through():
    with pytest.raises(ValueError, match="hto"):
        invoke(fail, "--debug")


def test_an_unexpected_failure_owns_up_and_names_debug(capsys):
    assert invoke(blunder) == 1
    error = capsys.readouterr().err
    assert "TypeError: unsupported operand" in error
    assert "--debug" in error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("no patch 'hto'"), "no patch 'hto'"),
        (FileNotFoundError(2, "No such file or directory", "a.vtu"), "No such file or directory: a.vtu"),
        (ModuleNotFoundError("No module named 'trame_client'", name="trame_client"), "pip install 'pennpde[viewer]'"),
        (OSError("disk full"), "disk full"),
        (ValueError(), "looks like a bug"),
        (ImportError("cannot import name 'a'", name="pennpde.mesh"), "looks like a bug"),
        (type("DivergedError", (RuntimeError,), {"__module__": "pennpde.penn.solver"})("diverged"), "diverged"),
    ],
)
def test_errors_are_described_for_people(error, words):
    assert words in describe(error)


def test_a_limit_on_memory_is_named(tmp_path):
    limited = ["sh", "-c", 'ulimit -v 300000; exec "$@"', "sh", sys.executable, "-m", "pennpde", "predict", tmp_path]
    finished = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stderr.startswith("penn predict: only 307 MB of memory are allowed here (ulimit -v)")
    assert "looks like a bug" not in finished.stderr


def test_the_shell_completes_subcommands():
    finished = penn(_PENN_COMPLETE="complete_bash", COMP_WORDS="penn ", COMP_CWORD="1")
    assert finished.stdout.split() == [*SUBCOMMANDS, *registry.commands()]


def test_info_describes_the_installation():
    finished = penn_in_this_process("info", "--json")
    assert json.loads(finished.stdout)["pennpde"] == pennpde.__version__
