#!/usr/bin/env bash
# Runs every test that a change can break. What takes longer is in proof.sh.
. "$(dirname "$0")/parts.sh"

suite rules .venv/bin/python scripts/check_rules.py
suite schema .venv/bin/python scripts/generate_schema.py --check --binary .venv/bin/sojourn-instrument
suite licences .venv/bin/python scripts/check_dependencies.py
suite cargo-test .venv/bin/python scripts/cargo_tests.py
# What computes shares the cores; so do the tests over namespaces that count, which wait for half of their time; those that
# measure time have the cores alone.
suite_side_by_side pytest auto tests --ignore tests/net
suite_side_by_side pytest-net 5 -m 'not proof and not alone' tests/net
suite_side_by_side pytest-alone 0 -m 'alone and not proof' tests/net
closing_lines
