"""Advisories on the crates of Cargo.lock, by a stand-in for OSV on loopback."""

from __future__ import annotations

import json
import tomllib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from scripts import audit_crates

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = """
[[package]]
name = "ours"
version = "0.3.0"

[[package]]
name = "time"
version = "0.1.43"
source = "registry+https://github.com/rust-lang/crates.io-index"

[[package]]
name = "zlib"
version = "1.0.0"
source = "registry+https://github.com/rust-lang/crates.io-index"
"""
FOUND = {"results": [{"vulns": [{"id": "RUSTSEC-2020-0071", "modified": "2026-01-01T00:00:00Z"}]}, {}]}


@contextmanager
def osv(status: int, answer: bytes) -> Iterator[tuple[str, list[Any]]]:
    """A server that gives one answer to everything: its address, and what it was asked."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "Cargo.lock").write_text(LOCK)
    (tmp_path / "deny.toml").write_text("[bans]\n")
    return tmp_path


def test_an_advisory_is_found_and_only_crates_of_a_registry_are_asked_for(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with osv(200, json.dumps(FOUND).encode()) as (server, requests):
        assert audit_crates.main(server, root) == 1
    said = capsys.readouterr().out
    assert said == "time 0.1.43: RUSTSEC-2020-0071, https://osv.dev/vulnerability/RUSTSEC-2020-0071\n"
    crates = [("time", "0.1.43"), ("zlib", "1.0.0")]
    queries = [{"package": {"ecosystem": "crates.io", "name": name}, "version": version} for name, version in crates]
    assert requests == [("/v1/querybatch", {"queries": queries})]


@pytest.mark.parametrize("entry", ['"RUSTSEC-2020-0071"', '{ id = "RUSTSEC-2020-0071", reason = "no local time" }'])
def test_an_advisory_that_deny_toml_ignores_is_none(entry: str, root: Path) -> None:
    (root / "deny.toml").write_text(f"[advisories]\nignore = [{entry}]\n")
    with osv(200, json.dumps(FOUND).encode()) as (server, _):
        assert audit_crates.main(server, root) == 0


def test_crates_without_an_advisory_are_good(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with osv(200, b'{"results": [{}, null]}') as (server, _):
        assert audit_crates.main(server, root) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("status", "answer"), [(503, b""), (200, b"<html>"), (200, b'{"results": [{}]}'), (200, b"[]"), (200, b"\xff")]
)
def test_without_an_answer_the_reason_is_said(
    status: int, answer: bytes, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with osv(status, answer) as (server, _):
        assert audit_crates.main(server, root) == 3
    assert capsys.readouterr().out.startswith("the database of advisories (OSV) gives no answer: ")
    assert audit_crates.main(server, root) == 3, "nobody listens there any more"


def test_the_lock_of_this_tree_is_read() -> None:
    lock = audit_crates.locked(tomllib.loads((audit_crates.ROOT / "Cargo.lock").read_text()))
    assert len(lock) > 100
    assert len(lock) < audit_crates.MOST_QUERIES
