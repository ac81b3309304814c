"""The fixture `sojourn_path` in sessions of pytest of their own: it is there by itself, and runs over real frames."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

pytest_plugins = ["pytester"]

DELAYED = """
    import re

    def test_delay(sojourn_path):
        path = sojourn_path(delay="10ms", loss=0.0)
        said = path.near.run(["ping", "-c", "5", "-i", "0.01", path.far.address]).stdout
        assert min(map(float, re.findall(r"time=([0-9.]+) ms", said))) >= 19.99
        path.set(delay="1ms")
        assert len(re.findall("bytes from", path.far.run(["ping", "-c", "1", path.near.address]).stdout)) == 1
"""

ENDED = """
    import os

    def test_ended(sojourn_path):
        os.kill(sojourn_path().emulator.pid, 9)
"""

REFUSED = """
    def test_refused(sojourn_path):
        sojourn_path(dely="10ms")
"""


LOADED = """
    import sys

    def test_loaded():
        found = sorted(one for one in sys.modules if one.startswith("sojourn"))
        assert found == ["sojourn", "sojourn.lazy", "sojourn.pytest_plugin", "sojourn.version"]
"""


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [one.value for one in entry_points(group="pytest11", name="sojourn")]
    assert names == ["sojourn.pytest_plugin"], "the entry point is not installed: make setup"
    monkeypatch.delenv("CI", raising=False)


def run(pytester: pytest.Pytester, test: str) -> pytest.RunResult:
    """A session over one test, which is given no plugin by name."""
    pytester.makepyfile(test)
    return pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider")


def test_a_test_has_an_emulated_path(pytester: pytest.Pytester) -> None:
    run(pytester, DELAYED).assert_outcomes(passed=1)


def test_a_test_whose_path_ended_is_an_error(pytester: pytest.Pytester) -> None:
    done = run(pytester, ENDED)
    done.assert_outcomes(passed=1, errors=1)
    done.stdout.fnmatch_lines(["*DoubtfulError: the emulated path ended meanwhile*"])


def test_wrong_words_are_an_error_of_the_test(pytester: pytest.Pytester) -> None:
    done = run(pytester, REFUSED)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*RequestError: dely: expected one of delay*did you mean delay?*"])


@pytest.mark.parametrize("ci", [False, True])
def test_without_namespaces_tests_skip_and_fail_in_continuous_integration(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *, ci: bool
) -> None:
    """A search path without `unshare` is as good as a kernel without namespaces."""
    folder = pytester.mkdir("tools")
    monkeypatch.setenv("PATH", str(folder))
    pytester.makeconftest("import sojourn.bed.processes as one; one.search_path = lambda: " + repr(str(folder)))
    if ci:
        monkeypatch.setenv("CI", "true")
    done = run(pytester, DELAYED)
    done.assert_outcomes(failed=ci, skipped=not ci)
    done.stdout.fnmatch_lines(["*no emulated path on this machine: *unshare* not found: apt-get install *util-linux*"])


def test_a_session_without_the_fixture_loads_nothing(pytester: pytest.Pytester) -> None:
    run(pytester, LOADED).assert_outcomes(passed=1)
