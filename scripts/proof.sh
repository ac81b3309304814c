#!/usr/bin/env bash
# Runs what takes too long for test.sh: statistics over thousands of repetitions, many kills, long studies, bare machines.
. "$(dirname "$0")/parts.sh"

suite proof-cargo cargo test --locked --workspace --no-fail-fast -- --ignored
suite proof-properties env PROPTEST_CASES=2000 cargo test --locked --workspace --no-fail-fast
suite proof-examples env SOJOURN_EXAMPLES=1000 .venv/bin/pytest -n auto --dist worksteal tests/unit
suite proof-pytest .venv/bin/pytest -n auto --dist load -m proof tests --ignore tests/net --ignore tests/bare
suite proof-net .venv/bin/pytest -m proof tests/net
suite proof-bare .venv/bin/pytest -m proof tests/bare
closing_lines
