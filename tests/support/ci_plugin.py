"""Makes the run fail where a test was skipped that CI is able to run: `pytest -p tests.support.ci_plugin`.

A skipped test looks like a passing one, so a machine that lacks OpenFOAM, a browser or the reference samples
would otherwise report success without having tested them.
"""

from typing import Any

import pytest

# What CI's machines do not have. The reason of a skip starts with one of these.
ALLOWED = ("needs CUDA",)

_refused: set[str] = set()


def _remember(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    if not reason.startswith(ALLOWED):
        _refused.add(f"{report.nodeid}: {reason}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _remember(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _remember(report)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # pytest-xdist does not hand on that a worker skipped a whole module.
    _refused.update(getattr(node, "workeroutput", {}).get("refused_skips", ()))


# Last, so that the controller of pytest-xdist has heard from all its workers.
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["refused_skips"] = sorted(_refused)
    elif _refused and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _refused:
        terminalreporter.section("skipped, but CI can run them", red=True)
        for line in sorted(_refused):
            terminalreporter.write_line(line)
