"""CI does not take a skipped test for a passed one."""

import shutil

import pytest

from paths import SUPPORT

pytest_plugins = ["pytester"]

PROBES = """
import pytest

def test_runs(): pass

def test_on_a_device(): pytest.skip("needs CUDA")

@pytest.mark.xfail
def test_known_to_fail(): raise ValueError
"""


@pytest.mark.parametrize("workers", ["0", pytest.param("2", marks=pytest.mark.slow)])
def test_ci_fails_where_a_test_is_skipped_that_it_can_run(pytester, monkeypatch, workers):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of .venv load slowly
    shutil.copy(SUPPORT / "ci_plugin.py", pytester.path)
    pytester.syspathinsert()
    pytester.makepyfile(test_allowed=PROBES)
    arguments = ["-p", "ci_plugin", "-p", "xdist", "-n", workers]
    assert pytester.runpytest_subprocess(*arguments).ret == pytest.ExitCode.OK

    pytester.makepyfile(
        test_one="import pytest\ndef test_it(): pytest.skip('needs OpenFOAM')",
        test_module="import pytest\npytest.skip('needs chromium', allow_module_level=True)",
    )
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_module.py: needs chromium", "*test_one.py::test_it: needs OpenFOAM"])
