"""For all tests. A skipped one fails in continuous integration (`CI` is set): a feature lost there must not go unseen.
None writes into the user's history. What a run writes into its log is what readers of logs expect.
Workers that run side by side have one thread of polars each.

Hypothesis judges no times: a first call that imports a library on a busy machine takes longer than its limit. It tries
few examples of each property; `make proof` asks for more by `SOJOURN_EXAMPLES`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from scripts.proof_figures import Kind, record
from sojourn.conduct.archive import Log
from sojourn.records.log import damage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

settings.register_profile("sojourn", deadline=None, max_examples=int(os.environ.get("SOJOURN_EXAMPLES", "25")))
settings.load_profile("sojourn")

HISTORY = "SOJOURN_DATA"
FAILURES = "SOJOURN_FAILURES"
"""Names the file that each failure is added to at once: a run of two hours that is interrupted prints none."""

PROOF_SECONDS = 7200


def pytest_configure(config: pytest.Config) -> None:
    """Give the runs of all tests a history of their own: that of whoever runs the tests is not theirs to write."""
    folder = tempfile.mkdtemp(prefix="sojourn-tests-")
    os.environ[HISTORY] = folder
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's background: the programs of tests must hear it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    check_events()


def check_events() -> None:
    """Let a run fail that writes an event of another shape than `records.events` declares: no report would be made."""
    write = Log.__call__

    def checked(log: Log, event: str, **fields: Any) -> None:
        wrong = damage({"tai_ns": 0, "event": event} | json.loads(json.dumps(fields)))
        assert wrong is None, wrong
        write(log, event, **fields)

    Log.__call__ = checked  # type: ignore[method-assign,assignment]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a failure to the file of failures, if there is one; workers report to the process that prints."""
    path = os.environ.get(FAILURES)
    if path is None or not report.failed or "PYTEST_XDIST_WORKER" in os.environ:
        return
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"===== {report.nodeid} ({report.when})\n{report.longreprtext}\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of `make proof` two hours, unless one says how long it takes; of others, pyproject.toml says it."""
    for item in items:
        if item.get_closest_marker("proof") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(PROOF_SECONDS))


@pytest.fixture
def proven(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Write down what a test has measured, for the proof page: `proven("kills", "runs of a study", kills=12)`.

    Nothing is written but under `make proof` and `make soak`. Kinds and their numbers: scripts/proof_figures.py.
    """

    def write(kind: Kind, what: str, **numbers: float) -> None:
        record(kind, what, request.node.nodeid, numbers)

    return write


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure, but for expected failures and tests marked `may_skip`."""
    report = yield
    expected = hasattr(report, "wasxfail") or item.get_closest_marker("may_skip")
    if report.skipped and "CI" in os.environ and not expected:
        report.outcome = "failed"
        report.longrepr = f"skipped, which continuous integration does not allow: {report.longreprtext}"
    return report
