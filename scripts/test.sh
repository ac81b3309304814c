#!/usr/bin/env bash
# Runs every test, the Rust ones and the Python ones, both even if the first fail, and ends with their closing lines.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin"
mkdir -p build

cargo test --locked --workspace 2>&1 | tee build/cargo-test.log
rust=$?
.venv/bin/pytest "$@" 2>&1 | tee build/pytest.log
python=$?

echo
awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
     END { printf "cargo test: %d passed, %d failed, %d ignored\n", passed, failed, ignored }' build/cargo-test.log
printf 'pytest: %s\n' "$(tail -n 1 build/pytest.log | tr -d '=' | sed 's/^ *//; s/ *$//')"
[ "$rust" -eq 0 ] && [ "$python" -eq 0 ]
