"""A file is the new one or the old one, whatever happens to its writer; JSON holds what it can hold."""

import errno
import json
import math
import os
import signal

import numpy as np
import pytest
import torch

from forks import forked
from pennpde import files


def test_a_writer_killed_before_the_end_leaves_what_was_there(tmp_path):
    path = tmp_path / "case.vtkhdf"
    files.write_atomically(path, b"before")

    def die_in_the_end():
        # The worst moment: all is written, and nothing is on the disk for sure.
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        files.write_atomically(path, b"after" * 1000)

    with forked(die_in_the_end) as process:
        assert os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT).si_status == signal.SIGKILL
    assert path.read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 2
    files.remove_leftovers(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_what_was_there_and_says_what_to_do(tmp_path, monkeypatch):
    path = tmp_path / "case.vtkhdf"
    files.write_atomically(path, b"before")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*case.vtkhdf.*make room .*start again") as caught:
        files.write_atomically(path, b"after")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_a_library_keeps_its_suffix_and_replaces_the_old_one_when_it_is_whole(tmp_path):
    path = tmp_path / "mesh.vtu"
    path.write_text("before")
    with files.replacing(path) as temporary:
        assert temporary.suffix == ".vtu"
        assert temporary.parent == tmp_path
        temporary.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", ["a check that fails", "an empty file", "no file"])
def test_a_file_of_a_library_that_failed_leaves_the_old_one(tmp_path, failure):
    path = tmp_path / "mesh.vtu"
    path.write_text("before")

    def write() -> None:
        with files.replacing(path) as temporary:
            if failure == "no file":
                temporary.unlink()
            if failure == "a check that fails":
                temporary.write_text("half")
                raise OSError("could not be written: half of it is missing")

    with pytest.raises(OSError, match="could not be written"):
        write()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_json_lacks_becomes_null_and_scalars_of_libraries_become_numbers(tmp_path):
    value = {
        1: (math.inf, -math.inf, math.nan, 0.1),
        "numpy": [np.float32(0.5), np.float64(math.nan), np.int64(3), np.array([1.0, math.inf])],
        "torch": torch.tensor([[1.5], [math.nan]]),
        "none": None,
        "yes": np.bool_(True),
    }
    files.write_json(tmp_path / "record.json", value)
    assert json.loads((tmp_path / "record.json").read_text()) == {
        "1": [None, None, None, 0.1],
        "numpy": [0.5, None, 3, [1.0, None]],
        "torch": [[1.5], [None]],
        "none": None,
        "yes": True,
    }


def test_parts_of_killed_writers_are_removed_by_the_next_one_and_those_of_running_ones_kept(tmp_path):
    path = tmp_path / "flow.vtu"
    names = {}

    def show(key):
        with files.replacing(path) as temporary:
            names[key] = temporary.name
            temporary.write_text(key)

    show("here")
    with forked(lambda: None) as process:  # its number is free again afterwards
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    dead = tmp_path / names["here"].replace(f"-{os.getpid()}-", f"-{process}-")
    running = tmp_path / names["here"].replace(f"-{os.getpid()}-", f"-{os.getppid()}-")
    other = tmp_path / names["here"].replace("flow.vtu", "flow2.vtu").replace(f"-{os.getpid()}-", f"-{process}-")
    for part in (dead, running, other):
        part.write_text("half")
    show("again")
    assert sorted(tmp_path.iterdir()) == sorted([path, running, other])


def test_a_folder_appears_when_it_is_complete_and_the_old_one_is_kept_until_then(tmp_path):
    path = tmp_path / "4"

    def fill(text: str, fail: bool) -> None:
        with files.replacing_folder(path) as temporary:
            (temporary / "U").write_text(text)
            if fail:
                raise OSError("could not be written")

    with pytest.raises(OSError, match="could not be written"):
        fill("first", fail=True)
    assert list(tmp_path.iterdir()) == []
    fill("first", fail=False)
    with pytest.raises(OSError, match="could not be written"):
        fill("second", fail=True)
    assert (path / "U").read_text() == "first"
    fill("second", fail=False)
    assert (path / "U").read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path):
    (tmp_path / "file").write_text("content")
    assert files.read_regular(tmp_path / "file", 7) == b"content"
    with pytest.raises(OSError, match="has 7 bytes; at most 6"):
        files.read_regular(tmp_path / "file", 6)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a pipe, not a file"):
        files.read_regular(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a folder, not a file"):
        files.read_regular(tmp_path)
    with pytest.raises(OSError, match="is a device or a socket, not a file"):
        files.read_regular("/dev/zero")
    with pytest.raises(FileNotFoundError):
        files.read_regular(tmp_path / "nothing")


def test_the_name_of_a_part_cannot_be_known_before_and_a_link_there_is_not_followed(tmp_path, monkeypatch):
    path, victim = tmp_path / "flow.vtu", tmp_path / "victim"
    victim.write_text("precious")
    names = set()
    for _ in range(2):
        with files.replacing(path) as temporary:
            names.add(temporary.name)
            temporary.write_text("flow")
    assert len(names) == 2
    # Even somebody who knew it could not have the victim's content replaced.
    monkeypatch.setattr(files.secrets, "token_hex", lambda _: "known")
    for suffix, write in (("", lambda: files.write_atomically(path, b"flow")), (".vtu", lambda: replaced(path))):
        link = path.with_name(f".flow.vtu.{files._HOST}-{os.getpid()}-known.part{suffix}")
        link.symlink_to(victim)
        with pytest.raises(OSError, match="exists"):
            write()
        link.unlink(missing_ok=True)
    assert victim.read_text() == "precious"


def replaced(path):
    with files.replacing(path) as temporary:
        temporary.write_text("flow")


def test_a_folder_is_held_by_one_at_a_time(tmp_path):
    with files.locked_folder(tmp_path, "a training"):
        with pytest.raises(ValueError, match="a training is going on"), files.locked_folder(tmp_path, "a training"):
            pass
        assert list(tmp_path.iterdir()) == []
    with files.locked_folder(tmp_path, "a training"):
        pass


def test_links_that_lead_to_each_other_are_no_place_for_a_file(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(tmp_path / "one")
    with pytest.raises(OSError, match="symbolic links"):
        files.write_atomically(tmp_path / "one", b"content")
