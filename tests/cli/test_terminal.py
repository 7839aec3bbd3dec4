"""What a person sees: nothing cut, a line that lives while one waits, colours only where they can be seen."""

import io
import os
import pty
import subprocess
import sys

import pytest

from pennpde import progress
from pennpde.cli.conventions import LiveLine, write
from pennpde.registry import check_exists, did_you_mean

PATH = "/a/folder/whose/name/is/" + "long/" * 20 + "flow.vtu"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def columns(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")  # no control sequences in what is written

    def settle(number):
        monkeypatch.setenv("COLUMNS", str(number))
        return number

    return settle


def written(text, stream):
    write(text, stream)
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_long_line_is_broken_between_words_and_goes_on_below_its_second_column(columns, width):
    columns(width)
    text = "  expected error of u        2 % of the field, and so on for many words, " + "and more of them " * 8
    lines = written(text, Terminal()).splitlines()
    assert max(map(len, lines)) <= width
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert len(lines) > 2
    assert all(line.startswith(" " * 29) for line in lines[1:])


def test_a_per_cent_sign_stays_with_its_number_and_a_path_in_one_piece(columns):
    columns(60)
    lines = written("the error of 90 cases is below " * 3 + f"1.7 % see {PATH} " + "2 % " * 30, Terminal()).splitlines()
    assert not any(line.lstrip().startswith("%") for line in lines)
    assert any(PATH in line for line in lines)


def test_a_line_in_a_pipe_stays_one_line(columns):
    columns(40)
    assert written("word " * 50, io.StringIO()) == "word " * 50 + "\n"


def test_the_grade_has_a_colour_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;32mgood\x1b[0m: expected" in written("good: expected error u 1 %", Terminal())
    assert "\x1b" not in written("good: expected error u 1 %", io.StringIO())
    assert "\x1b" not in written("goodness: is no grade", Terminal())


def test_the_live_line_shows_the_stage_its_share_and_the_seconds_so_far_and_still_and_vanishes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    stream, line = Terminal(), LiveLine()
    line.show("loading", stream)
    progress.tell("marching", 0.42)
    assert line._line().plain == "marching 42% … 0 s"
    line._start -= 60.0  # as if that had taken a minute, the march 42 s of it
    line._stage_start -= 42.0
    assert line._line().plain == "marching 42% … 60 s, about 58 s left of this"
    progress.tell("marching", 0.1)  # on finer cells
    assert line._line().plain == "marching 10% … 60 s"
    line.close()
    progress.tell("nobody hears this", 0.9)
    assert "marching" in stream.getvalue()
    assert "nobody" not in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # the line is erased


def test_the_help_uses_the_width_that_there_is_and_puts_options_into_groups():
    def helped(width):
        command = [sys.executable, "-m", "pennpde", "predict", "--help"]
        environment = os.environ | {"COLUMNS": str(width)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    narrow, wide = helped(80), helped(120)
    for text, width in ((narrow, 80), (wide, 120)):
        assert width - 20 < max(map(len, text.splitlines())) <= width
    assert "--out flow.vtkhdf \\\n      --animation flow.mp4\n" in narrow  # as a shell takes it
    groups = [
        line
        for line in wide.partition("\nExamples:")[0].splitlines()
        if line.endswith(":") and not line.startswith(" ")
    ]
    assert groups == ["Arguments:", "What to predict:", "When:", "Files to write:", "Accuracy and trust:", "General:"]
    assert "<" not in wide.partition("Examples:")[0].replace("<auto|own|network>", "")


def test_wrong_usage_is_told_between_words_and_ranges_in_words(tmp_path):
    (tmp_path / "a_mesh_with_a_name.vtu").write_text("")

    def told(*arguments):
        command = [sys.executable, "-m", "pennpde", *arguments]
        ours, theirs = pty.openpty()
        environment = os.environ | {"COLUMNS": "60"}
        finished = subprocess.run(command, stderr=theirs, cwd=tmp_path, check=False, env=environment)
        text = os.read(ours, 4096).decode().replace("\r", "")
        for end in (ours, theirs):
            os.close(end)
        return finished.returncode, text

    code, text = told("predict", "a_mesh_with_a_name.vtu")
    assert code == 2
    assert "give its" in text
    assert max(map(len, text.splitlines())) <= 60
    assert told("predict", "--iterations", "0", "x")[0] == 2


def test_a_prediction_shows_something_before_torch_is_loaded(tmp_path):
    (tmp_path / "absent.toml").write_text("")
    (tmp_path / "mesh.vtu").write_text("")
    ours, theirs = pty.openpty()
    program = (
        "import sys, pennpde.cli.conventions as terminal\n"
        "shown = terminal.LiveLine.show\n"
        "def show(self, *given):\n"
        "    assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "    shown(self, *given)\n"
        "    raise SystemExit(7)\n"
        "terminal.LiveLine.show = show\n"
        "from pennpde.cli import main\n"
        "main(['predict', 'mesh.vtu', '--case', 'absent.toml'])\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], stderr=theirs, cwd=tmp_path, check=False)
    os.close(theirs)
    os.close(ours)
    assert finished.returncode == 7


def test_a_wrong_model_is_noticed_without_torch_and_the_right_one_is_named():
    program = (
        "import sys\n"
        "from pennpde.cli import main\n"
        "try: main(['predict', sys.executable, '--case', sys.executable, '--model', 'flwo'])\n"
        "finally: print('torch' in sys.modules)\n"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert finished.returncode == 1
    assert finished.stdout == "False\n"
    assert "Did you mean 'flow'?" in finished.stderr


def test_a_name_that_is_near_is_suggested_and_one_that_is_far_is_not():
    assert did_you_mean("paramters", ["patches", "parameters"]) == " Did you mean 'parameters'?"
    assert did_you_mean("xyz", ["patches", "parameters"]) == ""
    check_exists("flow")
    check_exists("https://example.org/mine.zip")
    with pytest.raises(FileNotFoundError, match="shipped networks are"):
        check_exists("/no/such/folder")
