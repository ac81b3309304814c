#!/usr/bin/env bash
# Runs every test that a change can break. What takes longer is in proof.sh.
. "$(dirname "$0")/parts.sh"

suite rules .venv/bin/python scripts/check_rules.py
suite schema .venv/bin/python scripts/generate_schema.py --check --binary .venv/bin/sojourn-instrument
suite licences .venv/bin/python scripts/check_dependencies.py
suite cargo-test .venv/bin/python scripts/cargo_tests.py
# Tests over namespaces that count wait for half of their time: what computes takes what they leave of the cores. Those that measure
# time have the cores alone.
outside_the_net=(tests --ignore tests/net)
side_by_side_beside pytest auto "${outside_the_net[@]}"
suite_side_by_side pytest-net 5 -m 'not proof and not alone' tests/net
side_by_side_ended pytest "${outside_the_net[@]}"
suite pytest-alone .venv/bin/pytest -m 'alone and not proof' tests/net
closing_lines
